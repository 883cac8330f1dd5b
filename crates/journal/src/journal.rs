//! The door to replication: create or open, read, propose, shut down.

use crate::audit::{self, Audit, LastCheckpoint, TrailFault};
use crate::batch::EncodedEnvelope;
use crate::batcher::{Batcher, Committed, ProposeError, Waiting};
use crate::compaction::Compactor;
use crate::framing::Framing;
use crate::leadership::Leadership;
use crate::lock::JournalLock;
use crate::log::{self, LogStore};
use crate::machine::{self, Machine, Signals};
use crate::open_error::OpenError;
use crate::options::Options;
use crate::probe::{self, Inspected};
use crate::raft::{self, FIRST_REPLICA, Raft};
use crate::replicas::Replicas;
use crate::snapshot::SnapshotDir;
use crate::view::{Board, View};
use lifecycle::names::ReplicaId;
use lifecycle::registry::{AuditGap, Envelope};
use openraft::BasicNode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// How long one try of a proposal may take, and how many there are (D37).
const TRY: Duration = Duration::from_secs(5);
const TRIES: usize = 3;
/// How long a read may wait for what other replicas have acknowledged.
const BARRIER: Duration = Duration::from_secs(2);
/// Proposals that may wait for an entry; more wait outside.
const QUEUE: usize = 4096;
/// How long a replica may take to lead its own cluster of one.
const LEAD: Duration = Duration::from_secs(60);

/// Why a journal was not shut down cleanly. Everything acknowledged is in the log all the same.
#[derive(Debug, thiserror::Error)]
#[error("the journal was not shut down cleanly: {0}")]
pub struct ShutdownError(String);

pub struct Journal {
    raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) machine: Machine,
    board: Arc<Board>,
    dir: PathBuf,
    framing: Framing,
    checkpoint: std::sync::Mutex<LastCheckpoint>,
    audit: Audit,
    gap: Option<AuditGap>,
    queue: mpsc::Sender<Waiting>,
    closing: watch::Sender<bool>,
    /// What runs beside, until shut down.
    running: Mutex<Option<Running>>,
}

struct Running {
    batcher: JoinHandle<()>,
    compactor: JoinHandle<()>,
    /// Given back last.
    lock: Arc<JournalLock>,
}

impl Journal {
    /// Makes a new log in a directory that holds none, with this replica as the only one.
    pub async fn create(options: Options) -> Result<Journal, OpenError> {
        let dir = &options.dir;
        std::fs::create_dir_all(dir).map_err(OpenError::io(dir))?;
        let lock = JournalLock::take(dir)?;
        if is_taken(dir)? {
            return Err(OpenError::Exists { dir: dir.clone() });
        }
        let (raft, parts) = start(&options, None, 0, lock).await?;
        let members = BTreeMap::from([(FIRST_REPLICA, BasicNode::default())]);
        raft.initialize(members).await.map_err(|error| OpenError::Start(error.to_string()))?;
        let checkpoint = LastCheckpoint::default();
        checkpoint.write(dir, &options.framing())?;
        Self::lead(options, raft, parts, checkpoint).await
    }

    /// Opens a log: checks it without changing anything, applies it, and returns once this replica leads and
    /// everything committed is applied.
    pub async fn open(options: Options) -> Result<Journal, OpenError> {
        let dir = options.dir.clone();
        let held = JournalLock::take_existing(&dir)?;
        let framing = options.framing();
        let inspected = tokio::task::spawn_blocking(move || probe::inspect(&dir, &framing)).await;
        let Inspected { probe, image, damaged, checkpoint } =
            inspected.map_err(|error| OpenError::Start(error.to_string()))??;
        let lock = held.map_or_else(|| JournalLock::take(&options.dir), Ok)?;
        let snapshots = SnapshotDir::of(&options.dir, options.framing());
        for path in damaged {
            tracing::warn!(file = %path.display(), "a damaged snapshot was set aside; the state was rebuilt from the log");
            snapshots.set_aside(&path).map_err(OpenError::io(&path))?;
        }
        let (raft, parts) = start(&options, image, probe.audit_seq, lock).await?;
        Self::lead(options, raft, parts, checkpoint).await
    }

