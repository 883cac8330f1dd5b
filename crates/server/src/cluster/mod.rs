//! The cluster: this replica's identity among the others, the connections between them, joining, and who votes.

pub mod announce;
pub mod clock;
pub mod corroboration;
pub mod freshness;
pub mod join;
pub mod local;
pub mod membership;
pub mod peer_address;
pub mod peer_listener;
pub mod peer_tls;
pub mod peer_watch;
pub mod questions;
pub mod status;

use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::datadir::DataDir;
use api::code::{self, Code};
use journal::Journal;
use lifecycle::names::ReplicaId;
use peer_tls::PeerTls;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// How old the last proof of a quorum may be before `/readyz` says that there is none.
pub const QUORUM_LOST: Duration = Duration::from_secs(5);
/// For how long a leader needs no new proof: less than the shortest election time-out, 0.8 s.
const LEASE: Duration = Duration::from_millis(750);
/// After so long in vain nobody is kept waiting for a leader.
const LOST: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);
/// Within what time another replica has to answer to count as there, where what was heard of it before is not enough.
pub const ANSWER: Duration = Duration::from_secs(5);

/// What this replica needs to talk to others.
pub struct Replication {
    /// Where this replica keeps its certificate.
    pub dir: DataDir,
    pub tls: Arc<PeerTls>,
    /// Where others reach this replica, once that is served.
    pub listener: OnceLock<SocketAddr>,
    /// Held while this replica announces itself.
    pub announcing: Mutex<()>,
    /// Its clock is far from those of the others.
    pub clock_is_off: AtomicBool,
    pub may_lead: AtomicBool,
}

impl Replication {
    pub fn new(tls: Arc<PeerTls>, dir: DataDir) -> Self {
        Self {
            dir,
            tls,
            listener: OnceLock::new(),
            announcing: Mutex::new(()),
            clock_is_off: AtomicBool::new(false),
            may_lead: AtomicBool::new(true),
        }
    }
}

impl Replication {
    /// Answers other replicas at this address from now on. Again is no harm.
    pub fn serve(
        &self,
        journal: &Arc<Journal>,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        if self.listener.get().is_some() {
            return Ok(());
        }
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let bound = listener.local_addr()?;
        if self.listener.set(bound).is_ok() {
            tokio::spawn(peer_listener::accept(journal.clone(), self.tls.clone(), listener, stopping));
        }
        Ok(())
    }
}

/// Where this replica stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterRole {
    Leader,
    Follower,
    Learner,
    /// Without a majority.
    CutOff,
}

impl ClusterRole {
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterRole::Leader => "leader",
            ClusterRole::Follower => "follower",
            ClusterRole::Learner => "learner",
            ClusterRole::CutOff => "cut_off",
        }
    }
}

pub fn role(app: &App) -> ClusterRole {
    let journal = &app.journal;
    if journal.quorum_age() > QUORUM_LOST || !journal.is_fit() {
        return ClusterRole::CutOff;
    }
    let (voters, _) = journal.membership();
    match (journal.is_leader(), voters.contains(&journal.replica().0)) {
        (true, _) => ClusterRole::Leader,
        (false, true) => ClusterRole::Follower,
        (false, false) => ClusterRole::Learner,
    }
}

/// Whether this replica knows from the registry that it was removed.
pub fn is_removed(app: &App) -> bool {
    app.view().state.replicas.get(&app.journal.replica()).is_some_and(|record| !record.is_member())
}

/// Why the others do not talk to this replica, where that is its own matter: no other one that is started helps.
pub fn exclusions(app: &App) -> impl Iterator<Item = &'static Code> {
    let journal = &app.journal;
    // While replication counts it, stopping it may cost the others their majority.
    let removed = (is_removed(app) && !journal.is_replicated(journal.replica()))
        || journal.is_refused(journal::PeerRefusal::Removed);
    [
        (removed, code::REPLICA_REMOVED),
        (journal.is_refused(journal::PeerRefusal::Duplicate), code::REPLICA_DUPLICATE),
        (journal.is_rolled_back(), code::REPLICA_ROLLED_BACK),
    ]
    .into_iter()
    .filter_map(|(is_so, code)| is_so.then_some(code))
}

/// What is wrong with this replica as one of several.
pub fn complaints(app: &App) -> Vec<&'static str> {
    let journal = &app.journal;
    let mut reasons: Vec<&str> = exclusions(app).map(|code| code.word).collect();
    if journal.trail_differs() {
        reasons.push("audit_differs");
    }
    if journal.quorum_age() > QUORUM_LOST {
        reasons.push("no_quorum");
    }
    if app.cluster.clock_is_off.load(Ordering::Acquire) && app.clock.is_believed() {
        reasons.push("clock_skew");
    }
    reasons
}

/// Whether what this replica knows may be too old to judge a node by: no quorum was heard of for `stale_after`, or the others do not
/// talk to it, so that no revocation reaches it.
pub fn is_stale(app: &App) -> bool {
    let limit = Duration::from_millis(app.view().state.policy.stale_after.millis());
    app.journal.quorum_age() > limit || !app.journal.is_fit() || exclusions(app).next().is_some()
}

/// How old what this replica knows may be: since the last proof of a quorum, or since its last entry if there was none since the start.
pub fn state_age_ms(app: &App) -> u64 {
    let journal = &app.journal;
    if journal.is_alone() {
        return 0;
    }
    match journal.quorum_age() {
        Duration::MAX => app.now().millis().saturating_sub(app.view().state.at.millis()),
        age => u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Refuses a node here, so that it goes to another replica; never as revoked.
pub fn check_fresh(app: &App) -> Result<(), Failure> {
    if is_stale(app) {
        let message = match exclusions(app).next() {
            Some(why) => format!("the other replicas do not talk to this one ({})", why.word),
            None => "this replica has had no contact with a majority of the cluster for too long".to_owned(),
        };
        return Err(Failure::new(code::STALE, message).retry_after(5));
    }
    Ok(())
}

/// Sees everything that was acknowledged before this call, by any replica, if there is a leader to ask. Tells whether it does.
pub async fn caught_up(app: &App) -> bool {
    let journal = &app.journal;
    // Nobody else is elected so soon after a majority has followed this one.
    if journal.is_alone() || (journal.is_leader() && journal.quorum_age() < LEASE) {
        return true;
    }
    // A process that was stopped for a while may think that it leads, and its first question tells it that it does not: the next
    // one goes to the leader.
    let began = Instant::now();
    while journal.is_fit() && journal.quorum_failing_for().max(began.elapsed()) < LOST {
        if journal.barrier().await.is_ok() {
            return true;
        }
        tokio::time::sleep(PAUSE).await;
    }
    false
}

/// An id of a replica that a caller names.
pub fn replica_id(text: &str) -> Result<ReplicaId, Failure> {
    ReplicaId::parse(text)
        .map_err(|_| Failure::new(code::REPLICA_NOT_FOUND, "there is no replica with this id"))
}
