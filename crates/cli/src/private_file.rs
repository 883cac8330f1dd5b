//! Files that hold a key: made new, readable by their owner only.

use crate::failure::{Exit, Failure};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Made before the key is, so that a place that cannot be written is known in time.
pub struct PrivateFile {
    path: PathBuf,
    file: File,
}

impl PrivateFile {
    /// Never over something that is there already: it may be another key.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let message = format!("{} exists already", path.display());
                Err(Failure::new(
                    Exit::Usage,
                    "file_exists",
                    message,
                    "choose another path: keys are never overwritten",
                ))
            }
            Err(error) => Err(Failure::file(path, &error)),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_all());
        written.map_err(|error| Failure::file(&self.path, &error))
    }

    /// For when what should have gone into it was not made.
    pub fn discard(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