    /// Waits until this replica leads and has applied its whole log; then begins to take proposals.
    async fn lead(
        options: Options,
        raft: Raft,
        parts: Parts,
        checkpoint: LastCheckpoint,
    ) -> Result<Journal, OpenError> {
        let Parts { log, machine, board, signals, lock } = parts;
        let led = catch_up(&raft, &log).await;
        let file = options.dir.join(audit::FILE);
        let beyond = machine.thread.call(|core| (core.audit_beyond(), core.gap())).await;
        let (beyond, gap) = beyond.map_err(|gone| OpenError::Start(gone.to_string()))?;
        if let Some(seq) = machine.differing_line().or(beyond.filter(|_| led.is_ok())) {
            stop(&raft, &machine, &log).await;
            return Err(OpenError::AuditDiffers { file, seq });
        }
        let reached = led.and_then(|()| {
            check_reached(&options.dir, &board.view(), &checkpoint)?;
            checkpoint.check_line(&file)
        });
        if let Err(error) = reached {
            stop(&raft, &machine, &log).await;
            return Err(error);
        }
        let framing = options.framing();
        let limit = options.snapshot_limit();
        let (closing, closed) = watch::channel(false);
        let (queue, inbox) = mpsc::channel(QUEUE);
        let batcher = Batcher {
            raft: raft.clone(),
            clock: options.clock,
            board: Arc::clone(&board),
            queue: inbox,
            closing: closed.clone(),
        };
        let compactor = Compactor {
            raft: raft.clone(),
            snapshots: SnapshotDir::of(&options.dir, framing.clone()),
            due: signals.snapshot_due,
            gathered: signals.since_snapshot,
            limit,
            closing: closed,
        };
        let running =
            Running { batcher: tokio::spawn(batcher.run()), compactor: tokio::spawn(compactor.run()), lock };
        let audit = Audit::new(file, Arc::clone(&board));
        let running = Mutex::new(Some(running));
        let (dir, checkpoint) = (options.dir, std::sync::Mutex::new(checkpoint));
        Ok(Journal {
            raft,
            log,
            machine,
            board,
            dir,
            framing,
            checkpoint,
            audit,
            gap,
            queue,
            closing,
            running,
        })
    }

    /// How far log and trail had come at the last checkpoint that was kept.
    pub fn last_checkpoint(&self) -> LastCheckpoint {
        *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps how far log and trail have come: from now on a directory that falls short of it is refused. What is in `view` is
    /// durable.
    pub async fn keep_checkpoint(&self, view: &View, anchored: bool) -> Result<(), OpenError> {
        let checkpoint = LastCheckpoint { audit: view.audit, index: view.applied_index, anchored };
        let (dir, framing) = (self.dir.clone(), self.framing.clone());
        let written = tokio::task::spawn_blocking(move || checkpoint.write(&dir, &framing)).await;
        written.map_err(|error| OpenError::Start(error.to_string()))??;
        *self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner) = checkpoint;
        Ok(())
    }

    /// What is wrong with `DIR/checkpoint` as it lies there now, if anything is: at the next start nothing else would tell how
    /// far log and trail have come. It is written before it is told here, so it may be a newer one.
    pub fn checkpoint_fault(&self) -> Option<TrailFault> {
        let kept = self.last_checkpoint();
        let what = match LastCheckpoint::read(&self.dir, &self.framing) {
            Ok(Some(found)) if found == kept || found.index > kept.index => return None,
            Ok(Some(found)) => format!(
                "DIR/checkpoint is of line {}, but the last one was made at line {}",
                found.audit.seq, kept.audit.seq
            ),
            Ok(None) => return None,
            Err(error) => error.to_string(),
        };
        Some(TrailFault { seq: kept.audit.seq, what })
    }

    /// What is known now: consistent, and for the price of a pointer.
    pub fn view(&self) -> Arc<View> {
        self.board.view()
    }

