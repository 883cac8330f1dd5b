//! Whether what is to be in memory alone is kept from disks. Listed only where the settings say `storage = "memory"`.

use super::check::Check;
use super::local;
use super::subject::DoctorSubject;
use crate::code::{self, AgentCode};
use crate::memory::{self, KeptOverRestart};

const NAME: &str = "storage";

pub fn examine(subject: &DoctorSubject) -> Option<Check> {
    if !subject.is_in_memory() {
        return None;
    }
    let left: Vec<String> =
        memory::left_on_disk(&subject.dir).iter().map(|path| path.display().to_string()).collect();
    let Some(memory) = subject.daemon.as_ref().and_then(|daemon| daemon.memory.as_ref()) else {
        if let Some(socket) = &subject.denied {
            return Some(warned(Check::moot(NAME, code::not_asked(socket)), None, &left));
        }
        let check = Check::good(NAME, "nothing is kept on a disk, and no daemon keeps anything in memory");
        return Some(warned(check, None, &left));
    };
    if !memory.locked && memory.swap {
        let what = "the memory of the daemon is not locked, and this host has swap space: keys in use may be written to it";
        return Some(warned(Check::wrong(NAME, AgentCode::MemoryNotLocked, what), None, &left));
    }
    let restart = match memory.kept_over_restart {
        KeptOverRestart::Yes => "it is kept over a restart of the service",
        KeptOverRestart::Unknown => "the service manager was asked to keep it over a restart",
        KeptOverRestart::No => "it is lost when the daemon ends",
    };
    let locked = if memory.locked { "locked" } else { "not locked" };
    let check = Check::good(NAME, format!("kept in memory, {locked}; {restart}"));
    let unlocked = (!memory.locked).then(|| {
        let remedy = AgentCode::MemoryNotLocked.remedy();
        format!("the memory of the daemon would be swapped once this host has swap space: {remedy}")
    });
    Some(warned(check, unlocked, &left))
}

fn warned(check: Check, first: Option<String>, left: &[String]) -> Check {
    let left = (!left.is_empty())
        .then(|| format!("what was kept on disk before is still there; remove it: {}", local::listed(left)));
    let warnings: Vec<String> = first.into_iter().chain(left).collect();
    if warnings.is_empty() { check } else { check.warn(warnings.join("; ")) }
}
