//! Files that hold a secret: made new and readable by their owner only, and refused when others may read them.

use crate::error::{CommandError, Exit};
use crate::shell;
use pki::pem::{self, PemError};
use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Far more than any key, certificate or configuration file; a wrong file must not be read whole.
pub const MAX_BYTES: u64 = 64 * 1024;

/// Made before the key is, so that a place that cannot be written is known in time. One that is neither kept nor put in the place
/// of another file is removed.
pub struct PrivateFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl PrivateFile {
    /// Never over something that is there already: it may be another key.
    pub fn create(path: &Path) -> Result<Self, CommandError> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file, is_kept: false }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(CommandError::exists(path, "choose another path: keys are never overwritten"))
            }
            Err(error) => Err(CommandError::file(path, &error)),
        }
    }

    /// The same with the owner and mode of another file.
    pub fn create_like(path: &Path, like: &Path) -> Result<Self, CommandError> {
        let found = like.metadata().map_err(|error| CommandError::file(like, &error))?;
        let file = Self::create(path)?;
        file.copy_owner_and_mode(&found).map_err(|error| CommandError::file(path, &error))?;
        Ok(file)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        written.map_err(|error| CommandError::file(&self.path, &error))
    }

    /// It holds what it should, or what it holds is needed from now on.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    fn copy_owner_and_mode(&self, to: &Metadata) -> std::io::Result<()> {
        let made = self.file.metadata()?;
        if (made.uid(), made.gid()) != (to.uid(), to.gid()) {
            fchown(&self.file, Some(to.uid()), Some(to.gid()))?;
        }
        self.file.set_permissions(Permissions::from_mode(to.mode() & 0o777))
    }

    /// Puts it in the place of another file, at once.
    pub fn replace(mut self, path: &Path) -> Result<(), CommandError> {
        let failed = |error: std::io::Error| CommandError::file(path, &error);
        std::fs::rename(&self.path, path).map_err(failed)?;
        self.keep();
        sync_dir(path)
    }
}

/// Only this user, or root, may change what lies in the directory: elsewhere a name can be swapped for a link between two
/// steps.
pub fn own_directory(dir: &Path) -> Result<(), CommandError> {
    let found = dir.metadata().map_err(|error| CommandError::file(dir, &error))?;
    let writable = found.mode() & 0o022 != 0;
    if found.is_dir() && is_trusted(found.uid()) && !writable {
        return Ok(());
    }
    let message = format!("other users may change the directory {}", dir.display());
    let hint =
        "run the command as the user that owns the directory, with `chmod go-w` on it, or use another one";
    Err(CommandError::new(Exit::Fault, "directory_exposed", message, hint))
}

/// Lets one process at a time replace what lies in a directory, until this is closed: another one's half must not end up beside ours.
pub fn lock_directory(dir: &Path) -> Result<File, CommandError> {
    let held = File::open(dir).map_err(|error| CommandError::file(dir, &error))?;
    match held.try_lock() {
        Ok(()) => Ok(held),
        Err(TryLockError::WouldBlock) => {
            let message = format!("another process renews the certificate or the trust in {}", dir.display());
            Err(CommandError::new(Exit::Fault, "renewal_in_progress", message, "wait until it is done"))
        }
        Err(TryLockError::Error(error)) => Err(CommandError::file(dir, &error)),
    }
}

/// This user, or root, who can read everything anyway.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// A rename survives a power cut only once its directory is on disk.
pub fn sync_dir(path: &Path) -> Result<(), CommandError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| CommandError::file(dir, &error))
}

/// The content of a file that holds a secret. The mode is asked of the open file, links followed; a pipe has no
/// mode worth asking for. `otherwise` is what to do if the secret may have been read.
pub fn read(path: &Path, otherwise: &str) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let (bytes, is_exposed) = content(path)?;
    if is_exposed { Err(exposed(path, otherwise)) } else { Ok(bytes) }
}

/// The content of a file that may hold a secret, and whether others can read it.
pub fn read_and_judge(path: &Path) -> Result<(Zeroizing<Vec<u8>>, bool), CommandError> {
    content(path)
}

/// The same of a private key in PEM. A file without one is no secret that somebody may have read, whatever its mode: another file
/// was given in its place, and that is what the user has to know.
pub fn read_key(path: &Path, otherwise: &str) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let (bytes, is_exposed) = content(path)?;
    match pem::private_key(&bytes) {
        _ if is_exposed && holds(&bytes, "PRIVATE KEY-----") => Err(exposed(path, otherwise).into()),
        Err(_) if holds(&bytes, "-----BEGIN CERTIFICATE-----") => Err(KeyFileError::Certificate),
        Err(error) => Err(KeyFileError::Pem(error)),
        Ok(_) => Ok(bytes),
    }
}

/// Why there is no key to be had of a file.
pub enum KeyFileError {
    /// It cannot be read, or may have been read by others.
    File(CommandError),
    Certificate,
    Pem(PemError),
}

impl From<CommandError> for KeyFileError {
    fn from(error: CommandError) -> Self {
        Self::File(error)
    }
}

