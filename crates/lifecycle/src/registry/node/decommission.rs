//! Decommissioning: a node ends in good order. The record stays as a tombstone; what was denied stays denied.

use super::tombstone;
use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Account, Envelope, Event, NodeState, Rejection, State};

pub(in crate::registry) fn decommission(state: &State, id: &NodeId) -> Decision {
    match state.nodes.get(id) {
        None => Rejection::NodeNotFound { node: id.clone() }.into(),
        Some(node) if node.state == NodeState::Revoked => Rejection::NodeRevoked { node: id.clone() }.into(),
        Some(node) if node.state == NodeState::Decommissioned => Decision::granted(Vec::new()),
        Some(node) => {
            let gone = Event::NodeDecommissioned(NodeDecommissioned {
                node: id.clone(),
                denied: state.undenied(&node.serials),
            });
            Decision::granted([gone].into_iter().chain(tombstone::settled(state, id)).collect())
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDecommissioned {
    pub node: NodeId,
    pub denied: Vec<Serial>,
}

impl Happened for NodeDecommissioned {
    const NAME: &'static str = "host.decommissioned";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("denied_serials", AuditField::texts(&self.denied))])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let account = Account::of(envelope, state.at, "decommissioned");
        tombstone::bury(state, &self.node, &self.denied, NodeState::Decommissioned, account);
    }
}
