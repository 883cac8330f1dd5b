//! Starting on a directory that is older than its anchor, because an operator has accepted that.

use crate::names::{NodeId, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::recovery::revoke::redeemable;
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
    /// Not of before, when recovery tokens and repair bundles of before stayed as the directory had them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub voids_recovery: bool,
}

/// What was spent or revoked in the part that is lost is not known any more: no token of before is good. Whoever copied a
/// recovery token that was revoked then, or has one that was spent, would have a certificate for it.
pub(in crate::registry) fn accept(state: &State, accept: &AcceptRollback) -> Decision {
    let held = |node: &NodeId, tokens: Vec<TokenId>| (!tokens.is_empty()).then(|| (node.clone(), tokens));
    let voided = state.nodes.values().filter(|_| accept.voids_recovery);
    let voided = voided.filter_map(|node| held(&node.id, redeemable(state, node))).collect();
    let accepted = Event::RollbackAccepted(RollbackAccepted {
        directory_seq: accept.directory_seq,
        anchor_seq: accept.anchor_seq,
        voided,
    });
    let unused = state.tokens.values().filter(|token| token.state == TokenState::Unused);
    let void = unused.map(|token| Event::TokenRevoked(TokenRevoked { token: token.id }));
    Decision::granted([accepted].into_iter().chain(void).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackAccepted {
    pub directory_seq: u64,
    pub anchor_seq: Option<u64>,
    /// Recovery tokens, those of repair bundles among them. One line says how many: there may be two of each node.
    pub voided: Vec<(NodeId, Vec<TokenId>)>,
}

impl Happened for RollbackAccepted {
    const NAME: &'static str = "directory.rollback_accepted";

    fn fields(&self) -> AuditFields {
        let voided = self.voided.iter().map(|(_, tokens)| tokens.len() as u64).sum();
        [
            ("directory_seq", AuditField::Number(self.directory_seq)),
            ("anchor_seq", self.anchor_seq.map_or(AuditField::Null, AuditField::Number)),
        ]
        .into_iter()
        // Lines of old logs are made again from their commands, which voided none.
        .chain((voided > 0).then_some(("recovery_tokens_voided", AuditField::Number(voided))))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.void_replica_tokens(state.at);
        for (node, tokens) in &self.voided {
            state.change_recovery(node, |recovery| recovery.revoke_tokens(tokens));
        }
    }
}
