//! The agent's own directory: for this user alone, and for one command at a time.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::fault::Fault;

pub const DEFAULT: &str = "/var/lib/enlist-agent";

/// Directories that this program makes in its own.
const OURS: [&str; 8] =
    ["identity", "pending", "recovery", "diagnostics", "certs", "wireguard", ".pending.new", "lost+found"];

/// The directory, held by this process until dropped.
#[derive(Debug)]
pub struct Dir {
    path: PathBuf,
    _lock: File,
}

impl Dir {
    /// Makes the directory if need be, sees to its mode, and takes its lock.
    pub fn hold(path: &Path) -> Result<Self, Fault> {
        make(path).map_err(|error| unusable(path, &error))?;
        let handle = File::open(path).map_err(|error| unusable(path, &error))?;
        secure(path, &handle)?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: handle }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::host(
                "dir_in_use",
                format!("another enlist-agent is working in {}", path.display()),
                "if it is `enlist-agent run`, stop it first (`systemctl stop enlist-agent`), or give it the token (ENLIST_AGENT_TOKEN or token_file) and restart it: it enrolls by itself; otherwise wait until it is done",
            )),
            Err(error) => Err(unusable(path, &error.into())),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// A directory that others may enter or write is closed to them, if it is ours to close.
fn secure(path: &Path, handle: &File) -> Result<(), Fault> {
    let found = handle.metadata().map_err(|error| unusable(path, &error))?;
    if !found.is_dir() {
        return Err(unusable(path, &io::ErrorKind::NotADirectory.into()));
    }
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(Fault::host(
            "dir_not_ours",
            format!("{} belongs to user {}, and this is user {us}", path.display(), found.uid()),
            "run as the directory's owner, or change the owner with chown",
        ));
    }
    if found.mode() & 0o7077 == 0 {
        return Ok(());
    }
    // `--dir /etc`, typed by root, must not lock everyone else out of /etc.
    if found.mode() & 0o1000 != 0 || shared(path).map_err(|error| unusable(path, &error))? {
        return Err(Fault::host(
            "dir_not_private",
            format!("{} is open to others and does not look like a directory of its own", path.display()),
            "choose a directory for the agent alone, or close this one: chmod 0700",
        ));
    }
    let closed = handle.set_permissions(fs::Permissions::from_mode(0o700));
    closed.map_err(|error| unusable(path, &error))?;
    let was = found.mode() & 0o7777;
    tracing::warn!("{} was open to others (mode {was:04o}); it is now closed to them (0700)", path.display());
    Ok(())
}

/// Whether directories lie here that are none of ours.
fn shared(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !OURS.iter().any(|name| entry.file_name() == *name) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unusable(path: &Path, error: &io::Error) -> Fault {
    let hint = "name a directory with --dir that this user may make or owns";
    Fault::host("dir_unusable", format!("{} cannot be used: {error}", path.display()), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_directory_and_an_open_one_become_private() {
        let top = tempfile::tempdir().unwrap();
        let new = top.path().join("a/b/agent");
        Dir::hold(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
        fs::set_permissions(&new, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(new.join("agent.toml"), "").unwrap();
        fs::create_dir(new.join("identity")).unwrap();
        Dir::hold(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
    }

    #[test]
    fn a_directory_of_many_uses_is_left_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("someone-elses")).unwrap();
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Dir::hold(top.path()).unwrap_err().code, "dir_not_private");
        assert_eq!(mode(top.path()), 0o755);
    }

    #[test]
    fn two_commands_do_not_work_in_one_directory() {
        let top = tempfile::tempdir().unwrap();
        let first = Dir::hold(top.path()).unwrap();
        assert_eq!(Dir::hold(top.path()).unwrap_err().code, "dir_in_use");
        drop(first);
        Dir::hold(top.path()).unwrap();
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Dir::hold(file.path()).unwrap_err().code, "dir_unusable");
    }
}
