//! Unsealed keys are in the memory of this process and stay there: no core dump holds them, and the one that exists
//! nowhere else is not swapped out.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// No core dump of this process is written: to no file, and to no program that collects dumps, which a limit of the size
/// alone does not keep from it. Nor may a process of the same user read its memory.
pub fn forbid_dumps() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps of this process could not be forbidden: they would hold unsealed keys");
    }
}

/// Keeps memory out of swap, page by page as it is used. Only without a limit on locked memory: beyond one, the process
/// would get no memory at all.
pub fn forbid_swapping() {
    let capable = || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    let allowed = getrlimit(Resource::Memlock).current.is_none() || capable();
    let locked =
        allowed && mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).is_ok();
    if !locked && swap_is_on() {
        tracing::warn!(
            "memory is not locked and swap is on: the key of the ephemeral issuer may be written to swap. Turn swap off, \
             encrypt it, or let the service lock its memory: LimitMEMLOCK=infinity in its unit"
        );
    }
}

/// The first line of the file is a heading.
fn swap_is_on() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() > 1)
}
