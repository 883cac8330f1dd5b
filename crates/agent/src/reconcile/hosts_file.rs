//! Reading and replacing a hosts file that belongs to the whole host.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;
use std::process;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, XattrFlags, flock};
use rustix::io::Errno;

use crate::chance;
use crate::store::disk;

/// Lists of names to be blocked are long; this is longer.
const MOST: u64 = 32 * 1024 * 1024;
/// What a labelled system goes by.
const LABEL: &str = "security.selinux";
/// How often, and after what pause, a file that another agent changes is asked for.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// What it holds; nothing if there is none.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    if file.take(MOST).read_to_end(&mut bytes)? as u64 == MOST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Makes of what it holds what it should hold, while no other agent does. All at once where that is possible, with
/// the mode and the owner that it has. A file that is mounted by itself, or lies where no other can be made, is written
/// in place.
pub fn change(path: &Path, settle: impl FnOnce(&[u8]) -> Vec<u8>) -> io::Result<()> {
    // A link leads to the file that counts.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    make(&path)?;
    let held = hold(&path);
    if held.is_some() {
        tidy(&path);
    }
    let before = read(&path)?;
    let after = settle(&before);
    if after == before {
        return Ok(());
    }
    match swap(&path, &after) {
        Err(error) if fits_in_place(&error) => in_place(&path, &before, &after),
        other => other,
    }
}

/// What does not exist cannot be held.
fn make(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    match disk::create(path, b"", disk::PUBLIC) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The file, for one agent at a time. Whoever may read it may hold it too, so it is not waited for without end: agents
/// that lose each other's lines put them back at their next look.
fn hold(path: &Path) -> Option<File> {
    for _ in 0..TRIES {
        let file = File::open(path).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Another may have taken its place while it was waited for.
            Ok(()) if is_at(&file, path) => return Some(file),
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
    None
}

fn is_at(file: &File, path: &Path) -> bool {
    let same = |file: fs::Metadata, path: fs::Metadata| (file.dev(), file.ino()) == (path.dev(), path.ino());
    file.metadata().ok().zip(fs::metadata(path).ok()).is_some_and(|(file, path)| same(file, path))
}

fn fits_in_place(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::BUSY | Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// Where it lies, and how the names of what is to take its place begin.
fn beside(path: &Path) -> io::Result<(&Path, String)> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok((path.parent().unwrap_or(Path::new("/")), format!(".{}.enlist-agent.", name.to_string_lossy())))
}

/// Removes what a crash left; what remains is only untidy.
fn tidy(path: &Path) {
    let Ok((parent, begin)) = beside(path) else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&begin) {
            _ = fs::remove_file(entry.path());
        }
    }
}

fn swap(path: &Path, after: &[u8]) -> io::Result<()> {
    let (parent, begin) = beside(path)?;
    // A name that no other agent has, should two come this far.
    let fresh = parent.join(format!("{begin}{}.{:08x}", process::id(), chance::number()));
    let written = fill(path, &fresh, after).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        _ = fs::remove_file(&fresh);
        return written;
    }
    disk::sync_dir(parent)
}

fn fill(path: &Path, fresh: &Path, after: &[u8]) -> io::Result<()> {
    let found = fs::metadata(path).ok();
    let mode = found.as_ref().map_or(disk::PUBLIC, |found| found.mode() & 0o7777);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(disk::SECRET).open(fresh)?;
    if let Some(found) = found {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
            fchown(&file, Some(found.uid()), Some(found.gid()))?;
        }
        label(path, &file);
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(after)?;
    file.sync_all()
}

/// Where there are labels, the new file has the old one's. Where there are none, nothing is lost.
fn label(path: &Path, file: &File) {
    let mut value = [0; 512];
    if let Ok(length) = rustix::fs::getxattr(path, LABEL, &mut value)
        && let Some(value) = value.get(..length)
    {
        _ = rustix::fs::fsetxattr(file, LABEL, value, XattrFlags::empty());
    }
}

/// Not all at once; what could not be written whole is put back.
fn in_place(path: &Path, before: &[u8], after: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let write = |bytes: &[u8]| {
        file.write_all_at(bytes, 0)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()
    };
    write(after).inspect_err(|_| _ = write(before))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn mode_and_link_survive_a_replacement() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("hosts.real"), dir.path().join("hosts"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        symlink(&file, &link).unwrap();
        change(&link, |before| [before, b" and new"].concat()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"old and new");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o664);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
    }

    #[test]
    fn a_missing_file_is_made_for_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        assert_eq!(read(&file).unwrap(), b"");
        change(&file, |_| b"new".to_vec()).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o644);
        assert!(read(dir.path()).is_err(), "a directory");
    }

    #[test]
    fn agents_that_change_it_at_once_lose_nothing_of_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        thread::scope(|scope| {
            for agent in 0..4 {
                let line = format!("10.0.0.{agent} n{agent}.example\n");
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..5 {
                        change(file, |before| [before, line.as_bytes()].concat()).unwrap();
                    }
                });
            }
        });
        fs::write(dir.path().join(".hosts.enlist-agent.1.00000000"), "of a crash").unwrap();
        change(&file, |before| before.to_vec()).unwrap();
        assert_eq!(read(&file).unwrap().split(|byte| *byte == b'\n').count(), 4 * 5 + 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn written_in_place_it_is_as_long_as_it_should_be() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        fs::write(&file, "a longer text").unwrap();
        let before = fs::metadata(&file).unwrap().ino();
        in_place(&file, b"a longer text", b"short").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"short");
        assert_eq!(fs::metadata(&file).unwrap().ino(), before);
    }
}
