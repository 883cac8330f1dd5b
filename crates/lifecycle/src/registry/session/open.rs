//! A session was opened on a node.

use super::Session;
use crate::names::NodeId;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, State};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOpened {
    pub node: NodeId,
    pub session: Session,
}

/// What the lines of a session say of it.
pub(super) fn described(node: &NodeId, session: &Session) -> AuditFields {
    vec![
        ("node_id", AuditField::text(node)),
        ("session_id", AuditField::text(session.id)),
        ("kind", AuditField::text(session.kind)),
        ("user", AuditField::text(&session.user)),
        ("opened_at", AuditField::text(session.opened_at)),
    ]
}

impl Happened for SessionOpened {
    const NAME: &'static str = "session.opened";

    fn fields(&self) -> AuditFields {
        described(&self.node, &self.session)
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| node.sessions.open.push(self.session.clone()));
    }
}
