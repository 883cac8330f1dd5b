//! The cluster as this replica sees it, with or without a majority.

use super::QUORUM_LOST;
use crate::process::app::App;
use crate::process::metrics::RaftFigures;
use api::rest::cluster::{Cluster, ReplicaHealth, ReplicaItem, ReplicaRole};
use journal::{PeerRefusal, PeerStanding, ReplicationProgress};
use lifecycle::names::ReplicaId;
use lifecycle::registry::Replica;
use std::time::Duration;

/// One that was not heard of for so long cannot be reached.
pub const UNREACHABLE: Duration = Duration::from_secs(5);
/// One that lacks more entries than this is behind.
const LAGGING: u64 = 256;
/// How far a clock may be off.
const SKEW_MS: i64 = 60_000;

pub fn cluster(app: &App) -> Cluster {
    let (view, replication) = (app.view(), app.journal.replication());
    let age = app.journal.quorum_age();
    let domain = view.state.domain.as_ref();
    let leader = app.journal.leader().filter(|_| age <= QUORUM_LOST);
    // One that was removed is shown for as long as it counts for the majority.
    let (own, is_refused) = (app.journal.replica(), app.journal.is_refused(PeerRefusal::Removed));
    let is_out = |id: ReplicaId| id == own && is_refused;
    let counts = |replica: &&Replica| {
        replica.is_member() || (app.journal.is_replicated(replica.id) && !is_out(replica.id))
    };
    let shown = view.state.replicas.values().filter(counts);
    let mut replicas: Vec<ReplicaItem> = shown.map(|replica| item(app, replica, &replication)).collect();
    if replicas.is_empty() {
        replicas.push(alone(app));
    }
    Cluster {
        replica_id: app.journal.replica().to_string(),
        cluster_id: domain.map(|domain| domain.cluster.to_string()).unwrap_or_default(),
        domain: domain.map(|domain| domain.name.to_string()).unwrap_or_default(),
        epoch: view.state.epoch,
        term: replication.term,
        leader: leader.map(|leader| leader.to_string()),
        quorum: age <= QUORUM_LOST,
        feature_level: view.state.feature_level,
        state_age_ms: super::state_age_ms(app),
        reasons: super::complaints(app).into_iter().map(str::to_owned).collect(),
        replicas,
    }
}

/// The same as numbers, of this replica alone.
pub fn figures(app: &App) -> RaftFigures {
    let (view, replication) = (app.view(), app.journal.replication());
    let reports = view.state.members().filter_map(|member| app.journal.standing(member.id).report);
    // One that the others do not talk to knows nothing of them.
    let is_excluded = super::exclusions(app).next().is_some();
    let others = view.state.members().map(|member| member.id);
    let others = others.filter(|id| *id != app.journal.replica() && !is_excluded);
    let reachable = |id: ReplicaId| (id.0, app.journal.standing(id).is_reachable(UNREACHABLE));
    let furthest = reports.map(|report| report.last_log).fold(replication.last_log, u64::max);
    RaftFigures {
        is_leader: super::role(app) == super::ClusterRole::Leader,
        term: replication.term,
        lag: furthest.saturating_sub(view.applied_index),
        applied: view.applied_index,
        voters: app.journal.membership().0.len() as u64,
        reachable: others.map(reachable).collect(),
        newest_snapshot: app.journal.newest_snapshot(),
        snapshots_installed: replication.snapshots_installed,
    }
}

fn own_role(app: &App, id: u64) -> (ReplicaRole, bool) {
    let (voters, _) = app.journal.membership();
    let voter = voters.contains(&id);
    let leads =
        app.journal.quorum_age() <= QUORUM_LOST && app.journal.leader().is_some_and(|leader| leader.0 == id);
    let role = match (leads, voter) {
        (true, _) => ReplicaRole::Leader,
        (false, true) => ReplicaRole::Follower,
        (false, false) => ReplicaRole::Learner,
    };
    (role, voter)
}

fn item(app: &App, member: &Replica, replication: &ReplicationProgress) -> ReplicaItem {
    let (role, voter) = own_role(app, member.id.0);
    let is_own = member.id == app.journal.replica();
    let standing = if is_own { own(app) } else { app.journal.standing(member.id) };
    let report = standing.report.as_ref();
    // A new leader has matched nothing yet with a replica that does not answer, and reports are up to a second old.
    let matched = replication.matched.get(&member.id.0).copied().filter(|_| !is_own);
    let reached = matched.max(report.map(|report| report.last_log));
    let lag = match role {
        ReplicaRole::Leader => Some(0),
        ReplicaRole::Follower | ReplicaRole::Learner => {
            reached.map(|reached| replication.last_log.saturating_sub(reached))
        }
    };
    let offset = standing.clock_offset;
    let health = if !standing.is_reachable(UNREACHABLE) {
        ReplicaHealth::Unreachable
    } else if offset.is_some_and(|offset| offset.abs() > SKEW_MS)
        || report.is_some_and(|report| !report.clock_believed)
    {
        ReplicaHealth::ClockSkew
    } else if lag.is_some_and(|lag| lag > LAGGING) {
        ReplicaHealth::Lagging
    } else {
        ReplicaHealth::Ok
    };
    ReplicaItem {
        replica_id: member.id.to_string(),
        role,
        voter,
        url: member.urls.first().cloned(),
        peer: member.peer.clone(),
        health,
        lag,
        applied: report.map(|report| report.applied),
        audit_seq: report.map(|report| report.audit.seq),
        audit_head: report.map(|report| report.audit.head.hex()),
        clock_offset_ms: offset,
        version: report.map(|report| report.version.clone()),
    }
}

/// What this replica would hear of itself.
fn own(app: &App) -> PeerStanding {
    PeerStanding::of_self(app.journal.report())
}

/// A replica that was never announced: it is the only one.
fn alone(app: &App) -> ReplicaItem {
    let (role, voter) = own_role(app, app.journal.replica().0);
    let report = app.journal.report();
    ReplicaItem {
        replica_id: app.journal.replica().to_string(),
        role,
        voter,
        url: app.own_urls().into_iter().next(),
        peer: String::new(),
        health: ReplicaHealth::Ok,
        lag: Some(0),
        applied: Some(report.applied),
        audit_seq: Some(report.audit.seq),
        audit_head: Some(report.audit.head.hex()),
        clock_offset_ms: Some(0),
        version: Some(report.version),
    }
}
