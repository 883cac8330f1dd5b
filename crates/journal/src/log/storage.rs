//! The log as openraft sees it.

use super::tables::{FILE, TableError, Tables};
use super::tail::Tail;
use super::writer::{LogJob, Writer};
use crate::lock::JournalLock;
use crate::open_error::OpenError;
use crate::options::Options;
use crate::peer::Starts;
use crate::raft::{Entry, LogId, StorageError, TypeConfig, Vote};
use crate::snapshot::SnapshotDir;
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{AnyError, OptionalSend, RaftLogReader, StorageIOError};
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use tokio::sync::{oneshot, watch};

/// How much one read for a peer returns at most.
const READ_BYTES: usize = 2 * 1024 * 1024;

/// A handle; cloning it costs two pointers.
#[derive(Clone)]
pub struct LogStore {
    tail: Arc<Mutex<Tail>>,
    jobs: mpsc::Sender<LogJob>,
    starts: Arc<Starts>,
    installs: Arc<SnapshotInstalls>,
}

/// Snapshots of other replicas on their way into this directory.
struct SnapshotInstalls {
    /// Where they are kept; none where a log is used alone.
    dir: OnceLock<SnapshotDir>,
    /// Changes whenever one is there; true once one could not be installed, after which nothing is.
    failed: watch::Sender<bool>,
}

/// Opens the log for writing and starts its thread.
pub fn start(
    options: &Options,
    audit_seq: Arc<AtomicU64>,
    lock: Option<Arc<JournalLock>>,
) -> Result<LogStore, OpenError> {
    let file = options.dir.join(FILE);
    let broken = |error: TableError| match error {
        TableError::Database(error) => OpenError::database(&file)(error),
        other => OpenError::damaged(&file, None, other.to_string()),
    };
    let connection = rusqlite::Connection::open(&file).map_err(OpenError::database(&file))?;
    let tables = Tables::open(connection, options.framing()).map_err(broken)?;
    let meta = tables.meta().map_err(broken)?;
    let last = tables.last().map_err(broken)?.max(meta.last_purged);
    let starts = match &options.peers {
        Some(peers) => tables.begin_start(peers.incarnation).map_err(broken)?,
        None => Starts::default(),
    };
    let written = (meta.committed, meta.audit_seq);
    let tail = Arc::new(Mutex::new(Tail::new(meta, last)));
    let writer = Writer {
        tables,
        slow_fsync: options.slow_fsync,
        audit_seq,
        written,
        broken: None,
        begun: false,
        tail: Arc::clone(&tail),
        lock,
    };
    let (jobs, inbox) = mpsc::channel();
    writer.start(inbox).map_err(OpenError::io(&file))?;
    let installs = SnapshotInstalls { dir: OnceLock::new(), failed: watch::Sender::new(false) };
    Ok(LogStore { tail, jobs, starts: Arc::new(starts), installs: Arc::new(installs) })
}

impl LogStore {
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn last_index(&self) -> Option<u64> {
        self.tail().last.map(|id| id.index)
    }

    /// From now on nothing is purged that no snapshot in this directory holds.
    pub fn purges_behind(&self, snapshots: SnapshotDir) {
        // Set once at start.
        let _ = self.installs.dir.set(snapshots);
    }

    /// A snapshot of another replica is on disk, or could not be kept.
    pub fn installed(&self, kept: bool) {
        self.installs.failed.send_modify(|failed| *failed |= !kept);
    }

    /// Waits for the snapshot that holds what is to be purged: openraft asks for the purge while it is still being installed.
    async fn held_by_snapshot(&self, index: u64) -> Result<(), AnyError> {
        let Some(snapshots) = self.installs.dir.get() else { return Ok(()) };
        let mut installs = self.installs.failed.subscribe();
        loop {
            let failed = *installs.borrow_and_update();
            let indexes = snapshots.indexes().map_err(|error| AnyError::new(&error))?;
            if indexes.first().is_some_and(|newest| *newest >= index) {
                return Ok(());
            }
            if failed || installs.changed().await.is_err() {
                return Err(AnyError::error("the snapshot that was to take its place is not there"));
            }
        }
    }

