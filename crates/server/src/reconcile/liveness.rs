//! Who is there, who is not, and what looks wrong about it.

use super::propose;
use crate::process::app::App;
use lifecycle::names::{NodeId, Span, Timestamp};
use lifecycle::registry::{AlertKind, Command, NodeState, RaiseAlert, Silence};
use std::collections::BTreeSet;

/// Signs of life are written down this often in a grace period.
const PER_GRACE: u64 = 5;
/// How many nodes one entry may be about.
const AT_ONCE: usize = 1000;
/// And how many that say something of themselves: a few KiB each.
const REPORTS_AT_ONCE: usize = 200;

pub async fn tick(app: &App) {
    let now = app.now();
    let view = app.view();
    let grace = view.state.policy.liveness_grace;
    app.fleet.presence.find_doubles(now);
    for suspicion in app.fleet.presence.suspicions() {
        tracing::warn!(node = %suspicion.node, "{}", suspicion.detail);
        raise(app, AlertKind::CloneSuspected, &suspicion.node, suspicion.detail).await;
    }
    let sightings = app.fleet.presence.sightings(now, Span::from_millis(grace.millis() / PER_GRACE));
    let (saying, seen): (Vec<_>, Vec<_>) = sightings.into_iter().partition(|seen| seen.report.is_some());
    for some in saying.chunks(REPORTS_AT_ONCE).chain(seen.chunks(AT_ONCE)) {
        propose(app, Command::Observe(some.to_vec())).await;
    }
    let silent = silent(app, now, grace);
    for some in silent.chunks(AT_ONCE) {
        let silence = Silence { nodes: some.to_vec(), listening_since: app.fleet.listening_since };
        propose(app, Command::MarkInactive(silence)).await;
    }
    stuck(app, now).await;
}

fn silent(app: &App, now: Timestamp, grace: Span) -> Vec<NodeId> {
    let view = app.view();
    let heard = |id: &NodeId, written: Option<Timestamp>| {
        let live = app.fleet.presence.last_seen(id);
        app.fleet.listening_since.max(live.max(written).unwrap_or(app.fleet.listening_since))
    };
    view.state
        .nodes
        .values()
        .filter(|node| {
            node.state == NodeState::Active
                && node.streamed
                && heard(&node.id, node.last_seen).plus(grace) <= now
        })
        .map(|node| node.id.clone())
        .collect()
}

/// Enrollments that nobody has confirmed for too long.
async fn stuck(app: &App, now: Timestamp) {
    let view = app.view();
    let limit = view.state.policy.stuck_after;
    let alerts = view.state.alerts.values().filter(|alert| alert.kind == AlertKind::EnrollmentStuck);
    let known: BTreeSet<&NodeId> = alerts.filter_map(|alert| alert.node.as_ref()).collect();
    for node in view.state.nodes.values().filter(|node| {
        node.state == NodeState::Enrolled
            && app.fleet.listening_since.max(node.state_since).plus(limit) <= now
            && !known.contains(&node.id)
    }) {
        let detail = format!("enrolled at {} and not seen since", node.state_since);
        raise(app, AlertKind::EnrollmentStuck, &node.id, detail).await;
    }
}

async fn raise(app: &App, kind: AlertKind, node: &NodeId, detail: String) {
    propose(app, Command::RaiseAlert(RaiseAlert { kind, node: Some(node.clone()), detail })).await;
}
