//! `storage = "memory"`: what the agent keeps lies in a file system that exists in memory alone, and the process keeps its own
//! memory from disks.
//!
//! - [`file_system`]: a ramfs that is mounted nowhere and lives as long as a descriptor of it.
//! - [`handover`]: the descriptor outlives the process in the service manager's store.
//! - [`protection`]: no core dumps, no swapping.

mod file_system;
mod handover;
mod protection;

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::code::AgentCode;
use crate::config::Environment;
use crate::fault::Fault;
use crate::service_manager::ServiceManager;
use file_system::MemoryFileSystem;
pub use file_system::is_in_memory;
pub use protection::Protection;

/// What a disk-based agent leaves in its directory that is secret or confidential.
const ON_DISK: [&str; 6] = ["identity", "pending", "recovery", "config", "wireguard", "renewal-key.pem"];

/// Whether a new process of the service finds what this one has kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptOverRestart {
    Yes,
    /// The service manager was asked, and does not say whether it does so.
    Unknown,
    No,
}

impl KeptOverRestart {
    /// As `status --json` has it.
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Unknown => "unknown",
            Self::No => "no",
        }
    }
}

/// As `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Where root can look at what is kept, while the daemon runs.
    pub path: String,
    /// Whether the memory of the process is never swapped.
    pub locked: bool,
    /// Whether this host has swap space.
    pub swap: bool,
    pub kept_over_restart: KeptOverRestart,
}

/// Everything that the agent keeps, until the last descriptor of it is closed.
#[derive(Debug)]
pub struct MemoryStore {
    files: MemoryFileSystem,
    protection: Protection,
    kept_over_restart: KeptOverRestart,
}

impl MemoryStore {
    /// What an earlier process of this service has kept, else a new and empty one. `dir` says whose it is.
    pub fn open(dir: &Path, environment: &Environment, manager: &ServiceManager) -> Result<Self, Fault> {
        let protection = Protection::apply();
        let handed = handover::take(dir);
        let found = handed.files.is_some();
        let files = match handed.files {
            Some(files) => files,
            None => MemoryFileSystem::create(dir).map_err(|error| unavailable(&error))?,
        };
        protection::drop_mount_right();
        if handed.others {
            manager.forget(handover::NAME);
        }
        let asked = manager.keep(handover::NAME, files.as_fd());
        let limit = environment.get("FDSTORE").and_then(|text| text.to_str()?.parse::<u64>().ok());
        let kept_over_restart = match asked {
            Ok(true) if found && !handed.others => KeptOverRestart::Yes,
            Ok(true) => match limit {
                Some(limit) if limit > 0 => KeptOverRestart::Yes,
                Some(_) => KeptOverRestart::No,
                None => KeptOverRestart::Unknown,
            },
            Ok(false) => KeptOverRestart::No,
            Err(error) => {
                tracing::warn!(%error, "the service manager could not be given the agent's memory to keep");
                KeptOverRestart::No
            }
        };
        if found {
            tracing::info!(
                "storage is memory: going on with what an earlier process of this service has kept"
            );
        } else {
            tracing::info!(
                kept_over_restart = kept_over_restart.word(),
                "storage is memory: nothing is kept from before"
            );
        }
        Ok(Self { files, protection, kept_over_restart })
    }

    /// For this process alone.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    pub fn status(&self) -> MemoryStatus {
        MemoryStatus {
            path: self.files.path_for_others(),
            locked: self.protection.locked,
            swap: protection::has_swap(),
            kept_over_restart: self.kept_over_restart,
        }
    }
}

/// What an agent that kept its identity on disk has left there.
pub fn left_on_disk(dir: &Path) -> Vec<PathBuf> {
    ON_DISK.iter().map(|name| dir.join(name)).filter(|path| path.symlink_metadata().is_ok()).collect()
}

pub fn warn_of_what_is_on_disk(dir: &Path) {
    for path in left_on_disk(dir) {
        tracing::warn!(
            "storage is memory, and {} is on disk from before: it is not used; remove it, and see that the disk keeps no copy",
            path.display()
        );
    }
}

fn unavailable(error: &io::Error) -> Fault {
    let code = AgentCode::MemoryUnavailable;
    let what = format!(
        "storage is \"memory\", and a file system in memory could not be made: {error}; nothing was sent, and nothing goes to a disk instead"
    );
    Fault::host(code, what, code.remedy())
}
