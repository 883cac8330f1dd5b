//! The door to replication: create or open, read, propose, shut down.

use crate::audit::{self, Audit, LastCheckpoint, TrailFault};
use crate::barrier::{BARRIER, Barriers, QuorumProof};
use crate::batch::EncodedEnvelope;
use crate::batcher::{Batcher, Committed, ProposeError, Waiting};
use crate::compaction::Compactor;
use crate::election;
use crate::framing::Framing;
use crate::leadership::Leadership;
use crate::lock::JournalLock;
use crate::log::{self, LogStore};
use crate::log_key::LogKey;
use crate::machine::{self, Machine, Signals};
use crate::open_error::OpenError;
use crate::options::{Options, PeerOptions};
use crate::peer::{
    LeaderLinks, MarkFile, PeerAnswers, PeerConnection, PeerNetwork, PeerRefusal, PeerStanding,
    ReplicaReport, Roster, RosterParts, Served,
};
use crate::probe::{self, Inspected};
use crate::pulse;
use crate::raft::{self, FIRST_REPLICA, Raft, RaftState, Vote};
use crate::snapshot::SnapshotDir;
use crate::view::{Board, View};
use lifecycle::names::{ReplicaId, Timestamp};
use lifecycle::registry::{AuditGap, Envelope};
use openraft::BasicNode;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long one try of a proposal may take, and how many there are (D37).
const TRY: Duration = Duration::from_secs(5);
const TRIES: usize = 3;
/// How long a proposal waits for a leader; and how long after the last proof of a quorum nothing is waited for any more.
const NO_LEADER: Duration = Duration::from_secs(4);
const NO_QUORUM: Duration = Duration::from_secs(5);
/// Between two looks for a leader.
const LEADER_PAUSE: Duration = Duration::from_millis(100);
/// Proposals that may wait for an entry; more wait outside.
const QUEUE: usize = 4096;
/// A voter that was heard of within this time may be given the lead; how long its election is waited for; between two looks.
const REACHABLE: Duration = Duration::from_secs(3);
const ELECTION: Duration = Duration::from_secs(1);
const HAND_OVER_PAUSE: Duration = Duration::from_millis(20);
/// How long a replica may take to lead its own cluster of one.
const LEAD: Duration = Duration::from_secs(60);

/// Why a journal was not shut down cleanly. Everything acknowledged is in the log all the same.
#[derive(Debug, thiserror::Error)]
#[error("the journal was not shut down cleanly: {0}")]
pub struct ShutdownError(String);

