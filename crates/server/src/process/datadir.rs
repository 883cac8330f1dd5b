//! The data directory: layout, version, lock, and files that are replaced whole.

use crate::edge::socket::user_name;
use journal::read_small;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The version of the store that this program writes.
pub const VERSION: u32 = 2;
/// The one before: nothing in its log is authenticated. It is taken in at the first start.
const BEFORE_LOG_KEY: u32 = 1;

/// Whose a data directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVersion {
    /// Of the version before: to be taken in.
    Older,
    Current,
}

#[derive(Debug, thiserror::Error)]
pub enum DirError {
    #[error("{} is not a data directory", .0.display())]
    Missing(PathBuf),
    #[error("{} is already a data directory", .0.display())]
    Exists(PathBuf),
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} was written by a newer version (store version {found}, this program knows {VERSION})", dir.display())]
    Newer { dir: PathBuf, found: u32 },
    #[error("{} holds no version number", .0.display())]
    Unversioned(PathBuf),
    #[error(
        "{} says in VERSION that it is of an older version, but holds the key of an authenticated log: somebody changed \
         VERSION", .0.display()
    )]
    MadeOlder(PathBuf),
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// What root wrote there, that user's service could not read any more.
    #[error("{} belongs to the user {owner}, and this command runs as root", dir.display())]
    NotOwned { dir: PathBuf, owner: String },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

impl DirError {
    /// One line on what to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            DirError::Missing(_) => {
                "check --dir, or make one: enlist server init --dir DIR --domain NAME --kek file:PATH; of one more replica of a \
                 cluster: enlist server join, as `enlist cluster token` prints it"
            }
            DirError::Exists(_) => {
                "choose another --dir, or run the control plane in this directory: enlist server run"
            }
            DirError::NotEmpty(_) => {
                "choose an empty directory, or remove what an interrupted init left behind"
            }
            DirError::Newer { .. } => "run the program version that wrote it, or a later one",
            DirError::Unversioned(_) => "restore the file VERSION from a backup; it holds one integer",
            DirError::MadeOlder(_) => "nothing was changed: restore the directory from a backup",
            DirError::InUse(_) => "stop the other process first; one process at a time may use it",
            DirError::NotOwned { .. } => "run the command as the user that the directory belongs to",
            DirError::Io { .. } => "check that the path exists and that this user may use it",
        }
    }
}

/// Paths inside a data directory.
#[derive(Debug, Clone)]
pub struct DataDir(PathBuf);

