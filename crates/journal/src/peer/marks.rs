//! `DIR/peers`: what this replica has seen of the others, authenticated with the log key, so that one whose directory was put back
//! is noticed after a restart of this one too.

use super::starts::StartMark;
use crate::framing::Framing;
use crate::log_key::RowPlace;
use crate::open_error::OpenError;
use crate::regular::{create_anew, read_small};
use lifecycle::names::ReplicaId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const NAME: &str = "peers";

/// What was seen of one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMark {
    /// Its last start.
    pub start: StartMark,
    /// How far its log has come at least.
    pub reached: u64,
}

pub type PeerMarks = BTreeMap<ReplicaId, PeerMark>;

/// Where the marks are kept.
pub struct MarkFile {
    pub dir: PathBuf,
    pub framing: Framing,
}

impl MarkFile {
    /// Nothing where none were written.
    pub fn read(&self) -> Result<PeerMarks, OpenError> {
        let path = self.dir.join(NAME);
        let row = match read_small(&path) {
            Ok(row) => row,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(PeerMarks::new()),
            Err(error) => return Err(OpenError::io(&path)(error)),
        };
        let marks: Result<Vec<(ReplicaId, PeerMark)>, _> = self.framing.open(&row, &RowPlace::of(NAME));
        marks.map(PeerMarks::from_iter).map_err(|fault| OpenError::row(&path, None, &fault))
    }

    /// Whole and on disk when this returns, or as it was before.
    pub fn write(&self, marks: &PeerMarks) -> std::io::Result<()> {
        let path: &Path = &self.dir.join(NAME);
        let unfinished = path.with_extension("tmp");
        let marks: Vec<(&ReplicaId, &PeerMark)> = marks.iter().collect();
        let row = self.framing.seal(&marks, &RowPlace::of(NAME)).map_err(std::io::Error::other)?;
        let mut file = create_anew(&unfinished)?;
        file.write_all(&row)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        File::open(&self.dir)?.sync_all()
    }
}