impl KeyFileError {
    /// As the failure of a command that has its own words for a file that holds no key.
    pub fn or_bad(self, bad: impl FnOnce(&dyn std::fmt::Display) -> CommandError) -> CommandError {
        match self {
            Self::File(error) => error,
            Self::Certificate => {
                bad(&"this is a certificate and no private key; the two files may have changed places")
            }
            Self::Pem(error) => bad(&error),
        }
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The refusal of a file that others may read.
pub fn exposed(path: &Path, otherwise: &str) -> CommandError {
    let owner = shell::other_owner(path).filter(|owner| !is_trusted(*owner));
    if let Some(owner) = owner {
        let (file, own) = (shell::quoted(path), shell::user(rustix::process::geteuid().as_raw()));
        let message = format!("{} belongs to another user ({})", path.display(), shell::user(owner));
        let hint = format!(
            "if nobody else has a copy, make it yours as root with `chown {own}: {file}` and `chmod 600 {file}`, and run it again; otherwise {otherwise}"
        );
        return CommandError::new(Exit::Fault, "key_exposed", message, hint);
    }
    let hint = format!(
        "if nobody did, close it with `chmod 600 {}` and run it again; otherwise {otherwise}",
        path.display()
    );
    let message = format!("others than this user may read {}", path.display());
    CommandError::new(Exit::Fault, "key_exposed", message, hint)
}

/// What a file holds, and whether others than this user may have read it.
fn content(path: &Path) -> Result<(Zeroizing<Vec<u8>>, bool), CommandError> {
    let unreadable = |error: &std::io::Error| unreadable(path, error);
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let found = file.metadata().map_err(|error| unreadable(&error))?;
    let is_exposed = found.is_file() && (found.mode() & 0o077 != 0 || !is_trusted(found.uid()));
    // Room for everything from the start: a buffer that grows leaves copies behind.
    let mut bytes =
        Zeroizing::new(Vec::with_capacity(usize::try_from(found.len().min(MAX_BYTES)).unwrap_or(0) + 1));
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    check_size(path, bytes.len()).map(|()| (bytes, is_exposed))
}

/// A file that was not read to its end is refused, not taken for what its beginning says.
pub fn check_size(path: &Path, read: usize) -> Result<(), CommandError> {
    if u64::try_from(read).is_ok_and(|read| read <= MAX_BYTES) {
        return Ok(());
    }
    let message = format!("{} is larger than {} KiB", path.display(), MAX_BYTES / 1024);
    Err(CommandError::usage(message, "check the path"))
}

pub fn unreadable(path: &Path, error: &std::io::Error) -> CommandError {
    let message = format!("{}: {error}", path.display());
    CommandError::usage(message, "name a file that exists and that this user may read")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(path: &Path) -> String {
        match read(path, "make another") {
            Ok(_) => "read".to_owned(),
            Err(failure) => failure.code().to_owned(),
        }
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused_also_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("key"), dir.path().join("link"));
        std::fs::write(&file, "secret").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (mode, expected) in [
            (0o600, "read"),
            (0o400, "read"),
            (0o700, "read"),
            (0o640, "key_exposed"),
            (0o604, "key_exposed"),
            (0o620, "key_exposed"),
        ] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!((code(&file), code(&link)), (expected.to_owned(), expected.to_owned()), "{mode:o}");
        }
        assert_eq!(code(&dir.path().join("none")), "usage");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_and_what_is_no_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let domain = lifecycle::names::TrustDomain::parse("test.example").unwrap();
        let at = lifecycle::names::Timestamp::from_secs(1_800_000_000);
        let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let certificate = pem::certificate_pem(&made.root_der);
        let both = format!("{}{certificate}", made.root_key_pem.as_str());
        let file = dir.path().join("file");
        for (text, closed, open) in [
            (made.root_key_pem.as_str(), "read", "key_exposed"),
            (&both, "read", "key_exposed"),
            (&certificate, "certificate", "certificate"),
            ("nothing", "pem", "pem"),
            (
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
                "pem",
                "key_exposed",
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            for (mode, expected) in [(0o600, closed), (0o644, open)] {
                std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
                let found = match read_key(&file, "make another") {
                    Ok(_) => "read".to_owned(),
                    Err(KeyFileError::Certificate) => "certificate".to_owned(),
                    Err(KeyFileError::Pem(_)) => "pem".to_owned(),
                    Err(KeyFileError::File(failure)) => failure.code().to_owned(),
                };
                assert_eq!(found, expected, "{mode:o} {text:.40}");
            }
        }
    }

    #[test]
    fn what_is_not_kept_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        PrivateFile::create(&path).unwrap().write(b"half").unwrap();
        assert!(!path.exists());
        let mut file = PrivateFile::create(&path).unwrap();
        file.write(b"whole").unwrap();
        file.keep();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert!(PrivateFile::create(&path).is_err(), "never over something that is there");
        assert_eq!(std::fs::read(&path).unwrap(), b"whole", "and that stays");
    }

    #[test]
    fn a_file_takes_the_place_of_another_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("a.new"), dir.path().join("a"));
        std::fs::write(&old, "old").unwrap();
        let mut file = PrivateFile::create(&new).unwrap();
        file.write(b"new").unwrap();
        file.replace(&old).unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"new");
        assert!(!new.exists());
    }
}
