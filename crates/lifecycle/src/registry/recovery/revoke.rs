//! Revoking a node's recovery tokens: an operator suspects that one was copied. The node itself is not touched. It stays
//! eligible, so its host is given a new token over its own certificate; who holds a copy of an old one has nothing.

use crate::names::{NodeId, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::living;
use crate::registry::{Envelope, Event, Recovery, State};

/// Where none is valid there is nothing to revoke, and nothing to record.
pub(in crate::registry) fn decide(state: &State, id: &NodeId) -> Decision {
    let node = match living(state, id) {
        Ok(node) => node,
        Err(rejection) => return rejection.into(),
    };
    let valid = node.recovery.tokens.iter().filter(|token| token.is_valid());
    let tokens: Vec<TokenId> = valid.map(|token| token.id).collect();
    let revoked = (!tokens.is_empty())
        .then(|| Event::RecoveryTokensRevoked(RecoveryTokensRevoked { node: id.clone(), tokens }));
    Decision::granted(revoked.into_iter().collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryTokensRevoked {
    pub node: NodeId,
    pub tokens: Vec<TokenId>,
}

impl Happened for RecoveryTokensRevoked {
    const NAME: &'static str = "recovery_token.revoked";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::text(&self.node)),
            ("recovery_token_ids", AuditField::texts(&self.tokens)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_recovery(&self.node, Recovery::revoke_tokens);
    }
}
