//! Revoking a node's recovery tokens: an operator suspects that one was copied. The node itself is not touched. It stays
//! eligible, so its host is given a new token over its own certificate; who holds a copy of an old one has nothing.

use crate::names::{NodeId, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::living;
use crate::registry::recovery::recover::is_unseen;
use crate::registry::{Envelope, Event, Node, RecoveryState, RecoveryToken, State};

/// Also one that was used and whose certificate nobody has shown: whoever used it could have another certificate for it.
/// Where there is none of these there is nothing to revoke, and nothing to record.
pub(in crate::registry) fn decide(state: &State, id: &NodeId) -> Decision {
    let node = match living(state, id) {
        Ok(node) => node,
        Err(rejection) => return rejection.into(),
    };
    let tokens = redeemable(state, node);
    let revoked = (!tokens.is_empty())
        .then(|| Event::RecoveryTokensRevoked(RecoveryTokensRevoked { node: id.clone(), tokens }));
    Decision::granted(revoked.into_iter().collect())
}

/// The tokens of a node that could still become a certificate, with the bundle that one of them may be from.
pub(in crate::registry) fn redeemable(state: &State, node: &Node) -> Vec<TokenId> {
    let redeemable = node.recovery.tokens.iter().filter(|token| is_redeemable(state, node, token));
    redeemable.map(|token| token.id).collect()
}

fn is_redeemable(state: &State, node: &Node, token: &RecoveryToken) -> bool {
    match &token.state {
        RecoveryState::Valid { .. } => true,
        RecoveryState::Used { serial, .. } => is_unseen(state, node, serial),
        RecoveryState::Superseded | RecoveryState::Revoked => false,
    }
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
        state.change_recovery(&self.node, |recovery| recovery.revoke_tokens(&self.tokens));
    }
}
