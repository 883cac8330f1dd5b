//! A live token that met a refusal which ends its life.

use crate::names::{NodeId, TokenId};
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, State, TokenState};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBurned {
    pub token: TokenId,
    pub reason: &'static str,
}

impl Happened for TokenBurned {
    const NAME: &'static str = "enrollment.refused";

    fn fields(&self) -> AuditFields {
        vec![
            ("reason", AuditField::text(self.reason)),
            ("count", AuditField::Number(1)),
            ("samples", AuditField::Texts(Vec::new())),
            ("token_id", AuditField::text(self.token)),
            ("token_burned", AuditField::Flag(true)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.set_token(self.token, TokenState::Used { at, node: None });
    }
}
