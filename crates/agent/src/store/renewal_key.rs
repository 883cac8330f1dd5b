//! The key of a renewal under way, on disk before its request is sent.
//!
//! The control plane gives the same certificate again for the same key, so a crash between the request and its
//! answer costs nothing. The generation that the answer became is recognised by this key.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use pki::agent_key::HostKey;

use super::disk;

const NAME: &str = "renewal-key.pem";

/// The key of the renewal that was begun, or a new one.
pub fn resume_or_begin(dir: &Path) -> io::Result<HostKey> {
    if let Some(key) = read(dir) {
        return Ok(key);
    }
    let key = HostKey::generate().map_err(io::Error::other)?;
    disk::replace(&dir.join(NAME), key.to_pem().as_bytes(), disk::SECRET)?;
    Ok(key)
}

/// Nothing if there is none, or none that can be used: half-written, planted, or open to others.
pub fn read(dir: &Path) -> Option<HostKey> {
    let found = disk::open(&dir.join(NAME)).and_then(|file| file.metadata()).ok()?;
    if found.mode() & 0o077 != 0 {
        return None;
    }
    let bytes = zeroize::Zeroizing::new(disk::read(&dir.join(NAME)).ok()?);
    HostKey::from_pem(&bytes).ok()
}

/// Once its certificate is in use, or was refused.
pub fn remove(dir: &Path) -> io::Result<()> {
    disk::remove(&dir.join(NAME))?;
    disk::sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_same_key_is_found_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let first = resume_or_begin(dir.path()).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join(NAME)).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(resume_or_begin(dir.path()).unwrap().spki(), first.spki());
        remove(dir.path()).unwrap();
        assert_ne!(resume_or_begin(dir.path()).unwrap().spki(), first.spki());
    }

    #[test]
    fn a_planted_or_broken_key_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        let planted = HostKey::generate().unwrap();
        std::fs::write(&elsewhere, planted.to_pem().as_bytes()).unwrap();
        symlink(&elsewhere, dir.path().join(NAME)).unwrap();
        assert_ne!(resume_or_begin(dir.path()).unwrap().spki(), planted.spki());
        std::fs::write(dir.path().join(NAME), "half a k").unwrap();
        assert!(read(dir.path()).is_none());
        resume_or_begin(dir.path()).unwrap();
        assert!(read(dir.path()).is_some());
    }
}
