//! The other end of a link: what other replicas may ask of this one.

use super::check::{self, Known};
use super::handshake::{self, GreetingError};
use super::roster::Roster;
use super::starts::StartMark;
use super::wire::{self, PeerRefusal, PeerReply, PeerRequest, ProposalFate, ReplicaReport};
use super::{BoxedFuture, PeerConnection, PeerStream};
use crate::audit::{Audit, chain};
use crate::batch::EncodedEnvelope;
use crate::batcher::{ProposeError, Waiting};
use crate::options::Clock;
use crate::raft::{Raft, Vote};
use crate::snapshot::{Carrier, SnapshotDir};
use crate::view::{AuditHead, Board};
use lifecycle::names::ReplicaId;
use lifecycle::registry::{Actor, Envelope};
use openraft::raft::AppendEntriesResponse;
use openraft::{BasicNode, Snapshot, SnapshotMeta};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A connection on which nothing is asked for so long is closed.
const IDLE: Duration = Duration::from_secs(90);
/// How long a request may take to arrive, and an answer to be taken.
const TRANSFER: Duration = Duration::from_secs(30);
/// How long a forwarded command may take.
const PROPOSAL: Duration = Duration::from_secs(6);
/// Lines of the audit trail in one answer, and their bytes.
const LINES: (usize, usize) = (wire::LINES, 4 * 1024 * 1024);
/// The largest snapshot that is taken from a peer, and how long it may take to arrive.
const SNAPSHOT: u64 = 16 * 1024 * 1024 * 1024;
const SNAPSHOT_TRANSFER: Duration = Duration::from_secs(30 * 60);
/// How often it is asked whether a snapshot that arrives is still wanted.
const STILL_WANTED: Duration = Duration::from_secs(1);

/// Answers what is asked of whoever uses the journal.
pub trait PeerAnswers: Send + Sync + 'static {
    fn answer(&self, from: ReplicaId, question: Vec<u8>) -> BoxedFuture<Vec<u8>>;
}

/// A snapshot that another replica announces; its file follows.
struct SnapshotOffer {
    vote: Vote,
    meta: SnapshotMeta<u64, BasicNode>,
    length: u64,
}

/// What an incoming connection needs.
pub struct Served {
    pub raft: Raft,
    pub roster: Arc<Roster>,
    pub board: Arc<Board>,
    pub audit: Audit,
    pub snapshots: SnapshotDir,
    pub clock: Clock,
    pub wall: Option<Clock>,
    pub steady: Option<Clock>,
    pub version: String,
    pub queue: mpsc::Sender<Waiting>,
    pub answers: std::sync::OnceLock<Arc<dyn PeerAnswers>>,
    pub clock_believed: std::sync::atomic::AtomicBool,
    /// Where this replica is reached, once that is known.
    pub address: Mutex<Option<String>>,
    /// Names the files of snapshots that arrive.
    pub received: AtomicU64,
    /// The newest one of each sender: an older one is given up.
    pub receiving: Mutex<BTreeMap<ReplicaId, u64>>,
    pub snapshots_installed: AtomicU64,
    /// Of a leader whose term is not over: as long as they come, there is one.
    pub appends: AtomicU64,
    pub closing: watch::Receiver<bool>,
}

