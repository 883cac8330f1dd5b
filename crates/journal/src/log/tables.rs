//! The tables of `log.db`: entries by index, and a few values beside them.

use super::entry::{self, StoredEntry};
use crate::framing::Framing;
use crate::log_key::{NO_CODE, RowCode, RowPlace};
use crate::peer::Starts;
use crate::raft::{Entry, LogId, Vote};
use crate::schema::StoreSchema;
use crate::stored::RowFault;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub const FILE: &str = "log.db";
pub const SCHEMA: StoreSchema = StoreSchema(&[
    ("entries", "(idx INTEGER PRIMARY KEY, row BLOB NOT NULL)"),
    ("meta", "(key TEXT PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID"),
]);

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
    /// The last entry. Written with every append, so that a tail that is cut off is missed. None in a log that is empty, or
    /// of a version before authentication.
    #[serde(default)]
    pub head: Option<EntryMark>,
    /// The last entry that was purged, which the first one follows.
    #[serde(default)]
    pub base: Option<EntryMark>,
    /// A snapshot of another replica that was about to take the place of the log.
    #[serde(default)]
    pub installing: Option<u64>,
}

/// An entry by its index and its code: as each code is over the one before, that is the whole log up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryMark {
    pub index: u64,
    pub code: RowCode,
}

pub struct Tables {
    connection: Connection,
    framing: Framing,
    /// The code of the last entry, or of what was purged if there is none.
    after: RowCode,
}

impl Tables {
    /// For writing: every commit is on disk when it returns.
    pub fn open(connection: Connection, framing: Framing) -> Result<Self, TableError> {
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        // SQLite's own checkpoints, at 16 MiB: fewer of them than by default, and the file stays bounded.
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        SCHEMA.create(&connection)?;
        let mut tables = Self { connection, framing, after: NO_CODE };
        tables.after = tables.code_before(u64::MAX)?;
        Ok(tables)
    }

    /// For looking only.
    pub fn read_only(connection: Connection, framing: Framing) -> Self {
        Self { connection, framing, after: NO_CODE }
    }

    /// The lowest and the highest index there is, whatever they are.
    pub fn edges(&self) -> Result<Option<(i64, i64)>, TableError> {
        let sql = "SELECT min(idx), max(idx) FROM entries";
        let edges = self.connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (lowest, highest): (Option<i64>, Option<i64>) = edges?;
        Ok(lowest.zip(highest))
    }

