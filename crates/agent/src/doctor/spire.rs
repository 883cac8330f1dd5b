//! What this host has instead of an enrollment: an SVID, and the bootstrap identity of its image. Each is listed only where the
//! settings name it.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use tokio::time::timeout;

use super::check::Check;
use super::subject::DoctorSubject;
use crate::code::AgentCode;
use crate::{bootstrap, clock, spire};

const PATIENCE: Duration = Duration::from_secs(5);
const MODE: &str =
    "others may read the key of the bootstrap identity: close it with chmod 0600, in the image too";
const UNUSED: &str = "if SPIRE gives none, this host goes on with its own certificate";

/// Asked as the user who runs the command; SPIRE may give another answer to the daemon's.
pub async fn examine(subject: &DoctorSubject) -> Option<Check> {
    const NAME: &str = "spire";
    let config = subject.config.as_ref().ok()?.spire.as_ref()?;
    let socket = config.socket.display();
    let what = match timeout(PATIENCE, spire::look(config)).await {
        Ok(Ok(svid)) if svid.term.is_usable(clock::now()) => {
            let id = svid.facts.id;
            return Some(Check::good(NAME, format!("{socket}: {id}, valid until {}", svid.facts.not_after)));
        }
        Ok(Ok(svid)) => format!("{socket}: the SVID is not valid now: it ends at {}", svid.facts.not_after),
        Ok(Err(error)) => format!("{socket}: no SVID: {error}"),
        Err(_) => format!("{socket}: no SVID within {} s", PATIENCE.as_secs()),
    };
    Some(match subject.identity() {
        Some(_) => Check::good(NAME, what).warn(format!("{}; {UNUSED}", AgentCode::SvidMissing.remedy())),
        None => Check::wrong(NAME, AgentCode::SvidMissing, what),
    })
}

pub fn bootstrap(subject: &DoctorSubject) -> Option<Check> {
    const NAME: &str = "bootstrap";
    let dir = subject.config.as_ref().ok()?.bootstrap_dir.as_ref()?;
    let at = dir.display();
    let check = match bootstrap::load(dir, clock::now()) {
        Ok(found) => Check::good(NAME, format!("{at}: certificate valid until {}", found.facts.not_after)),
        // It is read no more.
        Err(reason) if subject.identity().is_some() => {
            Check::good(NAME, format!("{at}: not in use; {reason}"))
        }
        Err(reason) => {
            return Some(Check::wrong(NAME, AgentCode::BootstrapUnusable, format!("{at}: {reason}")));
        }
    };
    let is_open = std::fs::metadata(bootstrap::key_file(dir)).is_ok_and(|found| found.mode() & 0o077 != 0);
    Some(if is_open { check.warn(MODE) } else { check })
}
