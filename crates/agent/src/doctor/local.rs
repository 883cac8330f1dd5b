//! What can be seen without leaving this host.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use lifecycle::host::Class;
use lifecycle::names::Timestamp;
use rustix::fs::Access;

use super::check::Check;
use super::network::ABSENT;
use super::subject::DoctorSubject;
use crate::clock;
use crate::code::AgentCode;
use crate::config::AgentConfig;
use crate::diagnostics;
use crate::enroll::plan;
use crate::reconcile::secret_files;
use crate::space;
use crate::spoken::spoken;
use crate::store::identity::StoredIdentity;

/// How many faults of a kind are named.
const LISTED: usize = 8;

/// The checks of a directory that this user may not read: one fault, on which all others wait. Nothing if it can be read.
pub fn closed_to_this_user(dir: &Path) -> Option<Vec<Check>> {
    const NAME: &str = "permissions";
    const OTHERS: [&str; 7] = ["reachability", "resolution", "tls", "clock", "disk", "expiry", "recovery"];
    let found = fs::metadata(dir).ok()?;
    let us = rustix::process::geteuid();
    let may_read = rustix::fs::access(dir, Access::READ_OK | Access::EXEC_OK).is_ok();
    if us.is_root() || found.uid() == us.as_raw() || may_read {
        return None;
    }
    let (dir, owner) = (dir.display(), found.uid());
    let what = format!("{dir} belongs to user {owner}, and this is user {}", us.as_raw());
    let remedy =
        "run the command as root (`sudo enlist-agent doctor`), or as the user that the directory belongs to";
    let fault = Check::wrong(NAME, AgentCode::DirNotOurs, what).with(remedy);
    let waiting = OTHERS.map(|name| Check::skipped(name, NAME, &format!("this user may not read {dir}")));
    Some(std::iter::once(fault).chain(waiting).collect())
}

/// Room everywhere, and that a diagnosis could be written down.
pub fn disk(subject: &DoctorSubject, writable: fn(&Path) -> io::Result<()>) -> Check {
    const NAME: &str = "disk";
    let config = subject.config.as_ref().ok();
    let in_memory = subject.is_in_memory();
    let beside = in_memory && config.is_some_and(AgentConfig::has_diagnostics_beside_identity);
    let mut free = space::free(&subject.kept, &subject.upkeep);
    free.retain(|free| match free.name {
        "cert" => !in_memory,
        "diagnostic" => !beside,
        _ => true,
    });
    let told = |free: &space::Free| format!("{} {} free", free.name, amount(free.available_bytes));
    let evidence = match free.as_slice() {
        [] => "nothing is kept on a disk".to_owned(),
        free => free.iter().map(told).collect::<Vec<_>>().join(", "),
    };
    let room = |name: &str| free.iter().find(|free| free.name == name).map(|free| free.available_bytes);
    if room("cert").is_some_and(space::is_short) {
        let what = format!("too little free space for keys and certificates: {evidence}");
        return Check::bad(NAME, Class::DiskFull, what);
    }
    let place = &subject.upkeep.diagnostic_path;
    if !beside && let Err(error) = writable(place) {
        let what = format!("{} cannot be written: {error}; {evidence}", place.display());
        return if space::is_full(&error) {
            Check::bad(NAME, Class::DiskFull, what)
        } else {
            Check::wrong(NAME, AgentCode::NotPersisted, what)
                .with("let the agent's user write there, or set another diagnostic_path in agent.toml")
        };
    }
    if room("diagnostic").is_some_and(|room| space::is_pressed(room, subject.upkeep.ballast_bytes)) {
        let what = format!("so little free space that diagnostics and metrics are not written: {evidence}");
        return Check {
            class: Some("node_observability_disk_pressure"),
            ..Check::bad(NAME, Class::DiskFull, what)
        };
    }
    Check::good(NAME, evidence)
}

/// Tried with a small file. A directory that is not there yet is not made: it might then belong to the wrong user.
pub fn writable(place: &Path) -> io::Result<()> {
    if place.is_dir() { diagnostics::try_out(place) } else { may_write(place) }
}

