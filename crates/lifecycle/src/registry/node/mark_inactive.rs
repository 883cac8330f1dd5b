//! Marking nodes inactive that have been silent for too long.

use super::observe::is_silent;
use crate::names::{NodeId, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Envelope, Event, Node, NodeState, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Nodes that have said nothing for the grace period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    pub nodes: Vec<NodeId>,
    /// Nobody could be heard before this moment.
    pub listening_since: Timestamp,
}

/// Silence counts from the later of the last sign of life and the moment since which anybody could be heard.
pub(in crate::registry) fn mark_inactive(state: &State, silence: &Silence) -> Decision {
    let silent = |id: &&NodeId| state.nodes.get(*id).is_some_and(|node| is_overdue(state, node, silence));
    let named: BTreeSet<&NodeId> = silence.nodes.iter().collect();
    let inactive = named.into_iter().filter(silent).map(|id| {
        Event::NodeInactive(NodeInactive {
            node: id.clone(),
            last_seen: state.nodes.get(id).and_then(|node| node.last_seen),
        })
    });
    Decision::granted(inactive.collect())
}

fn is_overdue(state: &State, node: &Arc<Node>, silence: &Silence) -> bool {
    let heard = node.last_seen.map_or(silence.listening_since, |seen| seen.max(silence.listening_since));
    node.state == NodeState::Active && node.streamed && is_silent(state, heard)
}

impl State {
    /// Why a node's silence wants attention at a moment: it is `inactive`, and that for `liveness.silent_after` since it
    /// could have been heard last. What was found when it fell inactive stands on record, so a control plane that is
    /// started again every day still comes to its end; an outage of the site makes nobody inactive before the grace
    /// period has passed anew, and so raises nothing at once.
    pub fn silent_for_long(&self, node: &Node, at: Timestamp) -> Option<String> {
        let limit = self.policy.liveness_silent_after?;
        if node.state != NodeState::Inactive {
            return None;
        }
        let found = node.state_since.minus(self.policy.liveness_grace);
        let heard = node.last_seen.map_or(found, |seen| seen.max(found));
        let last = node.last_seen.map_or_else(|| "never".to_owned(), |seen| seen.to_string());
        (heard.plus(limit) <= at).then(|| format!("inactive since {}, last seen: {last}", node.state_since))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInactive {
    pub node: NodeId,
    pub last_seen: Option<Timestamp>,
}

impl Happened for NodeInactive {
    const NAME: &'static str = "host.inactive";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("last_seen", AuditField::maybe(self.last_seen))])
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.change_node(&self.node, |node| {
            node.state = NodeState::Inactive;
            node.state_since = at;
        });
    }
}
