//! The tables of `log.db`: entries by index, and a few values beside them.

use super::entry::{self, StoredEntry};
use crate::raft::{Entry, LogId, Vote};
use crate::stored::{self, RowFault};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub const FILE: &str = "log.db";

/// Why the log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("{0}")]
    Database(#[from] rusqlite::Error),
    #[error("the entry at index {index}: {fault}")]
    Entry { index: u64, fault: RowFault },
    #[error("the value of {key}: {fault}")]
    Meta { key: &'static str, fault: RowFault },
    #[error("{0}")]
    Encode(#[from] rmp_serde::encode::Error),
}

/// The values beside the entries, each stored under its key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogMeta {
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
    pub last_purged: Option<LogId>,
    /// The last line that the audit store was known to hold: what is missing up to here was lost.
    pub audit_seq: u64,
}

pub struct Tables {
    connection: Connection,
}

impl Tables {
    /// For writing: every commit is on disk when it returns.
    pub fn open(connection: Connection) -> Result<Self, TableError> {
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        // SQLite's own checkpoints, at 16 MiB: fewer of them than by default, and the file stays bounded.
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS entries (idx INTEGER PRIMARY KEY, row BLOB NOT NULL);
             CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID;",
        )?;
        Ok(Self { connection })
    }

    /// For looking only.
    pub fn read_only(connection: Connection) -> Self {
        Self { connection }
    }

    pub fn begin(&self) -> Result<(), TableError> {
        Ok(self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)?)
    }

    pub fn commit(&self) -> Result<(), TableError> {
        Ok(self.connection.prepare_cached("COMMIT")?.execute([]).map(drop)?)
    }

    pub fn insert(&self, entry: &Entry) -> Result<(), TableError> {
        let row = entry::encode(entry)?;
        let mut insert = self.connection.prepare_cached("INSERT INTO entries (idx, row) VALUES (?, ?)")?;
        Ok(insert.execute(params![entry.log_id.index, row]).map(drop)?)
    }

    pub fn delete_from(&self, index: u64) -> Result<(), TableError> {
        Ok(self.connection.execute("DELETE FROM entries WHERE idx >= ?", [index]).map(drop)?)
    }

    pub fn delete_to(&self, index: u64) -> Result<(), TableError> {
        Ok(self.connection.execute("DELETE FROM entries WHERE idx <= ?", [index]).map(drop)?)
    }

    /// Entries of `[start, end)` in order, until about `limit` bytes were read; at least one if there is one.
    pub fn read(&self, start: u64, end: u64, limit: usize) -> Result<Vec<Entry>, TableError> {
        let mut entries = Vec::new();
        let mut size = 0;
        self.walk(start, end, |entry, bytes| {
            entries.push(Entry::from(entry));
            size += bytes;
            size < limit
        })?;
        Ok(entries)
    }

    /// Decodes entry by entry while `visit` says so.
    pub fn walk(
        &self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(StoredEntry, usize) -> bool,
    ) -> Result<(), TableError> {
        let sql = "SELECT idx, row FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx";
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query(params![start, i64::try_from(end).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let index: u64 = row.get(0)?;
            // What is not even bytes is as good as nothing.
            let bytes = row.get_ref(1)?.as_blob().unwrap_or_default();
            let stored: StoredEntry =
                stored::open(bytes).map_err(|fault| TableError::Entry { index, fault })?;
            if stored.index != index {
                let fault = RowFault::Undecodable(format!("it says that its index is {}", stored.index));
                return Err(TableError::Entry { index, fault });
            }
            if !visit(stored, bytes.len()) {
                break;
            }
        }
        Ok(())
    }

    /// The id of the last entry, if there is any.
    pub fn last(&self) -> Result<Option<LogId>, TableError> {
        let sql = "SELECT max(idx) FROM entries";
        let Some(index) = self.connection.query_row(sql, [], |row| row.get::<_, Option<u64>>(0))? else {
            return Ok(None);
        };
        let mut last = None;
        self.walk(index, index + 1, |entry, _| {
            last = Some(entry.log_id());
            true
        })?;
        Ok(last)
    }

    pub fn put_vote(&self, vote: &Vote) -> Result<(), TableError> {
        self.put("vote", vote)
    }

    pub fn put_committed(&self, committed: &LogId) -> Result<(), TableError> {
        self.put("committed", committed)
    }

    pub fn put_last_purged(&self, purged: &LogId) -> Result<(), TableError> {
        self.put("last_purged", purged)
    }

    pub fn put_audit_seq(&self, seq: u64) -> Result<(), TableError> {
        self.put("audit_seq", &seq)
    }

    pub fn meta(&self) -> Result<LogMeta, TableError> {
        Ok(LogMeta {
            vote: self.get("vote")?,
            committed: self.get("committed")?,
            last_purged: self.get("last_purged")?,
            audit_seq: self.get("audit_seq")?.unwrap_or(0),
        })
    }

    fn put<T: Serialize>(&self, key: &'static str, value: &T) -> Result<(), TableError> {
        let row = stored::seal(value)?;
        let mut put =
            self.connection.prepare_cached("INSERT OR REPLACE INTO meta (key, row) VALUES (?, ?)")?;
        Ok(put.execute(params![key, row]).map(drop)?)
    }

    fn get<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, TableError> {
        let mut get = self.connection.prepare_cached("SELECT row FROM meta WHERE key = ?")?;
        let row: Option<Vec<u8>> = get.query_row([key], |row| row.get(0)).optional()?;
        row.map(|row| stored::open(&row).map_err(|fault| TableError::Meta { key, fault })).transpose()
    }
}
