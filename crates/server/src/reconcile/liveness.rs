//! Who is there, who is not, and what looks wrong about it.

use super::{propose, record};
use crate::fleet::everywhere;
use crate::fleet::presence::at_replica::ReportWanted;
use crate::fleet::presence::suspicion::Suspicion;
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
        raise(app, suspicion).await;
    }
    let sightings = presence.sightings(now, Span::from_millis(grace.millis() / PER_GRACE));
    let (saying, seen): (Vec<_>, Vec<_>) = sightings.into_iter().partition(|seen| seen.report.is_some());
    for some in saying.chunks(REPORTS_AT_ONCE).chain(seen.chunks(AT_ONCE)) {
        if record(app, Command::Observe(some.to_vec())).await.is_none() {
            presence.not_written(some);
        }
    }
}

/// Raises the alert about a copied identity, now or, if that fails, at another tick.
async fn raise(app: &App, mut suspicion: Suspicion) {
    let node = std::slice::from_ref(&suspicion.node);
    let elsewhere = everywhere::elsewhere(app, node, ReportWanted::None).await;
    if let Some(known) = elsewhere.get(&suspicion.node).filter(|known| known.last_seen > suspicion.heard) {
        suspicion.sign.spoke_from(known.source);
    }
    let detail = suspicion.sign.to_string();
    tracing::warn!(node = %suspicion.node, "{detail}");
    let (kind, node) = (AlertKind::CloneSuspected, Some(suspicion.node.clone()));
    if record(app, Command::RaiseAlert(RaiseAlert { kind, node, detail })).await.is_none() {
        app.fleet.presence.not_raised(suspicion);
    }
}

/// Nodes that have fallen silent, and enrollments that nobody has confirmed.
pub async fn tick(app: &App, leadership: &Leadership) {
    let (view, now) = (app.view(), app.now());
    let listening_since = app.fleet.listening_since();
    for some in silent(app, &view.state, now).await.chunks(AT_ONCE) {
        let silence = Silence { nodes: some.to_vec(), listening_since };
        propose(app, leadership, Command::MarkInactive(silence)).await;
    }
    for (node, detail) in stuck(app, &view.state, now) {
        let raise = RaiseAlert { kind: AlertKind::EnrollmentStuck, node: Some(node), detail };
        propose(app, leadership, Command::RaiseAlert(raise)).await;
    }
}

/// Nodes that were heard by no replica for too long. The others are asked about those that were not heard here, and of which
/// nothing newer is written down.
async fn silent(app: &App, state: &State, now: Timestamp) -> Vec<NodeId> {
    let (grace, since) = (state.policy.liveness_grace, app.fleet.listening_since());
    // A connected host that has not heard of a shorter grace is judged by the one that it was told. One without a stream
    // is told when it comes back.
    let is_silent = |last: Option<Timestamp>, told: Option<Span>| {
        let heard = since.max(last.unwrap_or(since).min(now));
        heard.plus(told.map_or(grace, |told| told.max(grace))) <= now
    };
    let silent = state.nodes.values().filter(|node| {
        let (live, told) = app.fleet.presence.silence(&node.id);
        node.state == NodeState::Active && node.streamed && is_silent(live.max(node.last_seen), told)
    });
    let mut silent: Vec<NodeId> = silent.map(|node| node.id.clone()).collect();
    let elsewhere = everywhere::elsewhere(app, &silent, ReportWanted::None).await;
    // Whoever is missing in an answer that did not come may be connected there. A replica that is gone is soon not asked.
    if elsewhere.is_partial {
        return Vec::new();
    }
    silent.retain(|id| elsewhere.get(id).is_none_or(|known| is_silent(known.last_seen, known.may_be_silent)));
    silent
}

/// Enrollments that nobody has confirmed for too long, and what the alert says.
fn stuck(app: &App, state: &State, now: Timestamp) -> Vec<(NodeId, String)> {
    let (limit, since) = (state.policy.stuck_after, app.fleet.listening_since());
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
