//! One process per data directory.

use crate::open_error::OpenError;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

const NAME: &str = "journal.lock";

/// Holds the directory until it is dropped.
#[derive(Debug)]
pub struct JournalLock(#[expect(dead_code, reason = "held for its lock")] File);

impl JournalLock {
    /// Makes the lock file if there is none.
    pub fn take(dir: &Path) -> Result<JournalLock, OpenError> {
        let path = dir.join(NAME);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        hold(dir, file.map_err(OpenError::io(&path))?)
    }

    /// Takes the lock only where its file exists, so that looking at a directory changes nothing in it.
    pub fn take_existing(dir: &Path) -> Result<Option<JournalLock>, OpenError> {
        let path = dir.join(NAME);
        match File::open(&path) {
            Ok(file) => hold(dir, file).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Io { path, source }),
        }
    }
}

fn hold(dir: &Path, file: File) -> Result<JournalLock, OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(JournalLock(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path: dir.join(NAME), source }),
    }
}
