//! Revoking: a node's identity is taken away at once. The record stays as a tombstone; what was denied stays denied.

use super::tombstone;
use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::session::close::{CloseReason, sessions_terminated};
use crate::registry::{Account, Actor, Envelope, Event, NodeState, Rejection, State};

pub(in crate::registry) fn revoke(state: &State, actor: &Actor, id: &NodeId, reason: &str) -> Decision {
    let Some(node) = state.nodes.get(id) else {
        return Rejection::NodeNotFound { node: id.clone() }.into();
    };
    if node.state == NodeState::Revoked {
        return Decision::granted(Vec::new());
    }
    let revoked = Event::NodeRevoked(NodeRevoked {
        node: id.clone(),
        by: actor.to_string(),
        reason: reason.to_owned(),
        denied: state.undenied(&node.serials),
        sessions: node.sessions.count(),
    });
    let closed = node.closing_all(CloseReason::Revoked);
    Decision::granted(closed.chain([revoked]).chain(tombstone::settled(state, id)).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRevoked {
    pub node: NodeId,
    pub by: String,
    pub reason: String,
    pub denied: Vec<Serial>,
    /// How many sessions ended by it.
    pub sessions: u32,
}

impl Happened for NodeRevoked {
    const NAME: &'static str = "host.revoked";

    fn fields(&self) -> AuditFields {
        let said = [
            ("revoked_by", AuditField::text(&self.by)),
            ("reason", AuditField::text(&self.reason)),
            ("denied_serials", AuditField::texts(&self.denied)),
        ];
        let mut fields = host(&self.node, said);
        fields.extend(sessions_terminated(self.sessions));
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let account = Account::of(envelope, state.at, &self.reason);
        tombstone::bury(state, &self.node, &self.denied, NodeState::Revoked, account);
        state.change_node(&self.node, |node| node.sessions.terminated = self.sessions);
    }
}
