//! A new certificate and key in the place of the old ones. `reach/certificate.rs` says in which order, and why a kill
//! between any two steps leaves a pair that works.

use crate::error::CommandError;
use crate::private_file::{PrivateFile, lock_directory, own_directory};
use crate::reach::certificate::ClientCertificate;
use crate::reach::pending_path;
use pki::agent_key::HostKey;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The two files, for one process at a time: another one's half must not end up beside ours.
pub struct ReplacementLock {
    cert: PathBuf,
    key: PathBuf,
    /// The key's directory, locked until it is closed.
    _held: File,
}

/// New files, waiting beside the old ones.
pub struct Replacement {
    lock: ReplacementLock,
    key: HostKey,
    key_file: PrivateFile,
    cert_file: PrivateFile,
}

impl Replacement {
    pub fn lock(cert: &Path, key: &Path) -> Result<ReplacementLock, CommandError> {
        // The files themselves, not links to them.
        let real =
            |path: &Path| path.canonicalize().map_err(|error| crate::private_file::unreadable(path, &error));
        let (cert, key) = (real(cert)?, real(key)?);
        if cert == key {
            let message = format!("{} holds both certificate and key", cert.display());
            return Err(CommandError::usage(
                message,
                "give --out DIR: the new ones are written there, a file each",
            ));
        }
        let dir = key.parent().unwrap_or(Path::new("/"));
        // Before anything is read or made there.
        for dir in [dir, cert.parent().unwrap_or(dir)] {
            own_directory(dir)?;
        }
        let held = lock_directory(dir)?;
        Ok(ReplacementLock { cert, key, _held: held })
    }
}

impl ReplacementLock {
    /// Before anyone is asked: a certificate whose key could not be kept would be of no use.
    pub fn prepare(self, presented: &ClientCertificate) -> Result<Replacement, CommandError> {
        let ReplacementLock { cert, key, .. } = &self;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: std::io::Error| CommandError::file(&path, &error)
        };
        if presented.path == pending_path(cert) {
            // A renewal was killed after it had replaced the key.
            std::fs::rename(pending_path(cert), cert).map_err(failed(cert))?;
        }
        for stale in [pending_path(cert), pending_path(key)] {
            let _ = std::fs::remove_file(stale);
        }
        let new = HostKey::generate().map_err(|error| CommandError::fault("key", error.to_string()))?;
        let mut key_file = create_like(key)?;
        key_file.write(new.to_pem().as_bytes())?;
        let cert_file = create_like(cert)?;
        Ok(Replacement { lock: self, key: new, key_file, cert_file })
    }
}

/// A file that waits beside this one, with its owner and mode.
fn create_like(path: &Path) -> Result<PrivateFile, CommandError> {
    PrivateFile::create_like(&pending_path(path), path)
}

impl Replacement {
    pub fn request(&self) -> Result<String, CommandError> {
        self.key.csr_pem().map_err(|error| CommandError::fault("key", error.to_string()))
    }

    /// Replaces both, once the new ones are known to belong together. Otherwise nothing is left of the new ones.
    pub fn finish<T>(
        mut self,
        chain: &str,
        fits: impl FnOnce(&Path, &[u8]) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let ReplacementLock { cert, key, .. } = &self.lock;
        self.cert_file.write(chain.as_bytes())?;
        let opened = fits(&pending_path(cert), self.key.to_pem().as_bytes())?;
        // From here on the key may be the new one, and then this is the certificate that fits it.
        self.cert_file.keep();
        self.key_file.replace(key)?;
        self.cert_file.replace(cert)?;
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn files(dir: &Path) -> (PathBuf, PathBuf) {
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert, "old certificate").unwrap();
        std::fs::write(&key, "old key").unwrap();
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        (cert, key)
    }

    fn presented(path: PathBuf) -> ClientCertificate {
        let domain = lifecycle::names::TrustDomain::parse("test.example").unwrap();
        let at = lifecycle::names::Timestamp::from_secs(1_800_000_000);
        let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]]).unwrap();
        ClientCertificate { path, facts: pki::describe::facts(&made.root_der).unwrap() }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn both_files_are_replaced_and_keep_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        std::fs::set_permissions(&cert, Permissions::from_mode(0o644)).unwrap();
        let lock = Replacement::lock(&cert, &key).unwrap();
        lock.prepare(&presented(cert.clone())).unwrap().finish("new certificate", |_, _| Ok(())).unwrap();
        assert_eq!(std::fs::read_to_string(&cert).unwrap(), "new certificate");
        assert!(std::fs::read_to_string(&key).unwrap().contains("PRIVATE KEY"));
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&cert), mode(&key)), (0o644, 0o600));
        assert_eq!(names(dir.path()), ["cert.pem", "key.pem"]);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        let lock = Replacement::lock(&cert, &key).unwrap();
        let files = lock.prepare(&presented(cert.clone())).unwrap();
        let refused = files.finish("another", |_, _| Err::<(), _>(CommandError::fault("no", "no")));
        assert!(refused.is_err());
        assert_eq!(std::fs::read_to_string(&key).unwrap(), "old key");
        assert_eq!(names(dir.path()), ["cert.pem", "key.pem"]);
    }

    #[test]
    fn a_renewal_that_was_killed_half_way_is_finished_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        std::fs::write(pending_path(&cert), "fits the key").unwrap();
        std::fs::write(pending_path(&key), "left behind").unwrap();
        let lock = Replacement::lock(&cert, &key).unwrap();
        drop(lock.prepare(&presented(pending_path(&cert))).unwrap());
        assert_eq!(std::fs::read_to_string(&cert).unwrap(), "fits the key");
        assert_eq!(names(dir.path()), ["cert.pem", "key.pem"]);
    }

    #[test]
    fn nothing_is_replaced_where_others_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Replacement::lock(&cert, &key).err().unwrap().code(), "directory_exposed");
        assert_eq!(names(dir.path()), ["cert.pem", "key.pem"]);
    }

    #[test]
    fn one_renewal_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        let held = Replacement::lock(&cert, &key).unwrap();
        assert_eq!(Replacement::lock(&cert, &key).err().unwrap().code(), "renewal_in_progress");
        drop(held);
        assert!(Replacement::lock(&cert, &key).is_ok());
        assert_eq!(Replacement::lock(&cert, &cert).err().unwrap().code(), "usage");
    }
}