impl DataDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn config(&self) -> PathBuf {
        self.0.join("enlist.toml")
    }

    pub fn operator_socket(&self) -> PathBuf {
        self.0.join("operator.sock")
    }

    pub fn ca(&self, file: &str) -> PathBuf {
        self.0.join("ca").join(file)
    }

    pub fn keys(&self, file: &str) -> PathBuf {
        self.0.join("keys").join(file)
    }

    /// Whether a path is inside. Also through links, as far as they lead somewhere.
    pub fn contains(&self, path: &Path) -> bool {
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let parent = path.parent().unwrap_or(path);
        real(parent).starts_with(real(&self.0)) || real(path).starts_with(real(&self.0))
    }

    fn version(&self) -> PathBuf {
        self.0.join("VERSION")
    }

    /// Refuses what is not an initialised directory of a version that is known. Reads only.
    pub fn check_version(&self) -> Result<StoreVersion, DirError> {
        let path = self.version();
        let text = match read_small(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(if self.0.join("log.db").exists() && self.config().exists() {
                    DirError::Unversioned(self.0.clone())
                } else {
                    DirError::Missing(self.0.clone())
                });
            }
            Err(error) => return Err(DirError::Io { path, error }),
        };
        match String::from_utf8_lossy(&text).trim().parse::<u32>() {
            Ok(VERSION) => Ok(StoreVersion::Current),
            // While a directory is taken in, VERSION rises before the key comes to its place.
            Ok(BEFORE_LOG_KEY) if self.keys(crate::ca::log_key::FILE).exists() => {
                Err(DirError::MadeOlder(self.0.clone()))
            }
            Ok(BEFORE_LOG_KEY) => Ok(StoreVersion::Older),
            Ok(found) if found > VERSION => Err(DirError::Newer { dir: self.0.clone(), found }),
            _ => Err(DirError::Unversioned(self.0.clone())),
        }
    }

    /// Refuses to write as root into the directory of another user: that user's service could not read what root leaves there.
    pub fn check_owner(&self) -> Result<(), DirError> {
        let Ok(found) = self.0.metadata() else { return Ok(()) };
        if found.uid() == 0 || !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        Err(DirError::NotOwned { dir: self.0.clone(), owner: user_name(found.uid()) })
    }

    /// Refuses what is a data directory already, or holds anything but keys.
    pub fn check_new(&self) -> Result<(), DirError> {
        if self.version().exists() {
            return Err(DirError::Exists(self.0.clone()));
        }
        if let Ok(entries) = std::fs::read_dir(&self.0)
            && entries.flatten().any(|entry| entry.file_name() != "keys")
        {
            return Err(DirError::NotEmpty(self.0.clone()));
        }
        Ok(())
    }

    /// Makes the skeleton in a directory that is absent or empty (a `keys` folder may be there already). What it
    /// gives back can undo it.
    pub fn create(&self) -> Result<Traces, DirError> {
        self.check_owner()?;
        self.check_new()?;
        let traces = Traces {
            dir: self.0.clone(),
            is_kept: false,
            whole: !self.0.exists(),
            keys: !self.0.join("keys").exists(),
        };
        make_dir(&self.0, 0o750)?;
        make_dir(&self.0.join("keys"), 0o700)?;
        make_dir(&self.0.join("ca"), 0o755)?;
        Ok(traces)
    }

    /// The last step of making one: only now is it a data directory.
    pub fn write_version(&self) -> Result<(), DirError> {
        replace(&self.version(), format!("{VERSION}\n").as_bytes(), 0o644)
    }

    /// Takes the directory for this process; the lock ends with it. From here on, files that libraries make
    /// (the stores) are closed to others.
    pub fn lock(&self) -> Result<DirLock, DirError> {
        self.check_owner()?;
        rustix::process::umask(Mode::from(0o027));
        let path = self.0.join("lock");
        let io = |error: rustix::io::Errno| DirError::Io { path: path.clone(), error: error.into() };
        let file =
            rustix::fs::open(&path, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from(0o600))
                .map_err(io)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(DirError::InUse(self.0.clone())),
            Err(error) => Err(io(error)),
        }
    }
}

/// What making a directory added. It is taken away again when this is dropped, unless the directory was finished.
pub struct Traces {
    dir: PathBuf,
    is_kept: bool,
    /// Nothing was there.
    whole: bool,
    /// No `keys` folder was there.
    keys: bool,
}

impl Traces {
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    fn remove(&self) {
        if self.whole {
            let _ = std::fs::remove_dir_all(&self.dir);
            return;
        }
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name() != "keys" || self.keys {
                let _ =
                    if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            }
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if !self.is_kept {
            self.remove();
        }
    }
}

/// Held while a process uses the directory.
#[derive(Debug)]
pub struct DirLock {
    _file: std::os::fd::OwnedFd,
}

fn make_dir(path: &Path, mode: u32) -> Result<(), DirError> {
    let io = |error| DirError::Io { path: path.to_owned(), error };
    if !path.exists() {
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(io)?;
    }
    rustix::fs::chmod(path, Mode::from(mode)).map_err(|error| io(error.into()))
}

/// Replaces a file so that a reader, or a crash, sees the old or the new one, never a part.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), DirError> {
    let io = |error| DirError::Io { path: path.to_owned(), error };
    let part = path.with_extension("new");
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&part).map_err(io)?;
    // Exactly this mode, whatever the process's mask says.
    rustix::fs::fchmod(&file, Mode::from(mode)).map_err(|error| io(error.into()))?;
    file.write_all(bytes).map_err(io)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&part, path).map_err(io)?;
    if let Some(parent) = path.parent() {
        std::fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(io)?;
    }
    Ok(())
}