impl Served {
    /// What this replica says of itself.
    pub fn report(&self) -> ReplicaReport {
        let view = self.board.view();
        ReplicaReport {
            applied: view.applied_index,
            last_log: self.roster.last_log(),
            audit: view.audit,
            now: (self.clock)(),
            wall: self.wall.as_ref().map(|wall| wall()),
            steady: self.steady.as_ref().map(|steady| steady()),
            version: self.version.clone(),
            clock_believed: self.clock_believed.load(Ordering::Acquire),
            address: self.address.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Answers one connection until it ends. `waiting` is given back once the caller has proven itself.
    pub async fn serve(&self, mut connection: PeerConnection, waiting: impl Send) {
        let own = self.roster.identity();
        // What is known of the other end, apart from the stream that is greeted and served meanwhile.
        let shown = PeerConnection {
            stream: Box::new(tokio::io::empty()),
            replica: connection.replica,
            serial: connection.serial.clone(),
            fingerprint: connection.fingerprint,
            issuer: connection.issuer.clone(),
            above: connection.above.clone(),
            binding: connection.binding,
        };
        let greeted = handshake::answer(&mut connection, &own, self.roster.key(), |caller| {
            self.roster.admit(&shown, caller)
        })
        .await;
        drop(waiting);
        let (caller, start) = match greeted {
            Ok(caller) => (caller.replica, caller.starts.mark()),
            Err(error) => {
                self.not_served(&shown, &error);
                return;
            }
        };
        if let Err(error) = self.answer_all(&mut connection.stream, &shown, start).await {
            tracing::debug!(replica = %caller, %error, "a connection between replicas ended");
        }
        self.roster.leave(caller, start);
    }

    fn not_served(&self, shown: &PeerConnection, error: &GreetingError) {
        let replica = shown.replica;
        match error {
            // What a member says of this replica. A proof of the log key alone does not make a member.
            GreetingError::Refused(why @ (PeerRefusal::Duplicate | PeerRefusal::RolledBack))
                if self.roster.may_refuse(shown) =>
            {
                self.roster.refused_by(replica, Some(*why));
            }
            // Each tries again and again until somebody stops it.
            GreetingError::Refused(_)
            | GreetingError::Io(_)
            | GreetingError::Declined(
                PeerRefusal::Removed | PeerRefusal::Duplicate | PeerRefusal::RolledBack | PeerRefusal::Unfit,
            ) => tracing::debug!(%replica, %error, "a connection between replicas was refused"),
            GreetingError::Declined(_) => {
                tracing::warn!(%replica, %error, "a connection between replicas was refused");
            }
        }
    }

    async fn answer_all(
        &self,
        stream: &mut Box<dyn PeerStream>,
        shown: &PeerConnection,
        start: StartMark,
    ) -> std::io::Result<()> {
        let caller = shown.replica;
        let mut closing = self.closing.clone();
        loop {
            let request = tokio::select! {
                request = tokio::time::timeout(IDLE, wire::read_message(stream)) => request.map_err(|_| std::io::ErrorKind::TimedOut)??,
                _ = closing.wait_for(|closing| *closing) => return Ok(()),
            };
            if !self.still_serves(shown, start) {
                return Ok(());
            }
            let reply = match request {
                PeerRequest::Snapshot { vote, meta, length } => {
                    let offer = SnapshotOffer { vote, meta, length };
                    self.snapshot(offer, shown, start, stream).await?
                }
                request => self.handle(request, caller).await?,
            };
            tokio::time::timeout(TRANSFER, wire::write(stream, &reply))
                .await
                .map_err(|_| std::io::ErrorKind::TimedOut)??;
        }
    }

    /// Whether a connection that was let in is still answered: its replica may have been removed since.
    fn still_serves(&self, shown: &PeerConnection, start: StartMark) -> bool {
        self.roster.still_speaks(shown.replica, start)
            && self.roster.is_member(shown.replica)
            && self.roster.still_admits(shown)
            && !self.roster.is_rolled_back()
    }

    async fn handle(&self, request: PeerRequest, caller: ReplicaId) -> std::io::Result<PeerReply> {
        Ok(match request {
            PeerRequest::Append(mut append) => {
                self.check(caller, |known| known.check_append(&append, caller.0)).await?;
                check::bound_commit(&mut append, self.raft.metrics().borrow().last_log_index);
                let appended = self.raft.append_entries(append).await;
                if let Ok(answer) = &appended
                    && !matches!(answer, AppendEntriesResponse::HigherVote(_))
                {
                    self.appends.fetch_add(1, Ordering::AcqRel);
                }
                reply(appended, PeerReply::Append)
            }
            PeerRequest::Vote(_) if !self.roster.is_fit() || !self.roster.is_settled() => {
                PeerReply::Failed { why: "it does not vote yet, or not any more".to_owned() }
            }
            PeerRequest::Vote(vote) => {
                self.check(caller, |known| known.check_vote(&vote, caller.0)).await?;
                reply(self.raft.vote(vote).await, PeerReply::Vote)
            }
            // Comes with a file, and is taken where the connection is.
            PeerRequest::Snapshot { .. } => {
                PeerReply::Failed { why: "a snapshot without its file".to_owned() }
            }
            PeerRequest::Propose { commands } => self.propose(commands, caller).await,
            PeerRequest::ReadIndex => self.read_index().await,
            PeerRequest::Lines { after, until } => self.lines(after, until).await,
            PeerRequest::Report(report) => {
                self.roster.is_at(caller, report.address.clone());
                let audit_differs = self.differs(report.audit).await;
                PeerReply::Report { report: self.report(), audit_differs }
            }
            // One whose clock is wrong does not stand.
            PeerRequest::Elect if !self.clock_believed.load(Ordering::Acquire) => {
                PeerReply::Failed { why: "its clock is not right".to_owned() }
            }
            PeerRequest::Elect => reply(self.raft.trigger().elect().await, |()| PeerReply::Done),
            PeerRequest::Ask { question } => match self.answers.get() {
                Some(answers) => {
                    let answer = answers.answer(caller, question.into_vec()).await;
                    PeerReply::Answer { answer: serde_bytes::ByteBuf::from(answer) }
                }
                None => PeerReply::Failed { why: "it is still starting".to_owned() },
            },
        })
    }

    /// Ends the connection of a replica whose message would end this one.
    async fn check(
        &self,
        caller: ReplicaId,
        check: impl FnOnce(&Known) -> Result<(), &'static str>,
    ) -> std::io::Result<()> {
        let known = Known::by(&self.raft).await;
        let known = known.ok_or_else(|| std::io::Error::other("replication has stopped here"))?;
        check(&known).map_err(|why| {
            tracing::warn!(replica = %caller, why, "a message of another replica was not taken");
            std::io::Error::new(std::io::ErrorKind::InvalidData, why)
        })
    }

    /// Whether a file that arrived is the snapshot that was announced, with at least as much of the audit trail as there is here. All of it
    /// is read: once openraft has begun to install one, there is no way back.
    async fn is_snapshot(&self, path: &std::path::Path, meta: &SnapshotMeta<u64, BasicNode>) -> bool {
        let (snapshots, path, meta) = (self.snapshots.clone(), path.to_owned(), meta.clone());
        let own = self.board.view().audit.seq;
        let read = tokio::task::spawn_blocking(move || {
            let index = meta.last_log_id.map_or(0, |id| id.index);
            snapshots
                .read(&path, index)
                .map(|image| image.meta.to_raft() == meta && image.meta.audit.seq >= own)
        });
        match read.await {
            Ok(Ok(same)) => same,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a snapshot of another replica was not taken");
                false
            }
            Err(_) => false,
        }
    }

    /// Takes the file that follows, and installs it. What was asked before it came is asked again when it is there: a transfer takes
    /// minutes, in which its sender may have been removed or its term may have ended.
    async fn snapshot(
        &self,
        offer: SnapshotOffer,
        shown: &PeerConnection,
        start: StartMark,
        stream: &mut Box<dyn PeerStream>,
    ) -> std::io::Result<PeerReply> {
        let SnapshotOffer { vote, meta, length } = offer;
        let caller = shown.replica;
        self.check(caller, |known| known.check_snapshot(&vote, &meta, caller.0)).await?;
        if length > SNAPSHOT {
            return Err(std::io::Error::other(format!("a snapshot of {length} bytes")));
        }
        let number = self.received.fetch_add(1, Ordering::Relaxed);
        self.receiving().insert(caller, number);
        let is_wanted = || self.receiving().get(&caller) == Some(&number) && self.still_serves(shown, start);
        let path = self.snapshots.incoming(number);
        let received = receive(stream, &path, length, is_wanted).await;
        let taken = async {
            received?;
            let invalid = |why| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
            if !self.is_snapshot(&path, &meta).await {
                return Err(invalid("it is not the snapshot that was announced"));
            }
            if !is_wanted() {
                return Err(invalid(
                    "a snapshot of a replica that is no member any more, or has sent another",
                ));
            }
            self.check(caller, |known| known.check_snapshot(&vote, &meta, caller.0)).await?;
            tracing::info!(bytes = length, "a snapshot arrived");
            let snapshot = Snapshot { meta, snapshot: Box::new(Carrier { path: path.clone() }) };
            let installed = self.raft.install_full_snapshot(vote, snapshot).await;
            if installed.is_ok() {
                self.appends.fetch_add(1, Ordering::AcqRel);
                self.snapshots_installed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(reply(installed, |reply| PeerReply::Snapshot { vote: reply.vote }))
        }
        .await;
        // Whatever came of it, a copy is kept under its own name.
        let _ = tokio::fs::remove_file(&path).await;
        taken
    }

    fn receiving(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, u64>> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each command goes into the queue as if it had been proposed here.
    async fn propose(&self, commands: Vec<serde_bytes::ByteBuf>, caller: ReplicaId) -> PeerReply {
        // All are read before one is taken.
        let read = |encoded: serde_bytes::ByteBuf| {
            let envelope: Envelope = rmp_serde::from_slice(&encoded)?;
            Ok::<_, rmp_serde::decode::Error>(Arc::new(EncodedEnvelope {
                envelope,
                encoded: encoded.into_vec(),
            }))
        };
        let items: Vec<Arc<EncodedEnvelope>> = match commands.into_iter().map(read).collect() {
            Ok(items) => items,
            Err(error) => return PeerReply::Failed { why: format!("a command cannot be read: {error}") },
        };
        for item in &items {
            let Envelope { id, actor, .. } = &item.envelope;
            match actor {
                Actor::Replica { id } if *id != caller => {
                    return PeerReply::Failed { why: format!("a command of replica {id}") };
                }
                // The replica that a person asked has authenticated that person: which one it was stands in no record but this.
                Actor::Local { .. } | Actor::Operator { .. } | Actor::Key { .. } => {
                    tracing::info!(replica = %caller, %id, %actor, "a command was forwarded");
                }
                Actor::Node { .. }
                | Actor::Svid { .. }
                | Actor::Stranger
                | Actor::Reconciler
                | Actor::Replica { .. } => {}
            }
        }
        let mut waiting = Vec::with_capacity(items.len());
        for item in items {
            let (answer, answered) = oneshot::channel();
            let queued = self.queue.send(Waiting { item, answer, forwarded: true }).await;
            waiting.push(queued.ok().map(|()| answered));
        }
        let deadline = Instant::now() + PROPOSAL;
        let (mut index, mut fates) = (0, Vec::with_capacity(waiting.len()));
        for answered in waiting {
            let answered = match answered {
                Some(answered) => tokio::time::timeout_at(deadline, answered).await,
                None => {
                    fates.push(ProposalFate::NotTaken);
                    continue;
                }
            };
            fates.push(match answered {
                Ok(Ok(Ok(committed))) => {
                    index = index.max(committed.view.applied_index);
                    ProposalFate::Applied
                }
                Ok(Ok(Err(ProposeError::Unavailable | ProposeError::ShuttingDown))) => ProposalFate::NotTaken,
                Ok(Ok(Err(ProposeError::OutcomeUnknown)) | Err(_)) | Err(_) => ProposalFate::Unknown,
            });
        }
        PeerReply::Proposed { index, fates }
    }

    async fn read_index(&self) -> PeerReply {
        match self.raft.get_read_log_id().await {
            Ok((read, _)) => PeerReply::ReadIndex { index: read.map_or(0, |id| id.index) },
            Err(_) => PeerReply::NotLeader,
        }
    }

    async fn lines(&self, after: u64, until: u64) -> PeerReply {
        let audit = self.audit.clone();
        let until = until.min(self.board.view().audit.seq);
        let read = tokio::task::spawn_blocking(move || audit.read((after, until), LINES)).await;
        match read {
            Ok(Ok(lines)) => PeerReply::Lines { lines: lines.into_iter().map(|(_, line)| line).collect() },
            Ok(Err(error)) => PeerReply::Failed { why: error.to_string() },
            Err(error) => PeerReply::Failed { why: error.to_string() },
        }
    }

    /// Whether this replica has another line where the caller's trail ends. One that it has not is no difference.
    async fn differs(&self, theirs: AuditHead) -> bool {
        let own = self.board.view().audit;
        if theirs.seq == 0 || theirs.seq > own.seq {
            return false;
        }
        if theirs.seq == own.seq {
            return theirs.head != own.head;
        }
        let audit = self.audit.clone();
        let read = tokio::task::spawn_blocking(move || audit.list(theirs.seq - 1, 1)).await;
        let line = read.ok().and_then(Result::ok).and_then(|lines| lines.into_iter().next());
        line.and_then(|line| chain::read(&line, theirs.seq).ok()).is_some_and(|(_, hash)| hash != theirs.head)
    }
}

fn reply<T, E: std::fmt::Display>(result: Result<T, E>, make: impl FnOnce(T) -> PeerReply) -> PeerReply {
    match result {
        Ok(value) => make(value),
        Err(error) => PeerReply::Failed { why: error.to_string() },
    }
}

/// Takes a file for as long as its sender goes on sending and `is_wanted`.
async fn receive(
    stream: &mut Box<dyn PeerStream>,
    path: &std::path::Path,
    length: u64,
    is_wanted: impl Fn() -> bool,
) -> std::io::Result<()> {
    let mut file = tokio::fs::File::create(path).await?;
    let (mut left, mut piece) = (length, vec![0; 64 * 1024]);
    let (began, mut heard) = (Instant::now(), Instant::now());
    let mut looks = interval(STILL_WANTED);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = tokio::select! {
            biased;
            _ = looks.tick() => {
                if heard.elapsed() > TRANSFER || began.elapsed() > SNAPSHOT_TRANSFER {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
                if !is_wanted() {
                    return Err(std::io::ErrorKind::ConnectionAborted.into());
                }
                continue;
            }
            read = stream.read(piece.get_mut(..most).unwrap_or_default()) => read?,
        };
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        heard = Instant::now();
        file.write_all(piece.get(..read).unwrap_or_default()).await?;
        left = left.saturating_sub(read as u64);
    }
    file.flush().await
}
