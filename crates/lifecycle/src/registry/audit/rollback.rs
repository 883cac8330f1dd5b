//! Starting on a directory that is older than its anchor, because an operator has accepted that.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::token::revoke::TokenRevoked;
use crate::registry::{Envelope, Event, State, TokenState};
use serde::{Deserialize, Serialize};

/// How far the directory reached, and how far the anchor says that it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptRollback {
    /// The last line of the trail that the directory has.
    pub directory_seq: u64,
    /// The line that the anchor vouches for; none where the anchor was missing or could not be used.
    pub anchor_seq: Option<u64>,
}

/// What was spent or revoked in the part that is lost is not known any more: no token of before is good.
pub(in crate::registry) fn accept(state: &State, accept: &AcceptRollback) -> Decision {
    let unused = state.tokens.values().filter(|token| token.state == TokenState::Unused);
    let void = unused.map(|token| Event::TokenRevoked(TokenRevoked { token: token.id }));
    Decision::granted([Event::RollbackAccepted(accept.clone())].into_iter().chain(void).collect())
}

impl Happened for AcceptRollback {
    const NAME: &'static str = "directory.rollback_accepted";

    fn fields(&self) -> AuditFields {
        vec![
            ("directory_seq", AuditField::Number(self.directory_seq)),
            ("anchor_seq", self.anchor_seq.map_or(AuditField::Null, AuditField::Number)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.void_replica_tokens(state.at);
    }
}
