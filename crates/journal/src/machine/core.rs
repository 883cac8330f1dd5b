//! Applying: the registry decides, the trail records, a view is published. In that order, before the answer.

use crate::audit::{PutError, Store, chain};
use crate::batch::Batch;
use crate::raft::{Entry, LogId, StoredMembership};
use crate::snapshot::{Image, ImageMeta};
use crate::view::{AuditHead, Board, View};
use lifecycle::registry::{self, Answer, AuditGap, State};
use openraft::EntryPayload;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Why an entry could not be applied. This stops the replica: refusals are answers, not errors.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Audit(#[from] PutError),
    #[error("an audit line could not be written: {0}")]
    Line(String),
}

pub struct Core {
    pub(super) state: State,
    pub(super) applied: Option<LogId>,
    pub(super) membership: StoredMembership,
    pub(super) head: AuditHead,
    pub(super) audit: Store,
    pub(super) board: Arc<Board>,
    /// The last line in the store, for the log to remember.
    pub(super) audit_seq: Arc<AtomicU64>,
    /// Bytes of log applied since the last snapshot, how many are too many, and whom to tell.
    pub(super) since_snapshot: Arc<AtomicU64>,
    pub(super) snapshot_limit: u64,
    pub(super) snapshot_due: Arc<Notify>,
    /// The last entry with commands that was applied since the start.
    pub(super) last_commands: Option<u64>,
    /// Whether the store is known to hold every line up to the head.
    pub(super) lines_checked: bool,
    /// The line being written; kept for its memory.
    pub(super) line: Vec<u8>,
    /// Set by the first failure: what is in memory may be ahead of the store, so nothing more is applied.
    pub(super) failed: bool,
}

impl Core {
    /// One list of answers per entry. Entries without commands have none.
    pub fn apply(&mut self, entries: Vec<Entry>) -> Result<Vec<Vec<Answer>>, ApplyError> {
        if self.failed {
            return Err(ApplyError::Line("an earlier entry could not be applied".to_owned()));
        }
        let result = entries.into_iter().map(|entry| self.entry(entry)).collect();
        self.failed = Result::is_err(&result);
        if !self.failed {
            self.publish();
        }
        result
    }

    fn entry(&mut self, entry: Entry) -> Result<Vec<Answer>, ApplyError> {
        let mut answers = Vec::new();
        match &entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
            }
            EntryPayload::Normal(batch) => {
                answers = self.batch(batch)?;
                self.audit.commit(entry.log_id.index, self.head.seq)?;
                self.audit_seq.store(self.head.seq, Ordering::Release);
                self.last_commands = Some(entry.log_id.index);
            }
        }
        self.since_snapshot.fetch_add(crate::log::weight(&entry) as u64, Ordering::AcqRel);
        self.applied = Some(entry.log_id);
        Ok(answers)
    }

    fn batch(&mut self, batch: &Batch) -> Result<Vec<Answer>, ApplyError> {
        // Time never runs backwards, so all commands of a batch have the same effective time.
        let at = chain::moment(self.state.at.max(batch.at()));
        let mut answers = Vec::with_capacity(batch.items().len());
        for envelope in batch.envelopes() {
            let applied = registry::apply(&mut self.state, envelope, batch.at());
            for event in applied.events.iter().filter(|event| event.is_audited()) {
                let seq = self.head.seq + 1;
                let head = chain::compose(&mut self.line, seq, &at, event, envelope, &self.head.head)
                    .map_err(|error| ApplyError::Line(error.to_string()))?;
                let line =
                    std::str::from_utf8(&self.line).map_err(|error| ApplyError::Line(error.to_string()))?;
                self.audit.put(seq, line)?;
                self.head = AuditHead { seq, head };
            }
            answers.push(applied.answer);
        }
        Ok(answers)
    }

    fn publish(&self) {
        self.board.publish(self.view());
        if self.since_snapshot.load(Ordering::Acquire) >= self.snapshot_limit {
            self.snapshot_due.notify_one();
        }
    }

    fn view(&self) -> View {
        let applied_index = self.applied.map_or(0, |id| id.index);
        View { state: self.state.clone(), applied_index, audit: self.head }
    }

    /// What a snapshot made now would hold. The lines it stands on are on disk first: once there is a
    /// snapshot, the log that could produce them again may be purged.
    pub fn image(&mut self) -> Result<Image, PutError> {
        self.audit.sync()?;
        self.since_snapshot.store(0, Ordering::Release);
        let meta = ImageMeta {
            log_id: self.applied,
            membership: self.membership.clone(),
            audit: self.head,
            at: self.state.at,
        };
        Ok(Image { meta, state: self.state.clone() })
    }

    /// The same, if a snapshot that ends at `index` lacks commands. Not after a failure: what is in memory may be ahead of
    /// what is on disk.
    pub fn image_beyond(&mut self, index: Option<u64>) -> Result<Option<Image>, PutError> {
        if self.failed || self.last_commands <= index {
            return Ok(None);
        }
        self.image().map(Some)
    }

    /// The last line before those that the store lacks, and the last one of these. None if it lacks none up to the head.
    pub fn missing_lines(&mut self) -> Result<Option<(AuditHead, u64)>, PutError> {
        if self.lines_checked {
            return Ok(None);
        }
        let missing = self.audit.first_gap(self.head.seq)?;
        self.lines_checked = missing.is_none();
        let Some((before, until)) = missing else { return Ok(None) };
        let line = self.audit.line(before)?;
        let head = line.and_then(|line| chain::read(&line, before).ok()).map(|(_, hash)| hash);
        Ok(Some((AuditHead { seq: before, head: head.unwrap_or_else(chain::origin) }, until)))
    }

    /// Keeps lines that a peer gave, the first of which has this number.
    pub fn refill(&mut self, first: u64, lines: &[String]) -> Result<(), PutError> {
        self.audit.refill(first, lines)
    }

    /// Whether the line after this one hangs on it, or it is the head.
    pub fn joins(&mut self, held: AuditHead) -> Result<bool, PutError> {
        let seq = held.seq + 1;
        if held.seq >= self.head.seq {
            return Ok(held == self.head);
        }
        let next = self.audit.line(seq)?;
        Ok(next.is_none_or(|line| chain::check(&line, seq, &held.head).is_ok()))
    }

    /// Takes over a snapshot that came from the leader. Lines before its head are a peer's to give.
    pub fn install(&mut self, image: Image) {
        self.lines_checked = false;
        self.applied = image.meta.log_id;
        self.membership = image.meta.membership;
        self.head = image.meta.audit;
        self.state = image.state;
        self.since_snapshot.store(0, Ordering::Release);
        self.publish();
    }

    pub fn applied(&self) -> (Option<LogId>, StoredMembership) {
        (self.applied, self.membership.clone())
    }

    pub fn gap(&self) -> Option<AuditGap> {
        self.audit.gap()
    }

    /// The first line in the store that the log does not produce.
    pub fn audit_beyond(&self) -> Option<u64> {
        self.audit.beyond(self.head.seq)
    }

    pub fn sync(&mut self) -> Result<(), PutError> {
        self.audit.sync()
    }
}
