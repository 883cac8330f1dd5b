//! The thread that writes the log.
//!
//! Jobs that wait together share one transaction and one fsync. After the first failure nothing is written
//! any more: what an fsync that failed left on disk is not known.

use super::tables::{TableError, Tables};
use super::tail::Tail;
use crate::lock::JournalLock;
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use openraft::storage::LogFlushed;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// How many jobs may share a transaction.
const GROUP: usize = 64;

pub type JobReply<T> = oneshot::Sender<Result<T, Arc<TableError>>>;

pub enum LogJob {
    Append {
        entries: Vec<Entry>,
        /// Written in the same transaction: a restart applies at once what is known to be committed.
        committed: Option<LogId>,
        flushed: LogFlushed<TypeConfig>,
    },
    Vote(Vote, JobReply<()>),
    Truncate {
        from: u64,
        done: JobReply<Option<LogId>>,
    },
    Purge {
        upto: LogId,
        done: JobReply<()>,
    },
    /// A snapshot of a peer is about to take the place of the log up to here.
    Installing {
        index: u64,
        done: JobReply<()>,
    },
    Read {
        start: u64,
        end: u64,
        limit: usize,
        done: JobReply<Vec<Entry>>,
    },
    /// The last entry that is followed by so many bytes.
    BeforeLast {
        bytes: u64,
        done: JobReply<Option<u64>>,
    },
    /// Writes the commit index and ends the thread; the file is closed when this is answered.
    Close {
        committed: Option<LogId>,
        done: JobReply<()>,
    },
}

pub struct Writer {
    pub tables: Tables,
    pub slow_fsync: Option<Duration>,
    /// The last audit line that is in its store; set by the state machine.
    pub audit_seq: Arc<AtomicU64>,
    /// The commit index and the audit sequence that were written last.
    pub written: (Option<LogId>, u64),
    pub broken: Option<Arc<TableError>>,
    /// Whether a transaction is open.
    pub begun: bool,
    pub tail: Arc<Mutex<Tail>>,
    /// The directory stays ours for as long as something may be written.
    #[expect(dead_code, reason = "held for its lock")]
    pub lock: Option<Arc<JournalLock>>,
}

/// Called once the transaction is on disk, or has failed.
type FlushCallback = Box<dyn FnOnce(Result<(), Arc<TableError>>) + Send>;

impl Writer {
    pub fn start(self, jobs: mpsc::Receiver<LogJob>) -> std::io::Result<()> {
        std::thread::Builder::new().name("journal-log".to_owned()).spawn(move || self.run(&jobs)).map(drop)
    }

    fn run(mut self, jobs: &mpsc::Receiver<LogJob>) {
        while let Ok(first) = jobs.recv() {
            let mut group = vec![first];
            group.extend(jobs.try_iter().take(GROUP - 1));
            let mut closing = None;
            let mut callbacks = Vec::with_capacity(group.len());
            for job in group {
                match job {
                    LogJob::Read { start, end, limit, done } => {
                        drop(done.send(self.tables.read(start, end, limit).map_err(Arc::new)));
                    }
                    LogJob::BeforeLast { bytes, done } => {
                        drop(done.send(self.tables.before_last(bytes).map_err(Arc::new)));
                    }
                    LogJob::Close { committed, done } => {
                        self.write(|writer| writer.write_progress(committed));
                        closing = Some(done);
                    }
                    job => self.perform(job, &mut callbacks),
                }
            }
            let result = self.finish();
            for callback in callbacks {
                callback(result.clone());
            }
            if let Some(done) = closing {
                drop(self);
                drop(done.send(result));
                return;
            }
        }
    }

    fn perform(&mut self, job: LogJob, callbacks: &mut Vec<FlushCallback>) {
        match job {
            LogJob::Append { entries, committed, flushed } => {
                self.write(|writer| {
                    entries.iter().try_for_each(|entry| writer.tables.insert(entry))?;
                    if let Some(last) = entries.last() {
                        writer.tables.put_head(last.log_id.index)?;
                    }
                    writer.write_progress(committed)
                });
                let tail = Arc::clone(&self.tail);
                let last = entries.last().map(|entry| entry.log_id.index);
                callbacks.push(Box::new(move |result| {
                    if let Some(index) = last.filter(|_| result.is_ok()) {
                        tail.lock().unwrap_or_else(PoisonError::into_inner).flushed(index);
                    }
                    flushed.log_io_completed(result.map_err(std::io::Error::other));
                }));
            }
            LogJob::Vote(vote, done) => {
                self.write(|writer| writer.tables.put_vote(&vote));
                callbacks.push(Box::new(move |result| drop(done.send(result))));
            }
            LogJob::Truncate { from, done } => {
                let mut last = None;
                self.write(|writer| {
                    last = writer.tables.truncate(from)?;
                    Ok(())
                });
                callbacks.push(Box::new(move |result| drop(done.send(result.map(|()| last)))));
            }
            LogJob::Purge { upto, done } => {
                self.write(|writer| writer.tables.purge(&upto));
                callbacks.push(Box::new(move |result| drop(done.send(result))));
            }
            LogJob::Installing { index, done } => {
                self.write(|writer| writer.tables.put_installing(index));
                callbacks.push(Box::new(move |result| drop(done.send(result))));
            }
            LogJob::Read { .. } | LogJob::BeforeLast { .. } | LogJob::Close { .. } => {}
        }
    }

    /// Runs one write inside the group's transaction, which the first one begins.
    fn write(&mut self, act: impl FnOnce(&mut Self) -> Result<(), TableError>) {
        if self.broken.is_some() {
            return;
        }
        let begun = if self.begun { Ok(()) } else { self.tables.begin() };
        self.begun = true;
        if let Err(error) = begun.and_then(|()| act(self)) {
            self.broken = Some(Arc::new(error));
        }
    }

    /// Writes the commit index and the audit sequence, where they changed.
    fn write_progress(&mut self, committed: Option<LogId>) -> Result<(), TableError> {
        let audit_seq = self.audit_seq.load(Ordering::Acquire);
        if let Some(id) = committed.filter(|_| committed > self.written.0) {
            self.tables.put_committed(&id)?;
        }
        if audit_seq > self.written.1 {
            self.tables.put_audit_seq(audit_seq)?;
        }
        self.written = (self.written.0.max(committed), self.written.1.max(audit_seq));
        Ok(())
    }

    /// Commits the group's transaction, if one was begun.
    fn finish(&mut self) -> Result<(), Arc<TableError>> {
        if self.broken.is_none() && std::mem::take(&mut self.begun) {
            match self.tables.commit() {
                Ok(()) => self.slow_fsync.into_iter().for_each(std::thread::sleep),
                Err(error) => self.broken = Some(Arc::new(error)),
            }
        }
        self.broken.clone().map_or(Ok(()), Err)
    }
}
