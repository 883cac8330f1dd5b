//! The agent's own directory: for this user alone, and for one command at a time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, OFlags, flock};

use crate::code::AgentCode;
use crate::config::KeyStorage;
use crate::fault::Fault;
use crate::memory::MemoryStore;
use crate::run::socket;

pub const DEFAULT: &str = "/var/lib/enlist-agent";

/// Directories that this program makes in its own.
const OURS: [&str; 9] = [
    "identity",
    "pending",
    "recovery",
    "config",
    "diagnostics",
    "certs",
    "wireguard",
    ".pending.new",
    "lost+found",
];

/// The directory, held by this process until dropped.
#[derive(Debug)]
pub struct Dir {
    /// As the operator named it.
    place: PathBuf,
    /// What is kept instead of in it.
    memory: Option<MemoryStore>,
    socket: PathBuf,
    _locks: Vec<File>,
}

impl Dir {
    /// Makes the directory if need be, sees to its mode, and takes its lock.
    pub fn hold(path: &Path) -> Result<Self, Fault> {
        make(path).map_err(|error| unusable(path, &error))?;
        let handle = File::open(path).map_err(|error| unusable(path, &error))?;
        secure(path, &handle)?;
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self::held(path, Some(handle))),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use(path)),
            Err(error) => Err(unusable(path, &error.into())),
        }
    }

    /// For an agent that keeps nothing in it: it may be part of a read-only image, or not be there at all. Others must not
    /// be able to write there, since agent.toml names commands.
    pub fn hold_for_memory(path: &Path) -> Result<Self, Fault> {
        let handle = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::held(path, None)),
            handle => handle.map_err(|error| unusable(path, &error))?,
        };
        let found = handle.metadata().map_err(|error| unusable(path, &error))?;
        if !found.is_dir() {
            return Err(unusable(path, &io::ErrorKind::NotADirectory.into()));
        }
        owned(path, &found, &[us(), 0])?;
        if found.mode() & 0o022 != 0 {
            let what = format!("others than its owner may write in {}", path.display());
            return Err(Fault::host(AgentCode::DirNotPrivate, what, "close it: chmod go-w DIR"));
        }
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self::held(path, Some(handle))),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(in_use(path)),
            // A network file system may lock only what can be written. The socket's lock keeps a second agent away.
            Err(error) if !is_writable(path) => {
                tracing::debug!(%error, "{} cannot be locked", path.display());
                Ok(Self::held(path, None))
            }
            Err(error) => Err(unusable(path, &error.into())),
        }
    }

    fn held(place: &Path, lock: Option<File>) -> Self {
        let (place, socket) = (place.to_owned(), socket::path(place));
        Self { place, memory: None, socket, _locks: lock.into_iter().collect() }
    }

    /// Answers at another place than in the directory, which is then this process's as well.
    pub fn answer_at(mut self, socket: PathBuf) -> Result<Self, Fault> {
        if socket.parent() != Some(&self.place) {
            self._locks.push(lock_beside(&socket)?);
        }
        self.socket = socket;
        Ok(self)
    }

    pub fn keep_in(self, memory: MemoryStore) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// Where everything is kept.
    pub fn path(&self) -> &Path {
        self.memory.as_ref().map_or(&self.place, MemoryStore::path)
    }

    /// As the operator named it.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Where the daemon answers.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn storage(&self) -> KeyStorage {
        if self.memory.is_some() { KeyStorage::Memory } else { KeyStorage::Disk }
    }

    pub fn memory(&self) -> Option<&MemoryStore> {
        self.memory.as_ref()
    }
}

fn in_use(path: &Path) -> Fault {
    Fault::host(
        AgentCode::DirInUse,
        format!("another enlist-agent process uses {}", path.display()),
        "stop that process (`systemctl stop enlist-agent` if it is the service), or use another directory: --dir DIR",
    )
}

/// A lock of its own, since the directory of the socket may be another's.
fn lock_beside(socket: &Path) -> Result<File, Fault> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    let hint = "let `socket` in agent.toml name a file in a directory that this user may write, such as /run/enlist-agent/agent.sock";
    let failed =
        |error: io::Error| Fault::host(AgentCode::DirUnusable, format!("{}: {error}", path.display()), hint);
    if let Some(parent) = socket.parent().filter(|parent| !parent.exists()) {
        make(parent).map_err(failed)?;
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let lock = options.open(&path).map_err(failed)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::host(
            AgentCode::DirInUse,
            format!("another enlist-agent process answers at {}", socket.display()),
            "stop that process (`systemctl stop enlist-agent` if it is the service), or let `socket` in agent.toml name another path",
        )),
        Err(error) => Err(failed(error.into())),
    }
}

