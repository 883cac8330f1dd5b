//! Keeps the memory of this process from disks: no core dump, no swap.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::code::AgentCode;

#[derive(Debug, Clone, Copy)]
pub struct Protection {
    /// Whether no page of this process is ever swapped.
    pub locked: bool,
}

impl Protection {
    /// Before a key is made or a token read. What is not permitted is said, and the agent goes on: the keys at rest are
    /// safe either way.
    pub fn apply() -> Self {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let refused = [
            setrlimit(Resource::Core, none).err(),
            // Neither may another process of this user look into it.
            set_dumpable_behavior(DumpableBehavior::NotDumpable).err(),
        ];
        for error in refused.into_iter().flatten() {
            tracing::error!(%error, "core dumps of this process could not be turned off");
        }
        let locked = lock();
        if let Err(why) = &locked {
            let remedy = AgentCode::MemoryNotLocked.remedy();
            let code = AgentCode::MemoryNotLocked.word();
            match has_swap() {
                true => tracing::error!(
                    class = code,
                    "the memory of this process is not locked ({why}), and this host has swap space: keys in use may be written to it; remedy: {remedy}"
                ),
                false => tracing::warn!(
                    class = code,
                    "the memory of this process is not locked ({why}); this host has no swap space now; remedy: {remedy}"
                ),
            }
        }
        Self { locked: locked.is_ok() }
    }
}

/// Locks all pages, those to come as well, each when it is first used. Only where there is no limit: with one, the day would
/// come when no more memory is given, and the process ends.
fn lock() -> Result<(), String> {
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    let permitted = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if !unlimited && !permitted {
        return Err("RLIMIT_MEMLOCK is limited, and there is no CAP_IPC_LOCK".to_owned());
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|error| error.to_string())
}

/// The right to mount is needed once. Threads that start later do not have it either.
pub fn drop_mount_right() {
    let dropped = capabilities(None).and_then(|mut sets| {
        for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
            set.remove(CapabilitySet::SYS_ADMIN);
        }
        set_capabilities(None, sets)
    });
    if let Err(error) = dropped {
        tracing::warn!(%error, "CAP_SYS_ADMIN could not be given up");
    }
}

/// One line is the heading.
pub fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}
