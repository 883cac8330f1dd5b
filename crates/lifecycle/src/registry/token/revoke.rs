//! Revoking a token before it is used.

use crate::names::{NodeId, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, State, TokenState};

/// Revoking twice is revoking once; a used token is past revoking.
pub(in crate::registry) fn revoke(state: &State, id: TokenId) -> Decision {
    match state.tokens.get(&id).map(|token| &token.state) {
        None => Rejection::TokenNotFound { token: id }.into(),
        Some(TokenState::Used { .. }) => Rejection::TokenUsed.into(),
        Some(TokenState::Revoked { .. } | TokenState::Expired) => Decision::granted(Vec::new()),
        Some(TokenState::Unused) => Decision::granted(vec![Event::TokenRevoked(TokenRevoked { token: id })]),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRevoked {
    pub token: TokenId,
}

impl Happened for TokenRevoked {
    const NAME: &'static str = "enrollment_token.revoked";

    fn fields(&self) -> AuditFields {
        vec![("token_id", AuditField::text(self.token))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.set_token(self.token, TokenState::Revoked { at });
    }
}
