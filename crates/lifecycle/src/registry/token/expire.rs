//! Tokens that nobody used in time.

use crate::names::{NodeId, TokenId};
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, State, TokenState};

/// Those whose end is not on the trail yet.
pub(in crate::registry) fn expired(state: &State) -> impl Iterator<Item = Event> + '_ {
    let over = |token: &&std::sync::Arc<crate::registry::Token>| {
        token.state == TokenState::Unused && token.is_expired(state.at)
    };
    let expired = state.tokens.values().filter(over);
    expired.map(|token| Event::TokenExpired(TokenExpired { token: token.id }))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenExpired {
    pub token: TokenId,
}

impl Happened for TokenExpired {
    const NAME: &'static str = "enrollment_token.expired";

    fn fields(&self) -> AuditFields {
        vec![("token_id", AuditField::text(self.token))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.set_token(self.token, TokenState::Expired);
    }
}
