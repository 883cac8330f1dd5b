//! A live token that met a refusal which ends its life.

use crate::names::{NodeId, TokenId};
use crate::registry::event::{Field, Fields, Happened};
use crate::registry::{Envelope, State, TokenState};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBurned {
    pub token: TokenId,
    pub reason: &'static str,
}

impl Happened for TokenBurned {
    const NAME: &'static str = "enrollment.refused";

    fn fields(&self) -> Fields {
        vec![
            ("reason", Field::text(self.reason)),
            ("count", Field::Number(1)),
            ("samples", Field::Texts(Vec::new())),
            ("token_id", Field::text(self.token)),
            ("token_burned", Field::Flag(true)),
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
