//! `DIR/checkpoint`: how far log and trail had come at the last checkpoint, authenticated with the log key. It lies beside
//! the stores, so that a store that was put back from an older copy is noticed.

use super::chain;
use crate::framing::Framing;
use crate::log_key::RowPlace;
use crate::open_error::OpenError;
use crate::readonly;
use crate::regular::{create_anew, read_small};
use crate::view::AuditHead;
use rusqlite::OptionalExtension;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const NAME: &str = "checkpoint";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LastCheckpoint {
    /// The last line of the trail, and its hash.
    pub audit: AuditHead,
    /// The last entry of the log that was applied.
    pub index: u64,
    /// Whether a copy was kept in another place, which has to be there at the next start.
    #[serde(default)]
    pub anchored: bool,
}

fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

impl LastCheckpoint {
    /// Whole and on disk when this returns, or as it was before.
    pub(crate) fn write(&self, dir: &Path, framing: &Framing) -> Result<(), OpenError> {
        let path = path(dir);
        let unfinished = path.with_extension("tmp");
        let row = framing.seal(self, &RowPlace::of(NAME)).map_err(std::io::Error::other);
        let put = || -> std::io::Result<()> {
            let mut file = create_anew(&unfinished)?;
            file.write_all(&row?)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)?;
            File::open(dir)?.sync_all()
        };
        put().map_err(OpenError::io(&path))
    }

    /// None where nothing is authenticated yet. In an authenticated directory it must be there.
    pub(crate) fn read(dir: &Path, framing: &Framing) -> Result<Option<Self>, OpenError> {
        if !framing.is_authenticated() {
            return Ok(None);
        }
        let path = path(dir);
        let row = match read_small(&path) {
            Ok(row) => row,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(OpenError::damaged(&path, None, "it is missing"));
            }
            Err(error) => return Err(OpenError::io(&path)(error)),
        };
        framing.open(&row, &RowPlace::of(NAME)).map(Some).map_err(|fault| OpenError::row(&path, None, &fault))
    }

    /// Whether a log that ends at `index` has come this far.
    pub(crate) fn check_log(&self, file: &Path, index: u64) -> Result<(), OpenError> {
        if index >= self.index {
            return Ok(());
        }
        let what = format!(
            "it ends at index {index}, but the last checkpoint was made at index {}: entries were removed, or an \
             older copy was put back",
            self.index
        );
        Err(OpenError::damaged(file, Some(index), what))
    }

    /// Whether the trail has the line that the checkpoint was made at. One that is missing may be written again by the log.
    pub(crate) fn check_line(&self, file: &Path) -> Result<(), OpenError> {
        if self.audit.seq == 0 || !file.exists() {
            return Ok(());
        }
        let line = readonly::open(file).and_then(|trail| {
            let sql = "SELECT line FROM lines WHERE seq = ?";
            trail.query_row(sql, [self.audit.seq], |row| row.get::<_, String>(0)).optional()
        });
        match line.map(|line| line.map(|line| chain::read(&line, self.audit.seq))) {
            // A store that cannot be read is for whoever opens it to name.
            Err(_) | Ok(None) => Ok(()),
            Ok(Some(Ok((_, hash)))) if hash == self.audit.head => Ok(()),
            Ok(Some(_)) => Err(OpenError::AuditDiffers { file: file.to_owned(), seq: self.audit.seq }),
        }
    }
}
