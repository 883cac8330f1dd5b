//! `DIR/audit.db`: where the state machine writes the lines.
//!
//! The Raft log is the durable copy, so the store is not synced at every line. After a restart the log is
//! applied again and produces the same lines again: those that are there are compared, those that are not are
//! written. Whether a missing line was lost or had never been written is told by `known`, the last line that
//! the store is known to have held.

use crate::schema::StoreSchema;
use lifecycle::registry::AuditGap;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;

pub const FILE: &str = "audit.db";
pub const SCHEMA: StoreSchema = StoreSchema(&[
    ("lines", "(seq INTEGER PRIMARY KEY, line TEXT)"),
    (
        "mark",
        "(id INTEGER PRIMARY KEY CHECK (id = 1), applied INTEGER NOT NULL, seq INTEGER NOT NULL, synced INTEGER NOT NULL)",
    ),
]);

/// Why a line cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    #[error("line {seq} of the audit store is not the line that the log produces")]
    Differs { seq: u64 },
    #[error("the audit store: {0}")]
    Database(#[from] rusqlite::Error),
}

#[derive(Debug)]
pub struct Store {
    connection: Connection,
    /// The highest line found when the store was opened; up to here lines are compared.
    found: u64,
    /// The last line it is known to have held.
    known: u64,
    /// First and last line that were lost and are older than the log.
    lost: Option<(u64, u64)>,
    /// First and last line that were lost and written again.
    refilled: Option<(u64, u64)>,
    /// Whether a transaction is open.
    begun: bool,
}

impl Store {
    /// `held` is the last line that the log or a snapshot knows the store to have held; `base` the last one
    /// that the log can no longer produce.
    pub fn open(file: &Path, held: u64, base: u64) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        SCHEMA.create(&connection)?;
        connection.execute("INSERT OR IGNORE INTO mark VALUES (1, 0, 0, 0)", [])?;
        // Two statements: each alone is a search by key, both together would be a scan.
        let edge = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Option<u64>>(0));
        let first = edge("SELECT min(seq) FROM lines")?;
        let found = edge("SELECT max(seq) FROM lines")?.unwrap_or(0);
        let mark: u64 = connection.query_row("SELECT seq FROM mark WHERE id = 1", [], |row| row.get(0))?;
        let lost = match first {
            _ if base == 0 => None,
            None => Some((1, base)),
            Some(first) if first > 1 => Some((1, base.min(first - 1))),
            Some(_) if found < base => Some((found + 1, base)),
            Some(_) => None,
        };
        let known = mark.max(held);
        Ok(Self { connection, found, known, lost, refilled: None, begun: false })
    }

    pub fn line(&self, seq: u64) -> Result<Option<String>, rusqlite::Error> {
        let mut select = self.connection.prepare_cached("SELECT line FROM lines WHERE seq = ?")?;
        select.query_row([seq], |row| row.get(0)).optional()
    }

    /// Writes a line, or finds that it is there already.
    pub fn put(&mut self, seq: u64, line: &str) -> Result<(), PutError> {
        if seq <= self.found {
            match self.line(seq)? {
                Some(there) if there == line => return Ok(()),
                Some(_) => return Err(PutError::Differs { seq }),
                None => {}
            }
        }
        if seq <= self.known {
            self.refilled = Some((self.refilled.map_or(seq, |(from, _)| from), seq));
        }
        if !self.begun {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            self.begun = true;
        }
        self.connection.prepare_cached("INSERT INTO lines VALUES (?, ?)")?.execute(params![seq, line])?;
        Ok(())
    }

    /// Ends what an entry wrote: the mark moves with the lines, so that a tail cut off later is missed.
    pub fn commit(&mut self, applied: u64, seq: u64) -> Result<(), PutError> {
        if std::mem::take(&mut self.begun) {
            let sql = "UPDATE mark SET applied = ?, seq = max(seq, ?) WHERE id = 1";
            self.connection.prepare_cached(sql)?.execute(params![applied, seq])?;
            self.connection.prepare_cached("COMMIT")?.execute([])?;
        }
        Ok(())
    }

    /// Puts everything written so far on disk. The counter makes the commit one that has something to sync.
    pub fn sync(&mut self) -> Result<(), PutError> {
        self.connection.pragma_update(None, "synchronous", "full")?;
        self.connection.execute("UPDATE mark SET synced = synced + 1 WHERE id = 1", [])?;
        self.connection.pragma_update(None, "synchronous", "normal")?;
        Ok(())
    }

    /// The first line beyond `seq`, which is the last one that the log has produced: nobody may add lines.
    pub fn beyond(&self, seq: u64) -> Option<u64> {
        (self.found > seq).then_some(seq + 1)
    }

    /// The last line before the first gap, and the last line of the gap, among those up to `until`.
    pub fn first_gap(&self, until: u64) -> Result<Option<(u64, u64)>, rusqlite::Error> {
        let sql = "SELECT count(*) FROM lines WHERE seq <= ?";
        let count: u64 = self.connection.prepare_cached(sql)?.query_row([until], |row| row.get(0))?;
        if count == until {
            return Ok(None);
        }
        let mut select =
            self.connection.prepare_cached("SELECT seq FROM lines WHERE seq <= ? ORDER BY seq")?;
        let mut rows = select.query([until])?;
        let mut before = 0;
        while let Some(row) = rows.next()? {
            let seq: u64 = row.get(0)?;
            if seq != before + 1 {
                return Ok(Some((before, seq - 1)));
            }
            before = seq;
        }
        Ok(Some((before, until)))
    }

    /// Keeps lines that were copied from a peer.
    pub fn refill(&mut self, first: u64, lines: &[String]) -> Result<(), PutError> {
        let copied = self.connection.transaction()?;
        for (seq, line) in (first..).zip(lines) {
            copied
                .prepare_cached("INSERT OR IGNORE INTO lines VALUES (?, ?)")?
                .execute(params![seq, line])?;
        }
        Ok(copied.commit()?)
    }

    /// What was missing at start. Lines that are lost for good weigh more than those that came back.
    pub fn gap(&self) -> Option<AuditGap> {
        let gap = |(from, to), refilled| AuditGap { from, to, refilled };
        self.lost.map(|range| gap(range, false)).or(self.refilled.map(|range| gap(range, true)))
    }
}