    /// The starts of this directory, this one included.
    pub fn starts(&self) -> &Starts {
        &self.starts
    }

    pub fn vote(&self) -> Option<Vote> {
        self.tail().meta.vote
    }

    /// Writes what is still only in memory and closes the file.
    pub async fn close(&self) -> Result<(), String> {
        let committed = self.tail().meta.committed;
        let (done, closed) = oneshot::channel();
        if self.jobs.send(LogJob::Close { committed, done }).is_err() {
            return Ok(());
        }
        closed.await.map_or(Ok(()), |result| result.map_err(|error| error.to_string()))
    }

    /// A snapshot of this index is about to take the place of the log up to there.
    pub async fn installing(&self, index: u64) -> Result<(), StorageError> {
        let noted = self.ask(|done| LogJob::Installing { index, done }).await;
        noted.map_err(|error| StorageIOError::write_logs(error).into())
    }

    /// The last entry that is followed by at least so many bytes of others; none if there is none.
    pub async fn before_last(&self, bytes: u64) -> Result<Option<u64>, String> {
        let found = self.ask(|done| LogJob::BeforeLast { bytes, done }).await;
        found.map_err(|error| error.to_string())
    }

    async fn ask<T>(&self, job: impl FnOnce(super::writer::JobReply<T>) -> LogJob) -> Result<T, AnyError> {
        let (done, answer) = oneshot::channel();
        let gone = || AnyError::error("the log's thread has ended");
        self.jobs.send(job(done)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?.map_err(|error| AnyError::new(error.as_ref()))
    }

    async fn read(&self, start: u64, end: u64, limit: usize) -> Result<Vec<Entry>, StorageError> {
        let (first, held) = {
            let tail = self.tail();
            (tail.first().unwrap_or(end), tail.slice(start, end))
        };
        if start >= end || first <= start {
            return Ok(held);
        }
        let upto = first.min(end);
        let read = self.ask(|done| LogJob::Read { start, end: upto, limit, done }).await;
        let mut entries = read.map_err(StorageIOError::read_logs)?;
        let cut_short = entries.last().is_some_and(|entry| entry.log_id.index + 1 < upto);
        if !cut_short {
            entries.extend(held);
        }
        Ok(entries)
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(index) => index.saturating_add(1),
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        self.read(start, end, READ_BYTES).await
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let tail = self.tail();
        Ok(LogState { last_purged_log_id: tail.meta.last_purged, last_log_id: tail.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.ask(|done| LogJob::Vote(*vote, done)).await.map_err(StorageIOError::write_vote)?;
        self.tail().meta.vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.tail().meta.vote)
    }

    /// Kept in memory and written with the next append: it only spares a restart the wait for its leader.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        self.tail().meta.committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.tail().meta.committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let committed = {
            let mut tail = self.tail();
            tail.append(&entries);
            tail.meta.committed
        };
        let job = LogJob::Append { entries, committed, flushed: callback };
        self.jobs
            .send(job)
            .map_err(|_| StorageIOError::write_logs(AnyError::error("the log's thread has ended")).into())
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.tail().truncate(log_id.index);
        let last = self.ask(|done| LogJob::Truncate { from: log_id.index, done }).await;
        let last = last.map_err(StorageIOError::write_logs)?;
        let mut tail = self.tail();
        tail.last = last.max(tail.meta.last_purged);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.held_by_snapshot(log_id.index).await.map_err(StorageIOError::write_logs)?;
        self.ask(|done| LogJob::Purge { upto: log_id, done }).await.map_err(StorageIOError::write_logs)?;
        self.tail().purge(log_id);
        Ok(())
    }
}
