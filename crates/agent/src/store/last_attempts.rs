//! `attempts.json`: how the last renewal and the last recovery ended, for whoever asks after a restart or without a
//! daemon. Nothing depends on it, so what cannot be written or read is left out.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::disk;
use crate::status::LastAttempt;

const NAME: &str = "attempts.json";
/// Longer than any word or id in it.
const WORD: usize = 128;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAttempts {
    #[serde(default)]
    pub last_renewal: Option<LastAttempt>,
    #[serde(default)]
    pub last_recovery: Option<LastAttempt>,
}

pub fn read(dir: &Path) -> LastAttempts {
    let bytes = disk::read(&dir.join(NAME)).unwrap_or_default();
    let found: LastAttempts = serde_json::from_slice(&bytes).unwrap_or_default();
    LastAttempts {
        last_renewal: found.last_renewal.filter(is_sound),
        last_recovery: found.last_recovery.filter(is_sound),
    }
}

pub fn keep(dir: &Path, attempts: &LastAttempts) -> io::Result<()> {
    disk::replace(&dir.join(NAME), &serde_json::to_vec(attempts)?, disk::SECRET)
}

/// They were another identity's.
pub fn forget(dir: &Path) -> io::Result<()> {
    disk::remove(&dir.join(NAME))
}

fn is_sound(attempt: &LastAttempt) -> bool {
    let class = attempt.class.as_deref().unwrap_or_default();
    [attempt.at.as_str(), class, attempt.correlation_id.as_str()].iter().all(|word| word.len() <= WORD)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn attempt(id: &str) -> LastAttempt {
        let class = Some("clock_skew".to_owned());
        LastAttempt { at: "2030-01-01T00:00:00Z".to_owned(), ok: false, class, correlation_id: id.to_owned() }
    }

    #[test]
    fn what_was_kept_is_found_again_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), LastAttempts::default());
        let both = LastAttempts { last_renewal: Some(attempt("a")), last_recovery: Some(attempt("b")) };
        keep(dir.path(), &both).unwrap();
        assert_eq!(read(dir.path()), both);
        assert_eq!(std::fs::metadata(dir.path().join(NAME)).unwrap().mode() & 0o7777, 0o600);
        let long = LastAttempts { last_renewal: Some(attempt(&"a".repeat(1000))), ..both.clone() };
        keep(dir.path(), &long).unwrap();
        assert_eq!(read(dir.path()), LastAttempts { last_renewal: None, ..both });
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert_eq!(read(dir.path()), LastAttempts::default());
        forget(dir.path()).unwrap();
        assert!(!dir.path().join(NAME).exists());
    }
}