pub struct Journal {
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) machine: Machine,
    board: Arc<Board>,
    dir: PathBuf,
    framing: Framing,
    checkpoint: std::sync::Mutex<LastCheckpoint>,
    audit: Audit,
    gap: Option<AuditGap>,
    queue: mpsc::Sender<Waiting>,
    replica: ReplicaId,
    served: Arc<Served>,
    proof: Arc<QuorumProof>,
    barriers: mpsc::Sender<oneshot::Sender<Result<Arc<View>, ProposeError>>>,
    /// Its audit trail is not the leader's.
    pub(crate) trail_differs: AtomicBool,
    pub(crate) lines_missing: AtomicBool,
    /// The lead is being given to another replica, before a stop.
    handing_over: Arc<AtomicBool>,
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
        let members = BTreeMap::from([(options.replica.0, BasicNode::default())]);
        raft.initialize(members).await.map_err(|error| OpenError::Start(error.to_string()))?;
        let checkpoint = LastCheckpoint::default();
        checkpoint.write(dir, &options.framing())?;
        Self::lead(options, raft, parts, checkpoint).await
    }

    /// Makes an empty log for a replica that joins a cluster: what is in it comes from the others.
    pub async fn join(options: &Options) -> Result<(), OpenError> {
        let dir = &options.dir;
        let lock = JournalLock::take(dir)?;
        if is_taken(dir)? {
            return Err(OpenError::Exists { dir: dir.clone() });
        }
        let (raft, parts) = start(options, None, 0, lock).await?;
        LastCheckpoint::default().write(dir, &options.framing())?;
        stop(&raft, &parts.machine, &parts.log).await;
        Ok(())
    }

    /// Opens a log: checks it without changing anything, applies it, and returns once this replica leads and
    /// everything committed is applied.
    pub async fn open(options: Options) -> Result<Journal, OpenError> {
        let dir = options.dir.clone();
        let held = JournalLock::take_existing(&dir)?;
        let framing = options.framing();
        let joined = options.peers.is_some() && options.replica != ReplicaId(FIRST_REPLICA);
        let inspected = tokio::task::spawn_blocking(move || probe::inspect(&dir, &framing, joined)).await;
        let Inspected { probe, image, damaged, checkpoint } =
            inspected.map_err(|error| OpenError::Start(error.to_string()))??;
        let lock = held.map_or_else(|| JournalLock::take(&options.dir), Ok)?;
        let snapshots = SnapshotDir::of(&options.dir, options.framing());
        for path in damaged {
            tracing::warn!(file = %path.display(), "a damaged snapshot was set aside; the state was rebuilt from the log");
            snapshots.set_aside(&path).map_err(OpenError::io(&path))?;
        }
        let (raft, parts) = start(&options, image, probe.audit_seq, lock).await?;
        if opens_alone(&raft, options.replica).await? {
            return Self::lead(options, raft, parts, checkpoint).await;
        }
        // One of several: what it has not applied yet is applied once a leader says how far the cluster has come.
        if let Some(seq) = parts.machine.differing_line() {
            stop(&raft, &parts.machine, &parts.log).await;
            return Err(OpenError::AuditDiffers { file: options.dir.join(audit::FILE), seq });
        }
        // Not before the others were asked what they have seen of this replica.
        raft.runtime_config().elect(false);
        Ok(Self::serve(options, raft, parts, checkpoint, None))
    }

    /// Waits until this replica leads and has applied its whole log; then begins to take proposals.
    async fn lead(
        options: Options,
        raft: Raft,
        parts: Parts,
        checkpoint: LastCheckpoint,
    ) -> Result<Journal, OpenError> {
        let Parts { log, machine, board, .. } = &parts;
        let led = catch_up(&raft, log, options.replica).await;
        let file = options.dir.join(audit::FILE);
        let beyond = machine.thread.call(|core| (core.audit_beyond(), core.gap())).await;
        let (beyond, gap) = beyond.map_err(|gone| OpenError::Start(gone.to_string()))?;
        if let Some(seq) = machine.differing_line().or(beyond.filter(|_| led.is_ok())) {
            stop(&raft, machine, log).await;
            return Err(OpenError::AuditDiffers { file, seq });
        }
        let reached = led.and_then(|()| {
            check_reached(&options.dir, &board.view(), &checkpoint)?;
            checkpoint.check_line(&file)
        });
        if let Err(error) = reached {
            stop(&raft, machine, log).await;
            return Err(error);
        }
        Ok(Self::serve(options, raft, parts, checkpoint, gap))
    }

    /// Begins to take proposals.
    fn serve(
        options: Options,
        raft: Raft,
        parts: Parts,
        checkpoint: LastCheckpoint,
        gap: Option<AuditGap>,
    ) -> Journal {
        let Parts { log, machine, board, signals, lock, roster } = parts;
        let file = options.dir.join(audit::FILE);
        let framing = options.framing();
        let limit = options.snapshot_limit();
        let (closing, closed) = watch::channel(false);
        let handing_over = Arc::new(AtomicBool::new(false));
        let (queue, inbox) = mpsc::channel(QUEUE);
        let forwarder = Arc::new(LeaderLinks::new(roster.clone()));
        let batcher = Batcher {
            raft: raft.clone(),
            forwarder: Arc::clone(&forwarder),
            clock: options.clock.clone(),
            board: Arc::clone(&board),
            queue: inbox,
            handing_over: Arc::clone(&handing_over),
            closing: closed.clone(),
        };
        let compactor = Compactor {
            raft: raft.clone(),
            log: log.clone(),
            snapshots: SnapshotDir::of(&options.dir, framing.clone()),
            due: signals.snapshot_due,
            gathered: signals.since_snapshot,
            limit,
            keep: options.keep_bytes,
            closing: closed.clone(),
        };
        let running =
            Running { batcher: tokio::spawn(batcher.run()), compactor: tokio::spawn(compactor.run()), lock };
        let audit = Audit::new(file, Arc::clone(&board));
        let running = Mutex::new(Some(running));
        let proof = Arc::new(QuorumProof::new());
        let barriers =
            Barriers { raft: raft.clone(), forwarder, board: Arc::clone(&board), proof: Arc::clone(&proof) };
        let served = Arc::new(Served {
            raft: raft.clone(),
            roster,
            board: Arc::clone(&board),
            audit: audit.clone(),
            snapshots: SnapshotDir::of(&options.dir, framing.clone()),
            clock: options.clock,
            wall: options.wall,
            steady: options.steady,
            version: options.peers.map(|peers| peers.version).unwrap_or_default(),
            queue: queue.clone(),
            answers: OnceLock::new(),
            clock_believed: AtomicBool::new(true),
            address: std::sync::Mutex::new(None),
            received: AtomicU64::new(0),
            receiving: std::sync::Mutex::default(),
            snapshots_installed: AtomicU64::new(0),
            appends: AtomicU64::new(0),
            closing: closed,
        });
        let (dir, checkpoint) = (options.dir, std::sync::Mutex::new(checkpoint));
        Journal {
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
            replica: options.replica,
            served,
            proof,
            barriers: barriers.start(),
            trail_differs: AtomicBool::new(false),
            lines_missing: AtomicBool::new(false),
            handing_over,
            closing,
            running,
        }
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

    /// Why replication stopped by itself, if it did: a disk that is full or broken, or openraft's core has ended without a word. Only
    /// a restart helps.
    pub fn failure(&self) -> Option<String> {
        let metrics = self.raft.metrics();
        let said = metrics.borrow().running_state.as_ref().err().map(ToString::to_string);
        // A core that panics says nothing any more; the sender of its metrics ends with it.
        let ended = || metrics.has_changed().is_err().then(|| "replication ended unexpectedly".to_owned());
        said.or_else(ended).filter(|_| !*self.closing.borrow())
    }

    /// A view that holds everything acknowledged before the call, by any replica.
    pub async fn barrier(&self) -> Result<Arc<View>, ProposeError> {
        if *self.closing.borrow() {
            return Err(ProposeError::ShuttingDown);
        }
        if !self.roster().is_fit() {
            return Err(ProposeError::Unavailable);
        }
        if self.is_alone() {
            return match tokio::time::timeout(BARRIER, self.raft.ensure_linearizable()).await {
                Ok(Ok(_)) => Ok(self.view()),
                Ok(Err(_)) | Err(_) => Err(ProposeError::Unavailable),
            };
        }
        let (waiter, passed) = oneshot::channel();
        self.barriers.send(waiter).await.map_err(|_| ProposeError::Unavailable)?;
        // Behind one that is under way and may be given up.
        let passed = tokio::time::timeout(BARRIER * 2, passed).await;
        passed.ok().and_then(Result::ok).unwrap_or(Err(ProposeError::Unavailable))
    }

    /// Which replica this is: the same at every start on its directory.
    pub fn replica(&self) -> ReplicaId {
        self.replica
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
        // A directory that was put back must not write beside the others before they could say so.
        self.roster().settled().await;
        // From one that was removed nobody takes it either.
        if !self.is_fit() || self.is_refused(PeerRefusal::Removed) {
            return Err(ProposeError::Unavailable);
        }
        let item = Arc::new(item);
        let (began, mut queued, mut tries) = (Instant::now(), false, 0);
        let given_up = |queued| if queued { ProposeError::OutcomeUnknown } else { ProposeError::Unavailable };
        while tries < TRIES {
            if !self.is_alone() && self.proof.missing_for() >= NO_QUORUM {
                return Err(given_up(queued));
            }
            let attempt = async {
                tokio::select! {
                    result = tokio::time::timeout(TRY, self.attempt(&item, &mut queued)) => Some(result),
                    () = self.quorum_lost() => None,
                }
            };
            // Without a quorum nothing comes of waiting: the caller may ask another replica.
            let Some(result) = attempt.await else { return Err(given_up(queued)) };
            match result {
                Ok(Ok(committed)) => return Ok(committed),
                Ok(Err(ProposeError::OutcomeUnknown)) | Err(_) => tries += 1,
                // A new leader is being elected: nothing was taken, and soon somebody will take it.
                Ok(Err(ProposeError::Unavailable)) if !self.is_alone() && began.elapsed() < NO_LEADER => {
                    tokio::time::sleep(LEADER_PAUSE).await;
                }
                Ok(Err(error)) if !queued => return Err(error),
                Ok(Err(_)) => return Err(ProposeError::OutcomeUnknown),
            }
        }
        Err(given_up(queued))
    }

    /// Ends when no quorum was heard of for some seconds; never for a replica that is alone.
    async fn quorum_lost(&self) {
        if self.is_alone() {
            return std::future::pending().await;
        }
        pulse::lost(&self.proof, NO_QUORUM).await;
    }

    /// Whether this replica is the only one that votes: then it asks nobody.
    pub fn is_alone(&self) -> bool {
        is_alone(&self.raft, self.replica)
    }

    /// A replica that is alone has a quorum: once others vote too, that is where its proof begins.
    pub(crate) fn is_its_own_quorum(&self) {
        self.proof.given(Instant::now());
    }

    /// How long ago a quorum was last known to follow the leader, `Duration::MAX` if never since the start; nothing for a replica that
    /// is alone.
    pub fn quorum_age(&self) -> Duration {
        if self.is_alone() && self.roster().is_fit() { Duration::ZERO } else { self.proof.age() }
    }

    /// For how long a quorum was asked for in vain.
    pub fn quorum_failing_for(&self) -> Duration {
        self.proof.failing_for()
    }

    /// Who leads, as far as this replica knows.
    pub fn leader(&self) -> Option<ReplicaId> {
        self.raft.metrics().borrow().current_leader.map(ReplicaId)
    }

    pub fn is_leader(&self) -> bool {
        self.raft.metrics().borrow().state.is_leader()
    }

    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.served.roster
    }

    pub(crate) fn served(&self) -> &Arc<Served> {
        &self.served
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Answers a connection of another replica until it ends. `waiting` is held until that replica has proven itself.
    pub async fn serve_peer(&self, connection: PeerConnection, waiting: impl Send) {
        self.served.serve(connection, waiting).await;
    }

    /// Does what a replica of a cluster does all the time; ends when the journal closes.
    pub async fn keep_pulse(self: &Arc<Self>) {
        let own = || Arc::clone(self);
        tokio::join!(pulse::run(own()), pulse::keep_trail(own()), election::run(own()));
    }

    /// Who answers what other replicas ask beyond replication.
    pub fn answer_peers(&self, answers: Arc<dyn PeerAnswers>) {
        // Set once at start.
        let _ = self.served.answers.set(answers);
    }

    /// Where this replica is reached, for the others to know before the registry does.
    pub fn is_reached_at(&self, address: String) {
        *self.served.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    /// What is known of another replica.
    pub fn standing(&self, replica: ReplicaId) -> PeerStanding {
        self.roster().standing(replica)
    }

    /// Whether another replica refuses to talk to this one for this reason.
    pub fn is_refused(&self, why: PeerRefusal) -> bool {
        self.roster().refusal(why)
    }

    /// Whether lines of the audit trail are still being copied from the leader.
    pub fn lines_missing(&self) -> bool {
        self.lines_missing.load(Ordering::Acquire)
    }

    /// Whether the audit trail here is not the leader's.
    pub fn trail_differs(&self) -> bool {
        self.trail_differs.load(Ordering::Acquire)
    }

    /// Whether this replica may judge and write: its directory is the only one of its identity, holds all that it has acknowledged,
    /// and its trail is the leader's.
    pub fn is_fit(&self) -> bool {
        self.roster().is_fit() && !self.trail_differs()
    }

    /// Whether another replica has seen a later state of this directory than it holds.
    pub fn is_rolled_back(&self) -> bool {
        self.roster().is_rolled_back()
    }

    /// Whether it may lead: its clock and its directory are good, the others were asked what they have seen of it, and it is not leaving.
    pub(crate) fn may_stand(&self) -> bool {
        let leaves = self.handing_over.load(Ordering::Acquire);
        let believed = self.served.clock_believed.load(Ordering::Acquire);
        // Nobody votes for one that was removed, and each attempt raises the term.
        let removed = self.is_refused(PeerRefusal::Removed);
        believed && !leaves && !removed && self.is_fit() && self.roster().is_settled()
    }

    /// Whether it stands for election now.
    pub(crate) fn let_stand(&self) {
        let may = self.served.clock_believed.load(Ordering::Acquire);
        let by_timer = election::by_timer(&self.vote(), self.is_alone(), self.was_removed());
        self.raft.runtime_config().elect(by_timer && self.may_stand());
        // A leader that finds itself to be a copy lets others take over.
        self.raft.runtime_config().heartbeat(may && self.is_fit());
    }

    /// For whom this replica has voted last.
    pub(crate) fn vote(&self) -> Vote {
        self.raft.metrics().borrow().vote
    }

    /// Whether the registry here says that this replica is no member any more. Replication may need it all the same.
    pub(crate) fn was_removed(&self) -> bool {
        self.roster().was_removed(self.replica)
    }

    /// What this replica says of itself.
    pub fn report(&self) -> ReplicaReport {
        self.served.report()
    }

    /// Who votes, and who is only sent the log.
    pub fn membership(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        (membership.voter_ids().collect(), membership.learner_ids().collect())
    }

    /// Whether a replica votes or is sent the log.
    pub fn is_replicated(&self, replica: ReplicaId) -> bool {
        let (voters, learners) = self.membership();
        voters.contains(&replica.0) || learners.contains(&replica.0)
    }

    /// How the replication stands, for those who look.
    pub fn replication(&self) -> ReplicationProgress {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let matched = metrics.replication.iter().flatten();
        ReplicationProgress {
            term: metrics.current_term,
            last_log: metrics.last_log_index.unwrap_or(0),
            matched: matched.map(|(id, log_id)| (*id, log_id.map_or(0, |id| id.index))).collect(),
            snapshots_installed: self.served.snapshots_installed.load(Ordering::Relaxed),
        }
    }

    /// Sends the log to one more replica. Only a leader does.
    pub async fn add_learner(&self, replica: u64) -> Result<(), String> {
        let added = self.raft.add_learner(replica, BasicNode::default(), false).await;
        added.map(drop).map_err(|error| error.to_string())
    }

    /// From now on these vote, and no others; one that no longer votes is sent nothing any more.
    pub async fn set_voters(&self, voters: BTreeSet<u64>) -> Result<(), String> {
        let changed = self.raft.change_membership(voters, false).await;
        changed.map(drop).map_err(|error| error.to_string())
    }

    /// Sends nothing more to one that does not vote.
    pub async fn drop_learner(&self, replica: u64) -> Result<(), String> {
        let change = openraft::ChangeMembers::RemoveNodes(BTreeSet::from([replica]));
        self.raft.change_membership(change, false).await.map(drop).map_err(|error| error.to_string())
    }

    /// Whether this replica may lead. One that may not gives the lead away.
    pub async fn may_lead(&self, may: bool) {
        self.served.clock_believed.store(may, Ordering::Release);
        self.let_stand();
        if may || !self.is_leader() {
            return;
        }
        let (voters, _) = self.membership();
        for voter in voters.into_iter().map(ReplicaId).filter(|voter| *voter != self.replica) {
            self.roster().ask_to_lead(voter);
        }
    }

    /// Gives the lead to the voter that has come furthest, and waits until another replica leads, for at most `limit`. Tells whether
    /// one does. Until then what is proposed waits, here and elsewhere. For a replica that is about to stop: it does not stand for
    /// election any more.
    pub async fn hand_over(&self, limit: Duration) -> bool {
        if self.is_alone() || !self.is_leader() {
            return false;
        }
        self.handing_over.store(true, Ordering::Release);
        self.raft.runtime_config().elect(false);
        let handed = tokio::time::timeout(limit, async {
            let mut silent = BTreeSet::new();
            while self.is_leader() {
                match self.successor(&silent) {
                    Some(successor) if self.roster().elect(successor).await => {
                        // Not for long: the one that was asked may have lost the election.
                        let led = self.until_led_elsewhere();
                        // Whoever waits looks who leads then.
                        let _ = tokio::time::timeout(ELECTION, led).await;
                    }
                    // It was heard of a moment ago and does not answer now: the others are asked first.
                    Some(successor) => drop(silent.insert(successor)),
                    None => {
                        silent.clear();
                        tokio::time::sleep(HAND_OVER_PAUSE).await;
                    }
                }
            }
            self.until_led_elsewhere().await;
        });
        let handed = handed.await.is_ok() && self.leader().is_some_and(|leader| leader != self.replica);
        self.handing_over.store(false, Ordering::Release);
        handed
    }

    /// A voter that can be reached, has the whole log, and may lead by its clock; none of those that were asked in vain.
    fn successor(&self, silent: &BTreeSet<ReplicaId>) -> Option<ReplicaId> {
        let (voters, _) = self.membership();
        let replication = self.replication();
        let has_all = |id: &u64| replication.matched.get(id).is_some_and(|at| *at >= replication.last_log);
        let others = voters.into_iter().filter(|id| *id != self.replica.0 && has_all(id)).map(ReplicaId);
        let others = others.filter(|id| !silent.contains(id) && !self.roster().was_removed(*id));
        let may_lead = |id: &ReplicaId| {
            let standing = self.standing(*id);
            standing.is_reachable(REACHABLE) && standing.report.is_some_and(|report| report.clock_believed)
        };
        others.into_iter().find(may_lead)
    }

    /// Waits for another leader.
    async fn until_led_elsewhere(&self) {
        let own = self.replica.0;
        let wait = self.raft.wait(None);
        // It fails only where replication has stopped.
        let _ = wait
            .metrics(move |seen| seen.current_leader.is_some_and(|leader| leader != own), "another one leads")
            .await;
    }

    /// When the newest snapshot was written, by the machine's clock.
    pub fn newest_snapshot(&self) -> Option<Timestamp> {
        let snapshots = &self.served.snapshots;
        let newest = snapshots.indexes().ok()?.into_iter().next()?;
        let written = std::fs::metadata(snapshots.path(newest)).ok()?.modified().ok()?;
        let since = written.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
    }

    /// Asks another replica something beyond replication.
    pub async fn ask_peer(&self, replica: ReplicaId, question: Vec<u8>) -> Option<Vec<u8>> {
        self.roster().ask(replica, question).await
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
        let waiting = Waiting { item: Arc::clone(item), answer, forwarded: false };
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
        self.roster().keep_marks();
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

/// How replication stands.
#[derive(Debug, Clone)]
pub struct ReplicationProgress {
    pub term: u64,
    pub last_log: u64,
    /// How far each replica has come; only a leader knows.
    pub matched: BTreeMap<u64, u64>,
    pub snapshots_installed: u64,
}

/// What a replica is made of.
struct Parts {
    log: LogStore,
    machine: Machine,
    board: Arc<Board>,
    signals: Signals,
    lock: Arc<JournalLock>,
    roster: Arc<Roster>,
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
    machine.installs_into(log.clone());
    let (cluster, connector, seeds) = match options.peers.clone() {
        Some(PeerOptions { cluster, connector, seeds, .. }) => (cluster, Some(connector), seeds),
        None => (String::new(), None, BTreeMap::new()),
    };
    let key = options.key.clone().unwrap_or_else(|| LogKey::new(&[0; 32]));
    let (own, parts_board) = (options.replica, Arc::clone(&board));
    let roster = Roster::new(RosterParts {
        own,
        cluster,
        key,
        connector,
        seeds,
        board: parts_board,
        log: log.clone(),
        file: MarkFile { dir: options.dir.clone(), framing: options.framing() },
    })?;
    let network = PeerNetwork { roster: roster.clone() };
    match Raft::new(own.0, config, network, log.clone(), machine.clone()).await {
        Ok(raft) => Ok((raft, Parts { log, machine, board, signals, lock, roster })),
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

/// Whether a replica is the only one that votes.
fn is_alone(raft: &Raft, replica: ReplicaId) -> bool {
    let metrics = raft.metrics();
    let metrics = metrics.borrow();
    metrics.membership_config.membership().voter_ids().eq([replica.0])
}

/// The same of one that has just been started: what it tells others of itself comes a moment later.
async fn opens_alone(raft: &Raft, replica: ReplicaId) -> Result<bool, OpenError> {
    let voters =
        move |state: &RaftState| state.membership_state.effective().membership().voter_ids().eq([replica.0]);
    raft.with_raft_state(voters).await.map_err(|error| OpenError::Start(error.to_string()))
}

async fn catch_up(raft: &Raft, log: &LogStore, own: ReplicaId) -> Result<(), OpenError> {
    let start_error = |error: String| OpenError::Start(error);
    if raft.current_leader().await.is_none() {
        // A cluster of one need not wait for an election time-out.
        raft.trigger().elect().await.map_err(|error| start_error(error.to_string()))?;
    }
    raft.wait(Some(LEAD))
        .current_leader(own.0, "lead")
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