/// Whether this process could make a file there; nobody can on a read-only file system.
pub fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
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
    owned(path, &found, &[us()])?;
    if found.mode() & 0o7077 == 0 {
        return Ok(());
    }
    // `--dir /etc`, typed by root, must not lock everyone else out of /etc.
    if found.mode() & 0o1000 != 0 || shared(path).map_err(|error| unusable(path, &error))? {
        return Err(Fault::host(
            AgentCode::DirNotPrivate,
            format!("{} is open to other users and holds files that are not the agent's", path.display()),
            "choose a directory that only the agent uses, or close this one: chmod 0700",
        ));
    }
    let closed = handle.set_permissions(fs::Permissions::from_mode(0o700));
    closed.map_err(|error| unusable(path, &error))?;
    let was = found.mode() & 0o7777;
    tracing::warn!("{} was open to other users (mode {was:04o}); its mode is now 0700", path.display());
    Ok(())
}

/// Whether what stands in a directory may be acted upon: it is this user's, and so are the files in it that say what to
/// do. Root, who may write anywhere, would otherwise do what the directory's owner likes. What is missing is nobody's.
pub fn check_owner(path: &Path, files: &[&str]) -> Result<(), Fault> {
    let look = |path: &Path, found: io::Result<fs::Metadata>, users: &[u32]| match found {
        Ok(found) => owned(path, &found, users),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(path, &error)),
    };
    look(path, fs::metadata(path), &[us()])?;
    for file in files.iter().map(|name| path.join(name)) {
        // What root wrote binds everybody. Of a link, who made it counts as well.
        for found in [fs::symlink_metadata(&file), fs::metadata(&file)] {
            look(&file, found, &[us(), 0])?;
        }
    }
    Ok(())
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn owned(path: &Path, found: &fs::Metadata, users: &[u32]) -> Result<(), Fault> {
    if users.contains(&found.uid()) {
        return Ok(());
    }
    Err(Fault::host(
        AgentCode::DirNotOurs,
        format!("{} belongs to user {}, and this is user {}", path.display(), found.uid(), us()),
        "run the command as the owner of the directory, or change the owner with chown",
    ))
}

/// Whether directories lie here that are none of ours.
pub fn shared(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !OURS.iter().any(|name| entry.file_name() == *name) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn unusable(path: &Path, error: &io::Error) -> Fault {
    let hint = "name a directory with --dir that this user owns or may create";
    Fault::host(AgentCode::DirUnusable, format!("{} cannot be used: {error}", path.display()), hint)
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
        assert_eq!(Dir::hold(top.path()).unwrap_err().code.as_str(), "dir_not_private");
        assert_eq!(mode(top.path()), 0o755);
    }

    #[test]
    fn two_commands_do_not_work_in_one_directory() {
        let top = tempfile::tempdir().unwrap();
        let first = Dir::hold(top.path()).unwrap();
        let fault = Dir::hold(top.path()).unwrap_err();
        assert_eq!(fault.code.as_str(), "dir_in_use");
        assert!(fault.hint.contains("--dir") && !fault.hint.contains("token"), "{fault:?}");
        drop(first);
        Dir::hold(top.path()).unwrap();
    }

    #[test]
    fn what_is_ours_or_not_there_may_be_acted_upon() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("agent.toml"), "").unwrap();
        check_owner(top.path(), &["agent.toml", "gone"]).unwrap();
        check_owner(&top.path().join("gone"), &["agent.toml"]).unwrap();
    }

    #[test]
    fn what_is_anothers_may_not_be_acted_upon() {
        // Root may give away; anybody else has what is root's.
        let top = tempfile::tempdir().unwrap();
        let theirs = top.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        let given = std::os::unix::fs::chown(&theirs, Some(12345), None).is_ok();
        let theirs = if given { theirs.as_path() } else { Path::new("/") };
        assert_eq!(check_owner(theirs, &[]).unwrap_err().code.as_str(), "dir_not_ours");
        if given {
            fs::write(top.path().join("agent.toml"), "").unwrap();
            std::os::unix::fs::lchown(top.path().join("agent.toml"), Some(12345), None).unwrap();
            assert_eq!(check_owner(top.path(), &["agent.toml"]).unwrap_err().code.as_str(), "dir_not_ours");
        }
    }

    #[test]
    fn a_file_is_no_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Dir::hold(file.path()).unwrap_err().code.as_str(), "dir_unusable");
    }
}
