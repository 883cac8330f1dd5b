//! What keeps a host in order: where it recovers, what it writes down about itself, what it keeps free for bad days,
//! and which names it must know by itself.

use std::path::{Path, PathBuf};

use lifecycle::names::Span;
use toml::Value;

use super::hosts::{self, Hosts};
use super::keys;
use super::layers::Layers;

/// Where recovery goes, as far as the operator says so on this host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveryConfig {
    pub url: Option<String>,
    pub ca_file: Option<PathBuf>,
    /// The servers and the trust of every day may serve for recovery, too.
    pub same_as_runtime: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upkeep {
    /// Kept allocated, to be given up when the disk is full; 0 for none.
    pub ballast_bytes: u64,
    /// A directory.
    pub diagnostic_path: PathBuf,
    /// What all of it may take at most.
    pub diagnostic_bytes: u64,
    pub paths: WorkPaths,
    /// How often expiry and free space are looked at.
    pub check_interval: Span,
    pub hosts_file: PathBuf,
    /// What the operator says on this host, before what the control plane says.
    pub hosts: Hosts,
    /// Where terminal sessions go, before what the control plane says.
    pub terminal_url: Option<String>,
}

/// Directories of the work that this host does, whose room is watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkPaths {
    pub task_retry: Option<PathBuf>,
    pub runtime: Option<PathBuf>,
}

pub(super) fn recovery(layers: &Layers<'_>) -> RecoveryConfig {
    RecoveryConfig {
        url: layers.text(keys::RECOVERY_URL).map(str::to_owned),
        ca_file: layers.path(keys::RECOVERY_CA_FILE),
        same_as_runtime: layers.is_set(keys::RECOVERY_SAME_AS_RUNTIME),
    }
}

pub(super) fn upkeep(layers: &Layers<'_>) -> Upkeep {
    Upkeep {
        ballast_bytes: layers.bytes(keys::BALLAST_BYTES),
        diagnostic_path: layers.path(keys::DIAGNOSTIC_PATH).unwrap_or_default(),
        diagnostic_bytes: layers.bytes(keys::DIAGNOSTIC_BYTES),
        paths: WorkPaths {
            task_retry: layers.path(keys::PATHS_TASK_RETRY),
            runtime: layers.path(keys::PATHS_RUNTIME),
        },
        check_interval: layers.span(keys::CHECK_INTERVAL),
        hosts_file: layers.path(keys::HOSTS_FILE).unwrap_or_default(),
        hosts: layers.value(keys::HOSTS).map(mapped).unwrap_or_default(),
        terminal_url: layers.text(keys::TERMINAL_URL).map(str::to_owned),
    }
}

impl Upkeep {
    /// Where nothing can be read of what is configured.
    pub fn usual(dir: &Path) -> Self {
        upkeep(&Layers::above_defaults(dir, Vec::new()))
    }
}

/// A table that was found good before.
fn mapped(value: &Value) -> Hosts {
    let pairs = value.as_table().into_iter().flatten();
    pairs.filter_map(|(name, address)| hosts::pair(name, address.as_str()?).ok()).collect()
}
