//! A session on a node has ended.

use super::Session;
use super::open::described;
use crate::names::NodeId;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, State};
use serde::{Deserialize, Serialize};

/// Why a session is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// Its command came to an end.
    Ended,
    /// Its host no longer knows it, or lost its process: nobody saw the end.
    Lost,
    /// Its host ended it.
    Terminated,
    /// It ended with its node.
    Decommissioned,
    Revoked,
}

impl CloseReason {
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Ended => "ended",
            CloseReason::Lost => "lost",
            CloseReason::Terminated => "terminated",
            CloseReason::Decommissioned => "decommissioned",
            CloseReason::Revoked => "revoked",
        }
    }

    /// As a host says it. That its node is gone is not a host's to say.
    pub fn of_host(word: &str) -> Option<Self> {
        [CloseReason::Ended, CloseReason::Lost, CloseReason::Terminated]
            .into_iter()
            .find(|reason| reason.as_str() == word)
    }
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionClosed {
    pub node: NodeId,
    pub session: Session,
    pub reason: CloseReason,
    /// Of its command, if somebody saw it end.
    pub exit_status: Option<u8>,
}

/// What the end of a node says of the sessions that ended with it; nothing if there were none.
pub(in crate::registry) fn sessions_terminated(count: u32) -> Option<(&'static str, AuditField)> {
    (count > 0).then(|| ("sessions_terminated", AuditField::Number(u64::from(count))))
}

impl Happened for SessionClosed {
    const NAME: &'static str = "session.closed";

    fn fields(&self) -> AuditFields {
        let status = self.exit_status.map_or(AuditField::Null, |status| AuditField::Number(status.into()));
        let mut fields = described(&self.node, &self.session);
        fields.extend([("reason", AuditField::text(self.reason)), ("exit_status", status)]);
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let id = self.session.id;
        state.change_node(&self.node, |node| node.sessions.open.retain(|session| session.id != id));
    }
}
