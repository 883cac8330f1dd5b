//! Liveness: who was heard of, and who has been silent for too long.

use crate::names::{NodeId, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::recovery::mint;
use crate::registry::{Event, Node, NodeState, Report, Sighting, Silence, State};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Observations come in bulk. Those that tell nothing new are left out.
pub(in crate::registry) fn observe(state: &State, sightings: &[Sighting]) -> Decision {
    let mut events = Vec::new();
    let (mut woken, mut keeping) = (BTreeSet::new(), BTreeSet::new());
    for sighting in sightings {
        let sighting = &believable(state, sighting);
        let Some(node) = state.nodes.get(&sighting.node) else { continue };
        if node.state.is_gone() {
            events.extend(last_sign(node, sighting).map(Event::NodeSeen));
            continue;
        }
        if tells(state, node, sighting) {
            events.push(Event::NodeSeen(sighting.clone()));
        }
        if node.state == NodeState::Inactive && !is_silent(state, sighting.seen) && woken.insert(&node.id) {
            events.push(Event::NodeActive { node: node.id.clone() });
        }
        let kept = mint::keep(node, sighting.recovery_kept);
        events.extend(kept.filter(|_| keeping.insert(&node.id)));
    }
    Decision::granted(events)
}

/// Of a node that is gone only when it was last heard before its end still counts.
fn last_sign(node: &Node, sighting: &Sighting) -> Option<Sighting> {
    let heard = sighting.seen <= node.state_since && node.last_seen.is_none_or(|last| last < sighting.seen);
    heard.then(|| Sighting {
        node: node.id.clone(),
        seen: sighting.seen,
        instance: None,
        bundle: None,
        agent_version: None,
        report: None,
        recovery_kept: None,
    })
}

/// A replica's clock may be ahead, and a host may claim a bundle that does not exist: neither may count for
/// longer than the truth.
fn believable(state: &State, sighting: &Sighting) -> Sighting {
    Sighting {
        seen: sighting.seen.min(state.at),
        bundle: sighting.bundle.map(|bundle| bundle.min(state.bundle_version)),
        report: sighting.report.as_ref().and_then(|report| own(state, &sighting.node, report)),
        ..sighting.clone()
    }
}

/// Nothing that was said before the node enrolled last: that was another life.
fn own(state: &State, id: &NodeId, report: &Arc<Report>) -> Option<Arc<Report>> {
    let since = state.nodes.get(id)?.enrolled_at;
    let own = since.is_none_or(|since| since <= report.at);
    own.then(|| match report.at <= state.at {
        true => report.clone(),
        false => {
            let (at, since) = (state.at, report.since.min(state.at));
            Arc::new(Report { at, since, ..report.as_ref().clone() })
        }
    })
}

fn tells(state: &State, node: &Node, sighting: &Sighting) -> bool {
    node.last_seen.is_none_or(|last| last < sighting.seen)
        || sighting.bundle.is_some_and(|bundle| bundle > node.bundle)
        || sighting.instance.as_ref().is_some_and(|instance| node.instances.last() != Some(instance))
        || sighting.agent_version.as_ref().is_some_and(|version| node.agent_version.as_ref() != Some(version))
        || sighting.report.as_ref().is_some_and(|report| is_news(state, node, report))
}

fn is_news(state: &State, node: &Node, report: &Report) -> bool {
    let known = node.report.as_ref();
    known.is_none_or(|known| known.at <= report.at && report.is_news(known, state.policy.clock_tolerance))
}

fn is_silent(state: &State, since: Timestamp) -> bool {
    since.plus(state.policy.liveness_grace) <= state.at
}

/// Silence counts from the later of the last sign of life and the moment since which anybody could be heard.
pub(in crate::registry) fn mark_inactive(state: &State, silence: &Silence) -> Decision {
    let silent = |id: &&NodeId| state.nodes.get(*id).is_some_and(|node| is_overdue(state, node, silence));
    let named: BTreeSet<&NodeId> = silence.nodes.iter().collect();
    let inactive = named.into_iter().filter(silent).map(|id| Event::NodeInactive {
        node: id.clone(),
        last_seen: state.nodes.get(id).and_then(|node| node.last_seen),
    });
    Decision::granted(inactive.collect())
}

fn is_overdue(state: &State, node: &Arc<Node>, silence: &Silence) -> bool {
    let heard = node.last_seen.map_or(silence.listening_since, |seen| seen.max(silence.listening_since));
    node.state == NodeState::Active && node.streamed && is_silent(state, heard)
}
