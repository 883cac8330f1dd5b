//! Writing so that a crash leaves either the old or the new, and no planted link is followed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

pub const SECRET: u32 = 0o600;
pub const PUBLIC: u32 = 0o644;
const PRIVATE_DIR: u32 = 0o700;
/// More than any file of this store.
const MAX_BYTES: u64 = 256 * 1024;

/// A new file, on disk when this returns. Anything of that name, a link too, is an error.
pub fn create(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // The umask may have taken bits away that others are meant to have.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A file put in the place of another of that name, all at once. A link there is replaced, not followed.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (parent, name) = split(path)?;
    let fresh = parent.join(format!(".{name}.new"));
    absent(fs::remove_file(&fresh))?;
    let written = create(&fresh, bytes, mode).and_then(|()| fs::rename(&fresh, path));
    // On a full disk, half a file would only take more of what is missing.
    written.inspect_err(|_| _ = fs::remove_file(&fresh))?;
    sync_dir(parent)
}

/// A file's content. A link in its place is an error.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn open(path: &Path) -> io::Result<File> {
    // Not blocking, for a pipe in a file's place would make us wait for its other end.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

/// A directory for this user alone. One that is there already is fine; a link in its place is not.
pub fn private_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(PRIVATE_DIR).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(path)?.is_dir() {
                return Ok(());
            }
            let message = format!("{} is in the way: it is not a directory", path.display());
            Err(io::Error::new(io::ErrorKind::NotADirectory, message))
        }
        made => made,
    }
}

/// Makes what was created, renamed or removed in a directory last.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes a directory with all in it, or a file; links are removed, not followed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => absent(fs::remove_dir_all(path)),
        Ok(_) => absent(fs::remove_file(path)),
        Err(error) => absent(Err(error)),
    }
}

/// What is not there needs no removing.
fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn split(path: &Path) -> io::Result<(&Path, &str)> {
    let name = path.file_name().and_then(|name| name.to_str());
    path.parent().zip(name).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file's path"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_planted_link_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("file"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        symlink(&victim, dir.path().join(".file.new")).unwrap();
        assert!(create(&path, b"x", SECRET).is_err());
        assert!(read(&path).is_err());
        replace(&path, b"ours", SECRET).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(read(&path).unwrap(), b"ours");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, SECRET);
    }

    #[test]
    fn a_link_is_no_directory_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, dir.path().join("identity")).unwrap();
        assert!(private_dir(&dir.path().join("identity")).is_err());
        private_dir(&dir.path().join("new")).unwrap();
        private_dir(&dir.path().join("new")).unwrap();
        remove(&dir.path().join("identity")).unwrap();
        assert!(elsewhere.exists());
        remove(&dir.path().join("identity")).unwrap();
    }
}
