//! Who is there, who is not, and what looks wrong about it.

use super::{propose, record};
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::{NodeId, Span, Timestamp};
use lifecycle::registry::{AlertKind, Command, NodeState, RaiseAlert, Silence, State};
use std::collections::BTreeSet;

/// Signs of life are written down this often in a grace period.
const PER_GRACE: u64 = 5;
/// How many nodes one entry may be about.
const AT_ONCE: usize = 1000;
/// And how many that say something of themselves: a few KiB each.
const REPORTS_AT_ONCE: usize = 200;

/// What the streams and requests of this replica have shown: copied identities and signs of life.
pub async fn record_sightings(app: &App) {
    let now = app.now();
    let grace = app.view().state.policy.liveness_grace;
    let presence = &app.fleet.presence;
    presence.find_doubles(now);
    for suspicion in presence.suspicions() {
        tracing::warn!(node = %suspicion.node, "{}", suspicion.detail);
        let (kind, node) = (AlertKind::CloneSuspected, Some(suspicion.node));
        record(app, Command::RaiseAlert(RaiseAlert { kind, node, detail: suspicion.detail })).await;
    }
    let sightings = presence.sightings(now, Span::from_millis(grace.millis() / PER_GRACE));
    let (saying, seen): (Vec<_>, Vec<_>) = sightings.into_iter().partition(|seen| seen.report.is_some());
    for some in saying.chunks(REPORTS_AT_ONCE).chain(seen.chunks(AT_ONCE)) {
        record(app, Command::Observe(some.to_vec())).await;
    }
}

/// Nodes that have fallen silent, and enrollments that nobody has confirmed.
pub async fn tick(app: &App, leadership: &Leadership) {
    let (view, now) = (app.view(), app.now());
    let listening_since = app.fleet.listening_since;
    for some in silent(app, &view.state, now).chunks(AT_ONCE) {
        let silence = Silence { nodes: some.to_vec(), listening_since };
        propose(app, leadership, Command::MarkInactive(silence)).await;
    }
    for (node, detail) in stuck(app, &view.state, now) {
        let raise = RaiseAlert { kind: AlertKind::EnrollmentStuck, node: Some(node), detail };
        propose(app, leadership, Command::RaiseAlert(raise)).await;
    }
}

fn silent(app: &App, state: &State, now: Timestamp) -> Vec<NodeId> {
    let (grace, since) = (state.policy.liveness_grace, app.fleet.listening_since);
    // A connected host that has not heard of a shorter grace is judged by the one that it was told. One without a stream
    // is told when it comes back.
    let until = |id: &NodeId, written: Option<Timestamp>| {
        let (live, told) = app.fleet.presence.silence(id);
        since.max(live.max(written).unwrap_or(since)).plus(told.map_or(grace, |told| told.max(grace)))
    };
    let silent = state.nodes.values().filter(|node| {
        node.state == NodeState::Active && node.streamed && until(&node.id, node.last_seen) <= now
    });
    silent.map(|node| node.id.clone()).collect()
}

/// Enrollments that nobody has confirmed for too long, and what the alert says.
fn stuck(app: &App, state: &State, now: Timestamp) -> Vec<(NodeId, String)> {
    let (limit, since) = (state.policy.stuck_after, app.fleet.listening_since);
    let alerts = state.alerts.values().filter(|alert| alert.kind == AlertKind::EnrollmentStuck);
    let known: BTreeSet<&NodeId> = alerts.filter_map(|alert| alert.node.as_ref()).collect();
    let stuck = state.nodes.values().filter(|node| {
        node.state == NodeState::Enrolled
            && since.max(node.state_since).plus(limit) <= now
            && !known.contains(&node.id)
    });
    let detail = |since: Timestamp| format!("enrolled at {since} and not seen since");
    stuck.map(|node| (node.id.clone(), detail(node.state_since))).collect()
}