    pub fn begin(&self) -> Result<(), TableError> {
        Ok(self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)?)
    }

    pub fn commit(&self) -> Result<(), TableError> {
        Ok(self.connection.prepare_cached("COMMIT")?.execute([]).map(drop)?)
    }

    /// The head is to be written after the last one of a transaction.
    pub fn insert(&mut self, entry: &Entry) -> Result<(), TableError> {
        let row = entry::encode(entry, &self.framing, &self.after)?;
        self.after = self.framing.code(&row);
        let mut insert = self.connection.prepare_cached("INSERT INTO entries (idx, row) VALUES (?, ?)")?;
        Ok(insert.execute(params![entry.log_id.index, row]).map(drop)?)
    }

    /// Says which entry is the last.
    pub fn put_head(&self, index: u64) -> Result<(), TableError> {
        match self.framing.is_authenticated() {
            true => self.put("head", &EntryMark { index, code: self.after }),
            false => Ok(()),
        }
    }

    /// Cuts the end off; gives the id of what is now the last entry.
    pub fn truncate(&mut self, from: u64) -> Result<Option<LogId>, TableError> {
        self.connection.execute("DELETE FROM entries WHERE idx >= ?", [from])?;
        self.after = self.code_before(u64::MAX)?;
        let last = self.last()?;
        match last.map(|id| id.index).or(self.base()?.map(|base| base.index)) {
            Some(index) => self.put_head(index)?,
            None => drop(self.connection.execute("DELETE FROM meta WHERE key = 'head'", [])?),
        }
        Ok(last)
    }

    /// Cuts the beginning off, and remembers what the rest follows.
    pub fn purge(&mut self, upto: &LogId) -> Result<(), TableError> {
        if self.framing.is_authenticated() {
            let code = self.row_code("SELECT row FROM entries WHERE idx = ?", upto.index)?;
            self.put("base", &EntryMark { index: upto.index, code: code.unwrap_or(NO_CODE) })?;
        }
        self.connection.execute("DELETE FROM entries WHERE idx <= ?", [upto.index])?;
        self.put_last_purged(upto)?;
        if self.last()?.is_none() {
            self.after = self.code_before(u64::MAX)?;
            self.put_head(upto.index)?;
        }
        Ok(())
    }

    fn base(&self) -> Result<Option<EntryMark>, TableError> {
        if self.framing.is_authenticated() { self.get("base") } else { Ok(None) }
    }

    /// The code that the entry at `index`, or the first one after it, follows.
    fn code_before(&self, index: u64) -> Result<RowCode, TableError> {
        let sql = "SELECT row FROM entries WHERE idx < ? ORDER BY idx DESC LIMIT 1";
        let before = self.row_code(sql, index)?;
        Ok(match before {
            Some(code) => code,
            None => self.base()?.map_or(NO_CODE, |base| base.code),
        })
    }

    fn row_code(&self, sql: &str, index: u64) -> Result<Option<RowCode>, TableError> {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query([index])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(self.framing.code(row.get_ref(0)?.as_blob().unwrap_or_default())))
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

    /// Decodes entry by entry while `visit` says so; each follows the one before.
    pub fn walk(
        &self,
        start: u64,
        end: u64,
        mut visit: impl FnMut(StoredEntry, usize) -> bool,
    ) -> Result<(), TableError> {
        let mut after = self.code_before(start)?;
        let sql = "SELECT idx, row FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx";
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query(params![start, i64::try_from(end).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let index: u64 = row.get(0)?;
            // What is not even bytes is as good as nothing.
            let bytes = row.get_ref(1)?.as_blob().unwrap_or_default();
            let stored: StoredEntry = self
                .framing
                .open(bytes, &entry::place(index, &after))
                .map_err(|fault| TableError::Entry { index, fault })?;
            after = self.framing.code(bytes);
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
    /// The last entry that is followed by rows of at least so many bytes.
    pub fn before_last(&self, bytes: u64) -> Result<Option<u64>, TableError> {
        let mut rows =
            self.connection.prepare_cached("SELECT idx, length(row) FROM entries ORDER BY idx DESC")?;
        let mut rows = rows.query([])?;
        let mut followed: u64 = 0;
        while let Some(row) = rows.next()? {
            let (index, length): (i64, i64) = (row.get(0)?, row.get(1)?);
            if followed >= bytes {
                return Ok(u64::try_from(index).ok());
            }
            followed = followed.saturating_add(u64::try_from(length).unwrap_or(0));
        }
        Ok(None)
    }

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

    pub fn put_installing(&self, index: u64) -> Result<(), TableError> {
        self.put("installing", &index)
    }

    pub fn put_audit_seq(&self, seq: u64) -> Result<(), TableError> {
        self.put("audit_seq", &seq)
    }

    /// One more start, on disk when this returns.
    pub fn begin_start(&self, incarnation: u64) -> Result<Starts, TableError> {
        let starts = self.get::<Starts>("starts")?.unwrap_or_default().begun(incarnation);
        self.put("starts", &starts)?;
        Ok(starts)
    }

    pub fn meta(&self) -> Result<LogMeta, TableError> {
        Ok(LogMeta {
            vote: self.get("vote")?,
            committed: self.get("committed")?,
            last_purged: self.get("last_purged")?,
            audit_seq: self.get("audit_seq")?.unwrap_or(0),
            installing: self.get("installing")?,
            head: if self.framing.is_authenticated() { self.get("head")? } else { None },
            base: self.base()?,
        })
    }

    fn put<T: Serialize>(&self, key: &'static str, value: &T) -> Result<(), TableError> {
        let row = self.framing.seal(value, &RowPlace::of(key))?;
        let mut put =
            self.connection.prepare_cached("INSERT OR REPLACE INTO meta (key, row) VALUES (?, ?)")?;
        Ok(put.execute(params![key, row]).map(drop)?)
    }

    fn get<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, TableError> {
        let mut get = self.connection.prepare_cached("SELECT row FROM meta WHERE key = ?")?;
        let row: Option<Vec<u8>> = get.query_row([key], |row| row.get(0)).optional()?;
        row.map(|row| {
            self.framing.open(&row, &RowPlace::of(key)).map_err(|fault| TableError::Meta { key, fault })
        })
        .transpose()
    }
}
