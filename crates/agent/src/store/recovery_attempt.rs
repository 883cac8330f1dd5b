//! `recovery/attempt.json`: a recovery under way, on disk before its request is sent.
//!
//! The control plane gives the same certificate again for the same token or machine and key, so a crash between the request and
//! its answer costs nothing. The id of the undertaking outlives a restart with it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pki::agent_key::HostKey;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use super::{disk, recovery};
use crate::token::SecretToken;

const NAME: &str = "attempt.json";
/// In place of a token's hash, which is never this.
const HARDWARE: &str = "hardware";

#[derive(Debug)]
pub struct RecoveryAttempt {
    pub key: HostKey,
    pub correlation_id: String,
    /// SHA-256 of the token that goes with it, or [`HARDWARE`].
    pub token_hash: String,
}

#[derive(Serialize, Deserialize)]
struct AttemptFile {
    correlation_id: String,
    token_hash: String,
    key: String,
}

impl Drop for AttemptFile {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// The recovery that was begun with this token, or a new one of this undertaking.
pub fn resume_or_begin(dir: &Path, token: &SecretToken, correlation_id: &str) -> io::Result<RecoveryAttempt> {
    resume_or_begin_with(dir, token.digest(), correlation_id)
}

/// The same by the hardware of the machine, without a token.
pub fn resume_or_begin_by_hardware(dir: &Path, correlation_id: &str) -> io::Result<RecoveryAttempt> {
    resume_or_begin_with(dir, HARDWARE.to_owned(), correlation_id)
}

fn resume_or_begin_with(dir: &Path, token_hash: String, correlation_id: &str) -> io::Result<RecoveryAttempt> {
    if let Some(found) = read(dir).filter(|found| found.token_hash == token_hash) {
        return Ok(found);
    }
    let key = HostKey::generate().map_err(io::Error::other)?;
    let attempt = RecoveryAttempt { key, correlation_id: correlation_id.to_owned(), token_hash };
    let written = AttemptFile {
        correlation_id: attempt.correlation_id.clone(),
        token_hash: attempt.token_hash.clone(),
        key: attempt.key.to_pem().to_string(),
    };
    disk::private_dir(&recovery::place(dir))?;
    let bytes = Zeroizing::new(serde_json::to_vec(&written)?);
    disk::replace(&place(dir), &bytes, disk::SECRET)?;
    Ok(attempt)
}

/// Nothing if there is none, or none that can be used: half-written, planted, or open to others.
pub fn read(dir: &Path) -> Option<RecoveryAttempt> {
    let found = disk::open(&place(dir)).and_then(|file| file.metadata()).ok()?;
    if found.mode() & 0o077 != 0 {
        return None;
    }
    let bytes = Zeroizing::new(disk::read(&place(dir)).ok()?);
    let written: AttemptFile = serde_json::from_slice(&bytes).ok()?;
    let key = HostKey::from_pem(written.key.as_bytes()).ok()?;
    let (correlation_id, token_hash) = (written.correlation_id.clone(), written.token_hash.clone());
    Some(RecoveryAttempt { key, correlation_id, token_hash })
}

/// Once its certificate is in use, or was refused.
pub fn remove(dir: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(place(dir)).is_err() {
        return Ok(());
    }
    disk::remove(&place(dir))?;
    disk::sync_dir(&recovery::place(dir))
}

fn place(dir: &Path) -> PathBuf {
    recovery::place(dir).join(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> SecretToken {
        SecretToken::new(Zeroizing::new(text.to_owned())).unwrap()
    }

    #[test]
    fn the_same_token_finds_the_same_key_and_undertaking_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let first = resume_or_begin(dir.path(), &token("hush-hush"), "u-1").unwrap();
        let again = resume_or_begin(dir.path(), &token("hush-hush"), "u-2").unwrap();
        assert_eq!((again.key.spki(), again.correlation_id.as_str()), (first.key.spki(), "u-1"));
        let text = std::fs::read_to_string(place(dir.path())).unwrap();
        assert!(!text.contains("hush"));
        assert_eq!(std::fs::metadata(place(dir.path())).unwrap().mode() & 0o7777, 0o600);
        let other = resume_or_begin(dir.path(), &token("another"), "u-3").unwrap();
        assert_ne!(other.key.spki(), first.key.spki());
        remove(dir.path()).unwrap();
        remove(dir.path()).unwrap();
        assert!(read(dir.path()).is_none());
    }
}
