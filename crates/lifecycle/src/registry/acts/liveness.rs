//! Liveness: who was heard of, and who has been silent for too long.

use crate::names::{NodeId, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::{Event, Node, NodeState, Sighting, Silence, State};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Observations come in bulk. Those that tell nothing new are left out.
pub(in crate::registry) fn observe(state: &State, sightings: &[Sighting]) -> Decision {
    let mut events = Vec::new();
    let mut woken = BTreeSet::new();
    for sighting in sightings {
        let sighting = &believable(state, sighting);
        let Some(node) = state.nodes.get(&sighting.node) else { continue };
        if node.state.is_gone() {
            events.extend(last_sign(node, sighting).map(Event::NodeSeen));
            continue;
        }
        if tells(node, sighting) {
            events.push(Event::NodeSeen(sighting.clone()));
        }
        if node.state == NodeState::Inactive && !is_silent(state, sighting.seen) && woken.insert(&node.id) {
            events.push(Event::NodeActive { node: node.id.clone() });
        }
    }
    Decision::granted(events)
}

/// Of a node that is gone only when it was last heard before its end still counts.
fn last_sign(node: &Node, sighting: &Sighting) -> Option<Sighting> {
    let heard = sighting.seen <= node.state_since && node.last_seen.is_none_or(|last| last < sighting.seen);
    let (seen, none) = (sighting.seen, None);
    heard.then(|| Sighting { node: node.id.clone(), seen, instance: none, bundle: None, agent_version: None })
}

/// A replica's clock may be ahead, and a host may claim a bundle that does not exist: neither may count for
/// longer than the truth.
fn believable(state: &State, sighting: &Sighting) -> Sighting {
    Sighting {
        seen: sighting.seen.min(state.at),
        bundle: sighting.bundle.map(|bundle| bundle.min(state.bundle_version)),
        ..sighting.clone()
    }
}

fn tells(node: &Node, sighting: &Sighting) -> bool {
    node.last_seen.is_none_or(|last| last < sighting.seen)
        || sighting.bundle.is_some_and(|bundle| bundle > node.bundle)
        || sighting.instance.as_ref().is_some_and(|instance| node.instances.last() != Some(instance))
        || sighting.agent_version.as_ref().is_some_and(|version| node.agent_version.as_ref() != Some(version))
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
