//! Files that hold a secret: made new and readable by their owner only, and refused when others may read them.

use crate::error::{CommandError, Exit};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Far more than any key, certificate or configuration file; a wrong file must not be read whole.
pub const MAX_BYTES: u64 = 64 * 1024;

/// Made before the key is, so that a place that cannot be written is known in time.
pub struct PrivateFile {
    path: PathBuf,
    file: File,
}

impl PrivateFile {
    /// Never over something that is there already: it may be another key.
    pub fn create(path: &Path) -> Result<Self, CommandError> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(CommandError::exists(path, "choose another path: keys are never overwritten"))
            }
            Err(error) => Err(CommandError::file(path, &error)),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        written.map_err(|error| CommandError::file(&self.path, &error))
    }

    /// For when what should have gone into it was not made.
    pub fn discard(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Gives it the owner and mode of another file.
    pub fn copy_owner_and_mode(&self, to: &Metadata) -> std::io::Result<()> {
        let made = self.file.metadata()?;
        if (made.uid(), made.gid()) != (to.uid(), to.gid()) {
            fchown(&self.file, Some(to.uid()), Some(to.gid()))?;
        }
        self.file.set_permissions(Permissions::from_mode(to.mode() & 0o777))
    }

    /// Puts it in the place of another file, at once.
    pub fn replace(self, path: &Path) -> Result<(), CommandError> {
        let failed = |error: std::io::Error| CommandError::file(path, &error);
        std::fs::rename(&self.path, path).map_err(failed)?;
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

/// This user, or root, who can read everything anyway.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// A rename survives a power cut only once its directory is on disk.
fn sync_dir(path: &Path) -> Result<(), CommandError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| CommandError::file(dir, &error))
}

/// The content of a file that holds a secret. The mode is asked of the open file, links followed; a pipe has no
/// mode worth asking for. `otherwise` is what to do if the secret may have been read.
pub fn read(path: &Path, otherwise: &str) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    let unreadable = |error: &std::io::Error| unreadable(path, error);
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    let found = file.metadata().map_err(|error| unreadable(&error))?;
    if found.is_file() && (found.mode() & 0o077 != 0 || !is_trusted(found.uid())) {
        let hint = format!(
            "if nobody did, close it with `chmod 600 {}` and run it again; otherwise {otherwise}",
            path.display()
        );
        let message = format!("others than this user may read {}", path.display());
        return Err(CommandError::new(Exit::Fault, "key_exposed", message, hint));
    }
    // Room for everything from the start: a buffer that grows leaves copies behind.
    let mut bytes =
        Zeroizing::new(Vec::with_capacity(usize::try_from(found.len().min(MAX_BYTES)).unwrap_or(0) + 1));
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    check_size(path, bytes.len()).map(|()| bytes)
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
