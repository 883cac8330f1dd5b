//! Decommissioning: a node ends in good order. The record stays as a tombstone; what was denied stays denied.

use super::tombstone;
use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::session::close::{CloseReason, sessions_terminated};
use crate::registry::{Account, Envelope, Event, NodeState, Rejection, State};

/// Open sessions stand in its way, unless they are to end with it.
pub(in crate::registry) fn decommission(state: &State, id: &NodeId, force: bool) -> Decision {
    match state.nodes.get(id) {
        None => Rejection::NodeNotFound { node: id.clone() }.into(),
        Some(node) if node.state == NodeState::Revoked => Rejection::NodeRevoked { node: id.clone() }.into(),
        Some(node) if node.state == NodeState::Decommissioned => Decision::granted(Vec::new()),
        Some(node) if !node.sessions.open.is_empty() && !force => {
            Rejection::ActiveSessions { node: id.clone(), sessions: node.sessions.open.len() as u64 }.into()
        }
        Some(node) => {
            let gone = Event::NodeDecommissioned(NodeDecommissioned {
                node: id.clone(),
                denied: state.undenied(&node.serials),
                sessions: node.sessions.count(),
            });
            let closed = node.closing_all(CloseReason::Decommissioned);
            Decision::granted(closed.chain([gone]).chain(tombstone::settled(state, id)).collect())
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDecommissioned {
    pub node: NodeId,
    pub denied: Vec<Serial>,
    /// How many sessions ended by it.
    pub sessions: u32,
}

impl Happened for NodeDecommissioned {
    const NAME: &'static str = "host.decommissioned";

    fn fields(&self) -> AuditFields {
        let mut fields = host(&self.node, [("denied_serials", AuditField::texts(&self.denied))]);
        fields.extend(sessions_terminated(self.sessions));
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let account = Account::of(envelope, state.at, "decommissioned");
        tombstone::bury(state, &self.node, &self.denied, NodeState::Decommissioned, account);
        state.change_node(&self.node, |node| node.sessions.terminated = self.sessions);
    }
}
