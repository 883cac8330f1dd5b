//! What others may do with the trail.

use super::select::{self, Selection};
use super::verify::{self, TrailFault, Verification};
use crate::view::Board;
use lifecycle::names::{Fingerprint, Timestamp};
use rusqlite::{Connection, OpenFlags, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long a line that is in the store may be ahead of what has been told.
const SETTLE_TRIES: u32 = 40;
const SETTLE_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Why the trail cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .file.display())]
pub struct AuditStoreError {
    pub file: PathBuf,
    pub source: rusqlite::Error,
}

/// Reads the store by its path, each time anew: a file that was deleted or replaced is noticed, and what is
/// told is what an operator with `sqlite3` would see. Its functions block; call them off the async threads.
#[derive(Clone)]
pub struct Audit {
    file: PathBuf,
    board: Arc<Board>,
}

impl Audit {
    pub(crate) fn new(file: PathBuf, board: Arc<Board>) -> Self {
        Self { file, board }
    }

    /// Up to `limit` lines after `after_seq`, in order.
    pub fn list(&self, after_seq: u64, limit: usize) -> Result<Vec<String>, AuditStoreError> {
        let read = || -> Result<Vec<String>, rusqlite::Error> {
            let connection = open(&self.file)?;
            let sql = "SELECT line FROM lines WHERE seq > ? ORDER BY seq LIMIT ?";
            let after = i64::try_from(after_seq).unwrap_or(i64::MAX);
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let mut select = connection.prepare(sql)?;
            select.query_map(params![after, limit], |row| row.get(0))?.collect()
        };
        read().map_err(|source| self.failed(source))
    }

    /// The lines after `after` up to `until` with their numbers, in order: so many, of so many bytes in all; at least one
    /// if there is one.
    pub fn read(
        &self,
        (after, until): (u64, u64),
        (lines, bytes): (usize, usize),
    ) -> Result<Vec<(u64, String)>, AuditStoreError> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let read = || -> Result<Vec<(u64, String)>, rusqlite::Error> {
            let connection = open(&self.file)?;
            let mut select = connection
                .prepare("SELECT seq, line FROM lines WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?")?;
            let limit = i64::try_from(lines).unwrap_or(i64::MAX);
            let mut rows = select.query(params![number(after), number(until), limit])?;
            let (mut found, mut total) = (Vec::new(), 0_usize);
            while let Some(row) = rows.next()? {
                let line: String = row.get(1)?;
                total = total.saturating_add(line.len());
                if total > bytes && !found.is_empty() {
                    break;
                }
                found.push((row.get(0)?, line));
            }
            Ok(found)
        };
        read().map_err(|source| self.failed(source))
    }

    /// Up to `limit` lines of a selection with their numbers, in its order.
    pub fn select(&self, selection: &Selection, limit: usize) -> Result<Vec<(u64, String)>, AuditStoreError> {
        select::select(&self.file, selection, limit).map_err(|source| self.failed(source))
    }

    /// The number of the first line at or after a time, or the one after the last.
    pub fn first_since(&self, at: Timestamp) -> Result<u64, AuditStoreError> {
        select::first_since(&self.file, at).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> AuditStoreError {
        AuditStoreError { file: self.file.clone(), source }
    }

    /// Walks the whole chain, in bounded memory. `check_signature` is asked whether a checkpoint's signature
    /// over its sequence and head is good.
    pub fn verify(&self, check_signature: &dyn Fn(u64, &Fingerprint, &[u8]) -> bool) -> Verification {
        // Lines are written before the view is published: all up to this head must be there.
        let head = self.board.view().audit;
        let found = verify::verify(&self.file, head, check_signature);
        if found.ok && !self.reaches(found.last_seq) {
            let what = format!("line {} is not one that the log has produced", found.last_seq);
            return Verification {
                ok: false,
                fault: Some(TrailFault { seq: found.last_seq, what }),
                ..found
            };
        }
        found
    }

    /// Whether the log has come to this line, or does so in a moment: lines are written before they are told.
    fn reaches(&self, seq: u64) -> bool {
        (0..SETTLE_TRIES).any(|_| {
            let reached = seq <= self.board.view().audit.seq;
            if !reached {
                std::thread::sleep(SETTLE_PAUSE);
            }
            reached
        })
    }
}

pub(super) fn open(file: &Path) -> Result<Connection, rusqlite::Error> {
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}
