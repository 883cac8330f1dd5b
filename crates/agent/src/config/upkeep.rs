//! What keeps a host in order: where it recovers, what it writes down about itself, what it keeps free for bad days,
//! and which names it must know by itself.

use std::path::{Path, PathBuf};

use lifecycle::names::Span;
use toml::Value;

use super::hosts::{self, Hosts};
use super::{Layer, keys};

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

const BALLAST: u64 = 1024 * 1024;
const DIAGNOSTICS: u64 = 256 * 1024;
/// Less holds hardly a record.
pub const DIAGNOSTICS_LEAST: u64 = 4 * 1024;
const CHECK: Span = Span::from_minutes(1);
const HOSTS_FILE: &str = "/etc/hosts";

pub(super) fn recovery(layers: &[Layer<'_>]) -> RecoveryConfig {
    RecoveryConfig {
        url: layers.iter().find_map(|layer| layer.text(keys::RECOVERY_URL)).map(str::to_owned),
        ca_file: layers.iter().find_map(|layer| layer.path(keys::RECOVERY_CA_FILE)),
        same_as_runtime: layers
            .iter()
            .find_map(|layer| layer.said(keys::RECOVERY_SAME_AS_RUNTIME))
            .unwrap_or(false),
    }
}

pub(super) fn upkeep(dir: &Path, layers: &[Layer<'_>]) -> Upkeep {
    let path = |key: &str| layers.iter().find_map(|layer| layer.path(key));
    let bytes = |key: &str| layers.iter().find_map(|layer| layer.bytes(key));
    let text = |key: &str| layers.iter().find_map(|layer| layer.text(key));
    Upkeep {
        ballast_bytes: bytes(keys::BALLAST_BYTES).unwrap_or(BALLAST),
        diagnostic_path: path(keys::DIAGNOSTIC_PATH).unwrap_or_else(|| dir.join("diagnostics")),
        diagnostic_bytes: bytes(keys::DIAGNOSTIC_BYTES).unwrap_or(DIAGNOSTICS),
        paths: WorkPaths { task_retry: path(keys::PATHS_TASK_RETRY), runtime: path(keys::PATHS_RUNTIME) },
        check_interval: text(keys::CHECK_INTERVAL).and_then(|text| Span::parse(text).ok()).unwrap_or(CHECK),
        hosts_file: path(keys::HOSTS_FILE).unwrap_or_else(|| PathBuf::from(HOSTS_FILE)),
        hosts: layers.iter().find_map(|layer| layer.values.get(keys::HOSTS)).map(mapped).unwrap_or_default(),
        terminal_url: text(keys::TERMINAL_URL).map(str::to_owned),
    }
}

impl Upkeep {
    /// Where nothing can be read of what is configured.
    pub fn usual(dir: &Path) -> Self {
        upkeep(dir, &[])
    }
}

/// A table that was found good before.
fn mapped(value: &Value) -> Hosts {
    let pairs = value.as_table().into_iter().flatten();
    pairs.filter_map(|(name, address)| hosts::pair(name, address.as_str()?).ok()).collect()
}