    /// Wakes whoever waits for a change; the value is the applied index.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.board.changes()
    }

    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Audit lines that were missing when the journal was opened, to be recorded in the trail.
    pub fn audit_gap(&self) -> Option<AuditGap> {
        self.gap.clone()
    }

    /// Why replication stopped by itself, if it did: a disk that is full or broken. Only a restart helps.
    pub fn failure(&self) -> Option<String> {
        let metrics = self.raft.metrics();
        let state = &metrics.borrow().running_state;
        state.as_ref().err().filter(|_| !*self.closing.borrow()).map(ToString::to_string)
    }

    /// A view that holds everything acknowledged before the call, by any replica.
    pub async fn barrier(&self) -> Result<Arc<View>, ProposeError> {
        if *self.closing.borrow() {
            return Err(ProposeError::ShuttingDown);
        }
        match tokio::time::timeout(BARRIER, self.raft.ensure_linearizable()).await {
            Ok(Ok(_)) => Ok(self.view()),
            Ok(Err(_)) | Err(_) => Err(ProposeError::Unavailable),
        }
    }

    /// Which replica this is: the same at every start on its directory.
    pub fn replica(&self) -> ReplicaId {
        ReplicaId(FIRST_REPLICA)
    }

    /// Whether this replica leads now, confirmed by a quorum.
    pub async fn leadership(&self) -> Option<Leadership> {
        if *self.closing.borrow() {
            return None;
        }
        tokio::time::timeout(BARRIER, Leadership::ask(&self.raft)).await.ok().flatten()
    }

    /// Whether a leadership that was confirmed before is still this replica's.
    pub fn still_leads(&self, leadership: &Leadership) -> bool {
        leadership.holds(&self.raft)
    }

    /// Proposes a command and waits for its answer: durable, applied, and in the audit trail. Read its effects in the
    /// view that comes with the answer. Tried again with the same id when no answer comes; what was applied once is
    /// not applied again.
    pub async fn propose(&self, envelope: Envelope) -> Result<Committed, ProposeError> {
        let item = EncodedEnvelope::encode(envelope).map_err(|error| {
            tracing::error!(%error, "a command cannot be encoded");
            ProposeError::Unavailable
        })?;
        let item = Arc::new(item);
        let mut queued = false;
        for _ in 0..TRIES {
            match tokio::time::timeout(TRY, self.attempt(&item, &mut queued)).await {
                Ok(Ok(committed)) => return Ok(committed),
                Ok(Err(ProposeError::OutcomeUnknown)) | Err(_) => {}
                Ok(Err(error)) if !queued => return Err(error),
                Ok(Err(_)) => return Err(ProposeError::OutcomeUnknown),
            }
        }
        Err(if queued { ProposeError::OutcomeUnknown } else { ProposeError::Unavailable })
    }

    /// `queued` becomes true once the command may have been taken, and false when it surely was not.
    async fn attempt(
        &self,
        item: &Arc<EncodedEnvelope>,
        queued: &mut bool,
    ) -> Result<Committed, ProposeError> {
        if *self.closing.borrow() {
            return Err(ProposeError::ShuttingDown);
        }
        let before = *queued;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { item: Arc::clone(item), answer };
        self.queue.send(waiting).await.map_err(|_| ProposeError::ShuttingDown)?;
        *queued = true;
        let result = answered.await.unwrap_or(Err(ProposeError::OutcomeUnknown));
        if matches!(result, Err(ProposeError::Unavailable | ProposeError::ShuttingDown)) {
            *queued = before;
        }
        result
    }

    /// Answers what is under way, takes nothing more, and closes all files. Again is no harm.
    pub async fn shutdown(&self) -> Result<(), ShutdownError> {
        self.shutdown_with(None).await
    }

    /// The same, with a snapshot of everything that was applied, if that takes no longer than `limit`.
    pub async fn shutdown_with_snapshot(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.shutdown_with(Some(limit)).await
    }

    async fn shutdown_with(&self, snapshot: Option<Duration>) -> Result<(), ShutdownError> {
        let mut running = self.running.lock().await;
        let Some(Running { batcher, compactor, lock }) = running.take() else { return Ok(()) };
        self.closing.send_replace(true);
        let drained = tokio::time::timeout(TRY, batcher).await;
        let kept = compactor.await;
        let stopped = self.raft.shutdown().await;
        let synced = self.machine.thread.call(|core| core.sync()).await;
        if let Some(limit) = snapshot
            && let Err(reason) = self.machine.keep(limit).await
        {
            tracing::warn!(%reason, "no snapshot was made; the next start applies the log");
        }
        self.machine.close().await;
        let closed = self.log.close().await;
        drop(lock);
        drained
            .map_err(|_| ShutdownError("a proposal is still without an answer".to_owned()))?
            .map_err(shutdown_error)?;
        kept.map_err(shutdown_error)?;
        stopped.map_err(shutdown_error)?;
        synced.map_err(shutdown_error)?.map_err(shutdown_error)?;
        closed.map_err(ShutdownError)
    }
}

