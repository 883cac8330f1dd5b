//! `trust_refused.json`: a CA or a trust bundle that was offered to this host and not taken, because nothing that it trusts
//! vouches for it. For `status` and `doctor`, which also answer without a daemon; nothing else depends on it.

use std::io;
use std::path::Path;

use lifecycle::names::Timestamp;
use serde::{Deserialize, Serialize};

use super::disk;

const NAME: &str = "trust_refused.json";
/// Of a sentence that is kept.
const SENTENCE: usize = 600;

/// What is true of every one of them.
pub const REMEDY: &str = "ask an operator whether the control plane was replaced; if it was, name its CA in agent.toml (recovery_ca_file) or use a repair bundle; if not, its issuing key is in other hands: revoke that issuer";

/// Of a root's revocation list that is not taken.
pub const LIST_REMEDY: &str = "ask an operator which list is the newest (`enlist ca show`): a control plane that was restored from a backup has to be given it again (`enlist ca import-crl`)";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRefused {
    /// RFC 3339.
    pub at: String,
    pub class: String,
    pub evidence: String,
    pub remedy: String,
}

pub fn read(dir: &Path) -> Option<TrustRefused> {
    let found: TrustRefused = serde_json::from_slice(&disk::read(&dir.join(NAME)).ok()?).ok()?;
    let short = |text: &str| text.chars().count() <= SENTENCE;
    [&found.at, &found.class, &found.evidence, &found.remedy].iter().all(|text| short(text)).then_some(found)
}

/// The first of a kind is kept, with its time.
pub fn keep(dir: &Path, class: &str, evidence: &str, at: Timestamp) -> io::Result<()> {
    let evidence: String = evidence.chars().take(SENTENCE).collect();
    if read(dir).is_some_and(|known| known.evidence == evidence) {
        return Ok(());
    }
    let refused =
        TrustRefused { at: at.to_string(), class: class.to_owned(), evidence, remedy: REMEDY.to_owned() };
    disk::replace(&dir.join(NAME), &serde_json::to_vec(&refused)?, disk::PUBLIC)
}

/// What was offered since was taken. Nothing is written if there is none, which is the rule.
pub fn clear(dir: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(dir.join(NAME)).is_err() {
        return Ok(());
    }
    disk::remove(&dir.join(NAME))?;
    disk::sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_known_until_another_was_taken() {
        let dir = tempfile::tempdir().unwrap();
        keep(dir.path(), "server_tls_untrusted", "a stranger", Timestamp::from_secs(1)).unwrap();
        keep(dir.path(), "server_tls_untrusted", "a stranger", Timestamp::from_secs(2)).unwrap();
        assert_eq!(read(dir.path()).unwrap().at, "1970-01-01T00:00:01Z");
        clear(dir.path()).unwrap();
        clear(dir.path()).unwrap();
        assert_eq!(read(dir.path()), None);
    }
}
