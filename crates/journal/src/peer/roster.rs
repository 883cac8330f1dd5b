//! Who is known to be there: what each replica last said of itself, and who may speak to this one.

use super::handshake::Identity;
use super::link::Link;
use super::marks::{MarkFile, PeerMark, PeerMarks};
use super::starts::{Lineage, StartMark};
use super::wire::{PeerRefusal, PeerReply, PeerRequest, ReplicaReport};
use super::{PeerConnection, PeerConnector};
use crate::log::LogStore;
use crate::log_key::LogKey;
use crate::open_error::OpenError;
use crate::raft::Vote;
use crate::view::Board;
use lifecycle::names::ReplicaId;
use lifecycle::registry::{Owner, ReplicaState, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the answer to a question is waited for.
const QUESTION: Duration = Duration::from_secs(2);
/// Connections that one replica may have here at once.
const CONNECTIONS: usize = 24;
/// A process that has said nothing for so long has ended, whatever its connections look like: it reports every second.
const SILENT: Duration = Duration::from_secs(5);
/// How long a replica that starts waits for what the others have seen of it before it votes or writes.
const SETTLING: Duration = Duration::from_secs(6);
/// The same of one that knows no others: if there are any, they call it every second.
const CALLED: Duration = Duration::from_secs(3);
/// A registry that held everything acknowledged so long ago knows every replica that takes part.
const UP_TO_DATE: Duration = Duration::from_secs(5);
const SETTLING_PAUSE: Duration = Duration::from_millis(20);

/// What is known of another replica.
#[derive(Debug, Clone, Default)]
pub struct PeerStanding {
    pub report: Option<ReplicaReport>,
    /// When that was.
    pub heard: Option<Instant>,
    /// How far its clock is ahead of ours, in milliseconds; the last one known.
    pub clock_offset: Option<i64>,
    /// Which process of it was seen last, how far its log is known to have come, and by how many connections it is connected.
    mark: PeerMark,
    connections: usize,
    /// When it last asked for something.
    asked: Option<Instant>,
    /// Whether it was tried to reach it since this process started.
    tried: bool,
    /// Where it says that it is reached.
    address: Option<String>,
    /// What it told this replica instead of talking to it.
    refused: Option<PeerRefusal>,
    /// The last process of it that was turned away because of its directory.
    declined: Option<StartMark>,
}

impl PeerStanding {
    /// Of a replica that looks at itself.
    pub fn of_self(report: ReplicaReport) -> Self {
        Self { report: Some(report), heard: Some(Instant::now()), clock_offset: Some(0), ..Self::default() }
    }

    pub fn is_reachable(&self, within: Duration) -> bool {
        self.heard.is_some_and(|heard| heard.elapsed() < within)
    }

    /// Whether the process that was seen last is still there.
    fn is_connected(&self) -> bool {
        self.connections > 0 && self.asked.is_some_and(|asked| asked.elapsed() < SILENT)
    }

    /// Whether a process may speak for this replica, by what was seen of it before. `reached` is how far its log had come when it
    /// said how far it is.
    fn judge(&self, shown: &Identity, reached: u64) -> Result<(), PeerRefusal> {
        let lineage = shown.starts.follows(&self.mark.start);
        match lineage {
            Lineage::Later | Lineage::Other if self.is_connected() => Err(PeerRefusal::Duplicate),
            Lineage::Other => Err(PeerRefusal::RolledBack),
            Lineage::Later if shown.last_log < reached => Err(PeerRefusal::RolledBack),
            // While a process said how far its log is, it may have acknowledged more by another connection.
            Lineage::Same | Lineage::Later => Ok(()),
        }
    }
}

impl PeerStanding {
    /// Logs once for each process that a copy of this replica's directory runs, or an older state of it: whoever looks after the
    /// others would not learn of it.
    fn turned_away(&mut self, shown: &Identity, judged: Result<(), PeerRefusal>) -> Result<(), PeerRefusal> {
        let (replica, start) = (shown.replica, shown.starts.mark());
        let Err(why) = judged else { return Ok(()) };
        if self.declined.replace(start) != Some(start) {
            let what = if why == PeerRefusal::Duplicate {
                "another process with its identity is connected, so one of the two runs on a copy of its directory"
            } else {
                "its directory was put back, or is a copy of one that ran since"
            };
            tracing::warn!(%replica, start = start.count, reason = ?why, "a process that says it is replica {replica} is turned away: {what}");
        }
        judged
    }
}

pub struct Roster {
    own: ReplicaId,
    cluster: String,
    key: LogKey,
    connector: Option<Arc<dyn PeerConnector>>,
    /// Addresses that a new replica was given when it joined: used while it knows no others.
    seeds: BTreeMap<ReplicaId, String>,
    board: Arc<Board>,
    log: LogStore,
    peers: Mutex<BTreeMap<ReplicaId, PeerStanding>>,
    /// Who votes or is sent the log, as replication knows it.
    replicated: Mutex<BTreeSet<u64>>,
    /// The last moment of which the registry here is known to hold everything that was acknowledged.
    complete: Mutex<Option<Instant>>,
    /// For questions beyond replication.
    links: Mutex<BTreeMap<ReplicaId, Link>>,
    /// For asking whether a quorum still follows this replica.
    quorum_links: Mutex<BTreeMap<ReplicaId, Link>>,
    /// For asking for votes.
    vote_links: Mutex<BTreeMap<ReplicaId, Link>>,
    /// Where what was seen of the others is kept, and what was written there last.
    file: MarkFile,
    written: Mutex<PeerMarks>,
    began: Instant,
    /// Another replica has seen more of this one than its directory holds. Nothing but a new directory helps.
    rolled_back: AtomicBool,
}

/// What a roster is made of.
pub struct RosterParts {
    pub own: ReplicaId,
    pub cluster: String,
    pub key: LogKey,
    pub connector: Option<Arc<dyn PeerConnector>>,
    pub seeds: BTreeMap<ReplicaId, String>,
    pub board: Arc<Board>,
    pub log: LogStore,
    pub file: MarkFile,
}

impl Roster {
    pub fn new(parts: RosterParts) -> Result<Arc<Self>, OpenError> {
        let RosterParts { own, cluster, key, connector, seeds, board, log, file } = parts;
        let written = file.read()?;
        let known = |(id, mark): (&ReplicaId, &PeerMark)| {
            (*id, PeerStanding { mark: *mark, ..PeerStanding::default() })
        };
        let peers = Mutex::new(written.iter().map(known).collect());
        let (written, replicated, complete) = (Mutex::new(written), Mutex::default(), Mutex::default());
        let (links, quorum_links, vote_links) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Arc::new(Self {
            own,
            cluster,
            key,
            connector,
            seeds,
            board,
            log,
            peers,
            replicated,
            complete,
            links,
            quorum_links,
            vote_links,
            file,
            written,
            began: Instant::now(),
            rolled_back: AtomicBool::new(false),
        }))
    }

    /// The last entry of this replica's log.
    pub fn last_log(&self) -> u64 {
        self.log.last_index().unwrap_or(0)
    }

    pub fn key(&self) -> &LogKey {
        &self.key
    }

    pub fn connector(&self) -> std::io::Result<&Arc<dyn PeerConnector>> {
        self.connector.as_ref().ok_or_else(|| std::io::Error::other("this replica is the only one"))
    }

    pub fn identity(&self) -> Identity {
        let view = self.board.view();
        Identity {
            replica: self.own,
            cluster: view
                .state
                .domain
                .as_ref()
                .map_or_else(|| self.cluster.clone(), |domain| domain.cluster.to_string()),
            epoch: view.state.epoch,
            starts: self.log.starts().clone(),
            // A snapshot that was taken over may be ahead of the log for a moment.
            last_log: self.last_log().max(view.applied_index),
        }
    }

    /// Where a replica is reached: as it says itself, as the registry says, or as this one was told when it joined.
    pub fn address(&self, replica: ReplicaId) -> Option<String> {
        let view = self.board.view();
        let told = self.peers().get(&replica).and_then(|known| known.address.clone());
        let known = || view.state.replicas.get(&replica).map(|record| record.peer.clone());
        told.or_else(known).or_else(|| self.seeds.get(&replica).cloned())
    }

    /// The other members, as far as this replica knows.
    pub fn others(&self) -> Vec<ReplicaId> {
        let view = self.board.view();
        let members = view.state.replicas.values().filter(|record| record.state == ReplicaState::Member);
        let known: Vec<ReplicaId> = members.map(|record| record.id).filter(|id| *id != self.own).collect();
        if view.state.replicas.is_empty() {
            return self.seeds.keys().copied().filter(|id| *id != self.own).collect();
        }
        known
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, PeerStanding>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn standing(&self, replica: ReplicaId) -> PeerStanding {
        self.peers().get(&replica).cloned().unwrap_or_default()
    }

    /// By the registry as this replica knows it. A certificate that is not on record here may be newer than what has arrived: the
    /// proof of the log key speaks for it, unless its issuer is known to be denied.
    pub fn admits_certificate(&self, connection: &PeerConnection) -> Result<(), PeerRefusal> {
        let view = self.board.view();
        let state = &view.state;
        let removed = match state.replicas.get(&connection.replica).map(|record| record.state) {
            // One that was removed is talked to until replication does without it: it may be needed for that.
            Some(ReplicaState::Removed) if self.is_replicated(connection.replica) => true,
            Some(ReplicaState::Removed) => return Err(PeerRefusal::Removed),
            Some(ReplicaState::Member) | None => false,
        };
        let Some(record) = state.certificates.get(&connection.serial) else {
            return admits_unrecorded(state, connection);
        };
        let own = record.owner == Owner::Replica(connection.replica)
            && record.fingerprint == connection.fingerprint;
        // The removal has denied the certificates of the one that was removed. A member's that was superseded while it was away
        // lets it in, to be renewed; so does one of the issuer that was revoked, while no other could sign a new one.
        let denied = !removed && state.is_denied(&connection.serial) && state.server_issuer().is_some();
        if own && !denied { Ok(()) } else { Err(PeerRefusal::Denied) }
    }

    /// Whether a caller that has proven to know the log key is believed when it refuses this replica: it would have been let in
    /// itself. One that was removed is not, although replication may still need it for a moment.
    pub fn may_refuse(&self, connection: &PeerConnection) -> bool {
        !self.was_removed(connection.replica)
            && self.admits_certificate(connection).is_ok()
            && self.may_exist(connection.replica)
    }

    pub fn was_removed(&self, replica: ReplicaId) -> bool {
        let view = self.board.view();
        view.state.replicas.get(&replica).is_some_and(|record| record.state == ReplicaState::Removed)
    }

    /// Takes an incoming connection of a caller that has proven itself.
    pub fn admit(&self, connection: &PeerConnection, caller: &Identity) -> Result<(), PeerRefusal> {
        self.admits_certificate(connection)?;
        if !self.may_exist(caller.replica) {
            return Err(PeerRefusal::Unknown);
        }
        if self.is_rolled_back() {
            return Err(PeerRefusal::Unfit);
        }
        let mut peers = self.peers();
        let known = peers.entry(caller.replica).or_default();
        let is_same = caller.starts.follows(&known.mark.start) == Lineage::Same;
        let judged = known.judge(caller, known.mark.reached);
        known.turned_away(caller, judged)?;
        if !is_same {
            self.remember_start(&mut peers, caller)?;
        }
        let known = peers.entry(caller.replica).or_default();
        if known.connections >= CONNECTIONS {
            return Err(PeerRefusal::Busy);
        }
        known.connections += 1;
        known.asked = Some(Instant::now());
        Ok(())
    }

    /// Whether the one that answered an outgoing connection may be talked to. `reached` is how far its log had come before it was
    /// greeted.
    pub fn admit_called(&self, called: &Identity, reached: u64) -> Result<(), PeerRefusal> {
        let mut peers = self.peers();
        let known = peers.entry(called.replica).or_default();
        let judged = known.judge(called, reached);
        known.turned_away(called, judged)?;
        if called.starts.mark() != known.mark.start {
            self.remember_start(&mut peers, called)?;
        }
        Ok(())
    }

    /// From now on no other process speaks for this replica, unless its directory has this start: on disk before it is answered.
    fn remember_start(
        &self,
        peers: &mut BTreeMap<ReplicaId, PeerStanding>,
        shown: &Identity,
    ) -> Result<(), PeerRefusal> {
        let known = peers.entry(shown.replica).or_default();
        // Connections of the process before are of no use to anybody.
        (known.mark.start, known.connections, known.asked) = (shown.starts.mark(), 0, None);
        self.write_marks(marks(peers)).map_err(|error| {
            tracing::error!(%error, "what was seen of another replica could not be kept");
            PeerRefusal::Busy
        })
    }

    fn write_marks(&self, marks: PeerMarks) -> std::io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written != marks {
            self.file.write(&marks)?;
            *written = marks;
        }
        Ok(())
    }

    /// Keeps how far the others have come.
    pub fn keep_marks(&self) {
        // Held while it is written: a start that is seen meanwhile must not be written over.
        let peers = self.peers();
        if let Err(error) = self.write_marks(marks(&peers)) {
            tracing::warn!(%error, "what was seen of the other replicas could not be kept");
        }
    }

    /// How far the log of a replica is known to have come.
    pub fn known_reach(&self, replica: ReplicaId) -> u64 {
        self.peers().get(&replica).map_or(0, |known| known.mark.reached)
    }

    /// A process asks for something; false if a later one has taken its place.
    pub fn still_speaks(&self, replica: ReplicaId, start: StartMark) -> bool {
        let mut peers = self.peers();
        let known = peers.entry(replica).or_default();
        if known.mark.start != start {
            return false;
        }
        known.asked = Some(Instant::now());
        true
    }

    pub fn leave(&self, replica: ReplicaId, start: StartMark) {
        if let Some(known) = self.peers().get_mut(&replica).filter(|known| known.mark.start == start) {
            known.connections = known.connections.saturating_sub(1);
        }
    }

    /// Whether a connection that was let in may still be used: what is known of its issuer and its replica may have arrived since.
    pub fn still_admits(&self, connection: &PeerConnection) -> bool {
        let view = self.board.view();
        let recorded = view.state.certificates.contains_key(&connection.serial);
        (recorded || admits_unrecorded(&view.state, connection).is_ok()) && self.may_exist(connection.replica)
    }

    /// Whether there may be a replica with this id. One that is behind must be caught up by members that it has never heard of;
    /// one that is not knows every id that was given out.
    fn may_exist(&self, replica: ReplicaId) -> bool {
        let given_out = self.board.view().state.last_replica;
        let complete = *self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        let up_to_date = complete.is_some_and(|complete| complete.elapsed() < UP_TO_DATE);
        replica.0 <= given_out || !up_to_date || self.is_replicated(replica)
    }

    /// The registry here holds everything that was acknowledged so long ago.
    pub fn was_complete(&self, ago: Duration) {
        if let Some(moment) = Instant::now().checked_sub(ago) {
            *self.complete.lock().unwrap_or_else(PoisonError::into_inner) = Some(moment);
        }
    }

    /// Whether a replica that was let in may still speak.
    pub fn is_member(&self, replica: ReplicaId) -> bool {
        if self.is_replicated(replica) {
            return true;
        }
        let view = self.board.view();
        view.state.replicas.get(&replica).is_none_or(|record| record.state == ReplicaState::Member)
    }

    fn is_replicated(&self, replica: ReplicaId) -> bool {
        self.replicated.lock().unwrap_or_else(PoisonError::into_inner).contains(&replica.0)
    }

    /// Who votes or is sent the log now.
    pub fn follow_membership(&self, members: BTreeSet<u64>) {
        *self.replicated.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// What a replica said when this one wanted to talk to it, or was to be talked to.
    pub fn refused_by(&self, replica: ReplicaId, why: Option<PeerRefusal>) {
        let mut peers = self.peers();
        let known = peers.entry(replica).or_default();
        (known.refused, known.tried) = (why, true);
        if why == Some(PeerRefusal::RolledBack) && !self.rolled_back.swap(true, Ordering::AcqRel) {
            tracing::error!(
                noticed_by = %replica,
                "the directory of replica {own} is older than what the others have seen of this replica: it was put back, or is a copy of \
                 a directory that ran since. If the original directory exists, stop this process and start the original; if not, remove \
                 replica {own} and join again with an empty directory",
                own = self.own,
            );
        }
    }

    /// Whether this directory holds less than the replica had acknowledged, or is a copy.
    pub fn is_rolled_back(&self) -> bool {
        self.rolled_back.load(Ordering::Acquire)
    }

    /// Whether this process may vote, lead and write: nobody has seen another one in its place.
    pub fn is_fit(&self) -> bool {
        !self.is_rolled_back() && !self.refusal(PeerRefusal::Duplicate)
    }

    /// Whether the others were asked what they have seen of this replica, those that answer.
    pub fn is_settled(&self) -> bool {
        if self.began.elapsed() >= SETTLING {
            return true;
        }
        let others = self.others();
        if others.is_empty() {
            let in_a_cluster = !self.board.view().state.replicas.is_empty();
            return !in_a_cluster || self.began.elapsed() >= CALLED;
        }
        let peers = self.peers();
        others.iter().all(|other| peers.get(other).is_some_and(|known| known.tried))
    }

    pub async fn settled(&self) {
        while !self.is_settled() {
            tokio::time::sleep(SETTLING_PAUSE).await;
        }
    }

    /// What others say of this replica, if any of them does not talk to it. Of one that was removed it does not count any more.
    pub fn refusal(&self, wanted: PeerRefusal) -> bool {
        let refusing: Vec<ReplicaId> = {
            let peers = self.peers();
            peers.iter().filter(|(_, known)| known.refused == Some(wanted)).map(|(id, _)| *id).collect()
        };
        refusing.into_iter().any(|id| !self.was_removed(id))
    }

    /// A replica says where it is reached.
    pub fn is_at(&self, replica: ReplicaId, address: Option<String>) {
        if address.is_some() {
            self.peers().entry(replica).or_default().address = address;
        }
    }

    /// The log of a replica has come this far: from then on it may not come with less.
    pub fn reached(&self, replica: ReplicaId, index: u64) {
        let mut peers = self.peers();
        let known = peers.entry(replica).or_default();
        known.mark.reached = known.mark.reached.max(index);
    }

    /// What a replica said of itself, when it was asked and how far its clock is off.
    pub fn heard(&self, replica: ReplicaId, report: ReplicaReport, offset: i64) {
        let mut peers = self.peers();
        let known = peers.entry(replica).or_default();
        // What was applied was committed, and in its log before that.
        known.mark.reached = known.mark.reached.max(report.applied);
        (known.heard, known.clock_offset, known.report) = (Some(Instant::now()), Some(offset), Some(report));
        known.refused = None;
    }

    /// Asks a replica something beyond replication.
    pub async fn ask(self: &Arc<Self>, replica: ReplicaId, question: Vec<u8>) -> Option<Vec<u8>> {
        let question = serde_bytes::ByteBuf::from(question);
        let link = self.link(replica);
        let asked = link.ask(PeerRequest::Ask { question });
        match tokio::time::timeout(QUESTION, asked).await {
            Ok(Ok(PeerReply::Answer { answer })) => Some(answer.into_vec()),
            Ok(Ok(_) | Err(_)) | Err(_) => None,
        }
    }

    /// Asks a replica to stand for election; nobody waits for it.
    pub fn ask_to_lead(self: &Arc<Self>, replica: ReplicaId) {
        let link = self.link(replica);
        tokio::spawn(async move { drop(link.ask(PeerRequest::Elect).await) });
    }

    /// Asks a replica to stand for election, and waits until it has heard.
    pub async fn elect(self: &Arc<Self>, replica: ReplicaId) -> bool {
        let link = self.link(replica);
        let asked = tokio::time::timeout(QUESTION, link.ask(PeerRequest::Elect)).await;
        matches!(asked, Ok(Ok(PeerReply::Done)))
    }

    /// The connection for questions of this kind.
    fn link(self: &Arc<Self>, replica: ReplicaId) -> Link {
        self.kept_link(&self.links, replica)
    }

    /// The connection for empty appends, which wait behind nothing else.
    pub fn quorum_link(self: &Arc<Self>, replica: ReplicaId) -> Link {
        self.kept_link(&self.quorum_links, replica)
    }

    /// The connection for votes, kept from one election to the next: on a busy machine a handshake takes longer than an election may.
    pub fn vote_link(self: &Arc<Self>, replica: ReplicaId) -> Link {
        self.kept_link(&self.vote_links, replica)
    }

    /// The vote that this replica has on disk: it is there before anybody hears of it.
    pub fn vote(&self) -> Option<Vote> {
        self.log.vote()
    }

    fn kept_link(self: &Arc<Self>, links: &Mutex<BTreeMap<ReplicaId, Link>>, replica: ReplicaId) -> Link {
        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
        links.entry(replica).or_insert_with(|| Link::new(replica, Arc::clone(self))).clone()
    }
}

/// Of a certificate that is not on record here. What an issuer signed before it was denied is on record wherever the denial is, so
/// this one was made by whoever has its key. An issuer that is not on record may be newer than what has arrived.
fn admits_unrecorded(state: &State, connection: &PeerConnection) -> Result<(), PeerRefusal> {
    let revoked = connection.issuer.as_ref().is_some_and(|issuer| state.issuer_is_revoked(issuer));
    let listed =
        state.root_lists().any(|list| connection.above.iter().any(|above| list.denied.contains(above)));
    if revoked || listed { Err(PeerRefusal::Denied) } else { Ok(()) }
}

fn marks(peers: &BTreeMap<ReplicaId, PeerStanding>) -> PeerMarks {
    peers
        .iter()
        .map(|(id, known)| (*id, known.mark))
        .filter(|(_, mark)| *mark != PeerMark::default())
        .collect()
}
