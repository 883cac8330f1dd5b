//! Walking the chain from its first line to the head in memory.

use super::chain::{self, LineFault};
use super::checkpoint::checkpoint_of;
use super::handle::open;
use crate::view::AuditHead;
use lifecycle::names::Fingerprint;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

/// What a walk over the trail found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    pub ok: bool,
    /// 0 if there is no line.
    pub first_seq: u64,
    pub last_seq: u64,
    /// The hash of the last line that was found good.
    pub head: Fingerprint,
    /// The last line that a checkpoint vouches for.
    pub checkpoint: Option<u64>,
    pub fault: Option<TrailFault>,
}

impl Verification {
    /// Something beside the trail is wrong, if nothing in it is.
    pub fn and(self, fault: Option<TrailFault>) -> Self {
        match fault {
            Some(fault) if self.ok => Self { ok: false, fault: Some(fault), ..self },
            Some(_) | None => self,
        }
    }

    /// A checkpoint that is known to have been made over line `seq` must be among those found.
    pub fn with_checkpoint(self, seq: u64) -> Self {
        if !self.ok || self.checkpoint.unwrap_or(0) >= seq {
            return self;
        }
        let fault = TrailFault::new(seq, format!("the checkpoint over line {seq} is missing"));
        Self { ok: false, fault: Some(fault), ..self }
    }
}

/// The first thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrailFault {
    pub seq: u64,
    pub what: String,
}

impl TrailFault {
    fn new(seq: u64, what: impl Into<String>) -> Self {
        Self { seq, what: what.into() }
    }

    fn missing(from: u64, to: u64) -> Self {
        let what = if from == to {
            format!("line {from} is missing")
        } else {
            format!("lines {from} to {to} are missing")
        };
        Self { seq: from, what }
    }
}

type CheckSignature<'a> = &'a dyn Fn(u64, &Fingerprint, &[u8]) -> bool;

struct TrailWalk<'a> {
    check_signature: CheckSignature<'a>,
    /// How far the chain must reach, and what it must end in there.
    head: AuditHead,
    first: u64,
    last: u64,
    hash: Fingerprint,
    checkpoint: Option<u64>,
}

pub(super) fn verify(file: &Path, head: AuditHead, check_signature: CheckSignature<'_>) -> Verification {
    let mut walk =
        TrailWalk { check_signature, head, first: 0, last: 0, hash: chain::origin(), checkpoint: None };
    let fault = walk.run(file).err();
    Verification {
        ok: fault.is_none(),
        first_seq: walk.first,
        last_seq: walk.last,
        head: walk.hash,
        checkpoint: walk.checkpoint,
        fault,
    }
}

impl TrailWalk<'_> {
    fn run(&mut self, file: &Path) -> Result<(), TrailFault> {
        if !file.exists() {
            return Err(TrailFault::new(1, "the store is missing"));
        }
        let connection = open(file).map_err(|error| self.unreadable(&error))?;
        self.lines(&connection)?;
        if self.last < self.head.seq {
            return Err(TrailFault::missing(self.last + 1, self.head.seq));
        }
        Ok(())
    }

    fn lines(&mut self, connection: &Connection) -> Result<(), TrailFault> {
        let sql = "SELECT seq, line FROM lines ORDER BY seq";
        let mut select = connection.prepare(sql).map_err(|error| self.unreadable(&error))?;
        let mut rows = select.query([]).map_err(|error| self.unreadable(&error))?;
        while let Some(row) = rows.next().map_err(|error| self.unreadable(&error))? {
            let seq: i64 = row.get(0).map_err(|error| self.unreadable(&error))?;
            let seq = u64::try_from(seq).map_err(|_| TrailFault::new(0, format!("there is a line {seq}")))?;
            // What is no text at all was changed as well.
            let line = row.get_ref(1).ok().and_then(|value| value.as_str().ok()).unwrap_or_default();
            self.line(seq, line)?;
            self.checkpoint(connection, seq, line)?;
        }
        Ok(())
    }

    fn line(&mut self, seq: u64, line: &str) -> Result<(), TrailFault> {
        if self.first == 0 {
            self.first = seq;
        }
        let expected = self.last + 1;
        if seq < expected {
            return Err(TrailFault::new(seq, format!("there is a line {seq} before the first")));
        }
        if seq > expected {
            return Err(TrailFault::missing(expected, seq - 1));
        }
        let changed = |seq| TrailFault::new(seq, format!("line {seq} was changed"));
        let hash = chain::check(line, seq, &self.hash).map_err(|fault| match fault {
            LineFault::Changed => changed(seq),
            LineFault::Detached if seq == 1 => changed(seq),
            LineFault::Detached => {
                let before = seq - 1;
                let what =
                    format!("line {before} or {seq} was rewritten: {seq} does not follow from {before}");
                TrailFault::new(before, what)
            }
        })?;
        if seq == self.head.seq && hash != self.head.head {
            return Err(changed(seq));
        }
        (self.last, self.hash) = (seq, hash);
        Ok(())
    }

    /// A checkpoint speaks about an earlier line, which by now is known to be whole.
    fn checkpoint(&mut self, connection: &Connection, seq: u64, line: &str) -> Result<(), TrailFault> {
        let Some(parsed) = checkpoint_of(line) else { return Ok(()) };
        let Ok(point) = parsed else {
            return Err(TrailFault::new(seq, format!("the checkpoint in line {seq} cannot be read")));
        };
        let line: Option<String> = connection
            .prepare_cached("SELECT line FROM lines WHERE seq = ?")
            .and_then(|mut select| select.query_row([point.seq], |row| row.get(0)).optional())
            .map_err(|error| self.unreadable(&error))?;
        let hash = match line {
            _ if point.seq == 0 => Some(chain::origin()),
            Some(line) if point.seq < seq => chain::read(&line, point.seq).ok().map(|(_, hash)| hash),
            _ => None,
        };
        if hash != Some(point.head) {
            let what = format!("the checkpoint in line {seq} does not match line {}", point.seq);
            return Err(TrailFault::new(seq, what));
        }
        if !(self.check_signature)(point.seq, &point.head, &point.signature) {
            return Err(TrailFault::new(
                seq,
                format!("the signature of the checkpoint in line {seq} is not valid"),
            ));
        }
        self.checkpoint = Some(point.seq);
        Ok(())
    }

    fn unreadable(&self, error: &rusqlite::Error) -> TrailFault {
        TrailFault::new(self.last + 1, format!("the store cannot be read after line {}: {error}", self.last))
    }
}