/// The same without writing anything, as far as modes tell.
pub fn may_write(place: &Path) -> io::Result<()> {
    let above = place.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new("/"));
    if !above.is_dir() {
        let what = format!("{} is not a directory", above.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
    }
    Ok(rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Modes and owners of the directory and of every secret in it.
pub fn permissions(subject: &DoctorSubject) -> Check {
    const NAME: &str = "permissions";
    let dir = &subject.kept;
    if subject.is_in_memory() && subject.kept == subject.dir {
        return Check::moot(NAME, "no secret is kept on a disk");
    }
    let found = match fs::metadata(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::moot(NAME, format!("{} is not there yet", dir.display()));
        }
        Err(error) => {
            return Check::wrong(NAME, AgentCode::DirUnusable, format!("{}: {error}", dir.display()));
        }
    };
    let us = rustix::process::geteuid();
    if !us.is_root() && found.uid() != us.as_raw() {
        let what =
            format!("{} belongs to user {}, and this is user {}", dir.display(), found.uid(), us.as_raw());
        return Check::wrong(NAME, AgentCode::DirNotOurs, what)
            .with("run the command as that user, or as root");
    }
    let mut wrong = Vec::new();
    let open = found.mode() & 0o077 != 0;
    if open {
        wrong.push(format!("{} is open to others (mode {:04o})", dir.display(), found.mode() & 0o7777));
    }
    for path in secret_files(dir) {
        let Ok(file) = fs::symlink_metadata(&path) else { continue };
        if file.is_symlink() || !file.is_file() {
            wrong.push(format!("{} is not a regular file", path.display()));
        } else if file.uid() != found.uid() {
            wrong.push(format!("{} belongs to user {}", path.display(), file.uid()));
        } else if file.mode() & 0o077 != 0 {
            wrong.push(format!("{} is open to others (mode {:04o})", path.display(), file.mode() & 0o7777));
        }
    }
    if let Ok(StoredIdentity::Exposed(place)) = &subject.stored
        && wrong.len() == usize::from(open)
    {
        wrong.push(format!("others may read or replace {}", place.display()));
    }
    if wrong.is_empty() {
        return Check::good(
            NAME,
            format!("only user {} can read {} and the secrets in it", found.uid(), dir.display()),
        );
    }
    if open && wrong.len() == 1 {
        return Check::wrong(NAME, AgentCode::DirNotPrivate, wrong.concat())
            .with("run `enlist-agent reconcile`, or chmod 0700");
    }
    Check::wrong(NAME, AgentCode::KeyExposed, listed(&wrong)).with(
        "if nobody else can have read the key, run `enlist-agent reconcile` to close it; otherwise have an operator revoke the node, and enroll again",
    )
}

pub fn expiry(subject: &DoctorSubject) -> Check {
    const NAME: &str = "expiry";
    let Some(identity) = subject.identity() else {
        let why = if subject.is_absent() { ABSENT } else { "there is no certificate that can be used" };
        return Check::skipped(NAME, "identity", why);
    };
    let (now, facts) = (clock::now(), &identity.facts);
    if now < facts.not_before {
        let what = format!("the certificate is valid from {}, which is in the future", facts.not_before);
        return Check::bad(NAME, Class::ClockSkew, what).by_dates();
    }
    if identity.is_expired(now) {
        let ago = spoken(now.since(facts.not_after).millis());
        let what = format!("the certificate expired at {}, {ago} ago", facts.not_after);
        return Check::bad(NAME, Class::CertExpired, what).by_dates();
    }
    let left = spoken(facts.not_after.since(now).millis());
    let due = identity.renew_at();
    let renewal = due.map(|at| format!("; renewal is due at {at}")).unwrap_or_default();
    let check = Check::good(NAME, format!("{left} left, until {}{renewal}", facts.not_after));
    // A daemon waits for its turn and tries again, so that only half of the time that was left for it is too late.
    let late = |at: Timestamp| now.since(at) > facts.not_after.since(now);
    if !due.and_then(|at| Timestamp::parse(at).ok()).is_some_and(late) {
        return check;
    }
    let warning = match subject.daemon {
        None => "renewal is overdue and the daemon is not running: start `enlist-agent run`",
        Some(_) => "renewal is overdue: the log of `enlist-agent run` says why",
    };
    check.warn(warning).by_dates()
}

/// Only what is wrong with it.
pub fn config(subject: &DoctorSubject) -> Option<Check> {
    let fault = match &subject.config {
        Ok(config) => plan::servers(config).err()?,
        Err(fault) => fault.clone(),
    };
    if fault.code.agent() == Some(AgentCode::PlainHttpRefused) {
        return Some(Check::wrong("config", AgentCode::PlainHttpRefused, fault.message).with(fault.hint));
    }
    let mistakes: Vec<String> =
        fault.mistakes.iter().map(|mistake| format!("{}: {}", mistake.at, mistake.message)).collect();
    let evidence = if mistakes.is_empty() { fault.message.clone() } else { mistakes.join("; ") };
    let word = if mistakes.is_empty() { AgentCode::ConfigUnreadable } else { AgentCode::ConfigInvalid };
    Some(Check::wrong("config", word, evidence))
}

/// Several faults in one sentence, which has an end.
pub fn listed(faults: &[String]) -> String {
    let told = faults.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join("; ");
    match faults.len().saturating_sub(LISTED) {
        0 => told,
        more => format!("{told}; and {more} more"),
    }
}

/// As people read it.
fn amount(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{}.{} {unit}", bytes / size, bytes % size * 10 / size),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_said_as_people_say_it() {
        assert_eq!(amount(12), "12 B");
        assert_eq!(amount(1536), "1.5 KiB");
        assert_eq!(amount(5 << 30), "5.0 GiB");
    }

    #[test]
    fn a_file_is_no_place_for_diagnostics_nor_is_what_lies_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for place in [file.clone(), file.join("a/b")] {
            let error = writable(&place).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{}", place.display());
        }
        writable(&dir.path().join("a/b")).unwrap();
    }

    #[test]
    fn a_long_list_of_faults_has_an_end() {
        let faults: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(listed(&faults[..2]), "0; 1");
        assert_eq!(listed(&faults), "0; 1; 2; 3; 4; 5; 6; 7; and 2 more");
    }
}