fn shutdown_error(error: impl std::fmt::Display) -> ShutdownError {
    ShutdownError(error.to_string())
}

/// What a replica is made of.
struct Parts {
    log: LogStore,
    machine: Machine,
    board: Arc<Board>,
    signals: Signals,
    lock: Arc<JournalLock>,
}

async fn start(
    options: &Options,
    image: Option<crate::snapshot::Image>,
    held: u64,
    lock: JournalLock,
) -> Result<(Raft, Parts), OpenError> {
    let lock = Arc::new(lock);
    let signals = Signals::default();
    let (machine, board) = machine::start(options, image, held, &signals)?;
    let log = log::start(options, Arc::clone(&signals.audit_seq), Some(Arc::clone(&lock)))?;
    let config = raft::config()?;
    match Raft::new(FIRST_REPLICA, config, Replicas, log.clone(), machine.clone()).await {
        Ok(raft) => Ok((raft, Parts { log, machine, board, signals, lock })),
        Err(error) => {
            let differs = machine.differing_line();
            machine.close().await;
            // The error above is the one to tell.
            let _ = log.close().await;
            Err(differs.map_or_else(
                || OpenError::Start(error.to_string()),
                |seq| OpenError::AuditDiffers { file: options.dir.join(audit::FILE), seq },
            ))
        }
    }
}

async fn catch_up(raft: &Raft, log: &LogStore) -> Result<(), OpenError> {
    let start_error = |error: String| OpenError::Start(error);
    if raft.current_leader().await.is_none() {
        // A cluster of one need not wait for an election time-out.
        raft.trigger().elect().await.map_err(|error| start_error(error.to_string()))?;
    }
    raft.wait(Some(LEAD))
        .current_leader(FIRST_REPLICA, "lead")
        .await
        .map_err(|error| start_error(error.to_string()))?;
    raft.ensure_linearizable().await.map_err(|error| start_error(error.to_string()))?;
    let last = log.last_index();
    let applied = raft.wait(None).applied_index_at_least(last, "apply the log").await;
    applied.map(drop).map_err(|error| start_error(error.to_string()))
}

async fn stop(raft: &Raft, machine: &Machine, log: &LogStore) {
    // Opening has failed; that is the error to tell, not one on the way out.
    let _ = raft.shutdown().await;
    machine.close().await;
    let _ = log.close().await;
}

/// What was applied has come as far as at the last checkpoint.
fn check_reached(dir: &Path, view: &View, checkpoint: &LastCheckpoint) -> Result<(), OpenError> {
    let seq = view.audit.seq;
    if seq >= checkpoint.audit.seq {
        return Ok(());
    }
    let what =
        format!("it leads to line {seq}, but line {} was in the last checkpoint", checkpoint.audit.seq);
    Err(OpenError::damaged(&dir.join(log::FILE), None, what))
}

/// Whether a directory holds anything of a journal.
fn is_taken(dir: &Path) -> Result<bool, OpenError> {
    let snapshots = SnapshotDir::of(dir, Framing::Checksummed);
    let snapshots = snapshots.indexes().map_err(OpenError::io(snapshots.dir()))?;
    Ok(dir.join(log::FILE).exists() || dir.join(audit::FILE).exists() || !snapshots.is_empty())
}
