//! Tidying: tokens expire, and what can no longer matter is forgotten. Bounded, so that no entry grows large.

use crate::names::{KeyId, Serial, Span, TokenId};
use crate::registry::apply::Decision;
use crate::registry::{Event, Owner, State, Token, TokenState};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long the exact reason of a refusal stays known after a token's end.
const TOKEN_MEMORY: Span = Span::from_days(7);
const KEY_MEMORY: Span = Span::from_days(30);
const AT_ONCE: usize = 256;

pub(in crate::registry) fn decide(state: &State) -> Decision {
    let expired = state
        .tokens
        .values()
        .filter(|token| token.state == TokenState::Unused && token.is_expired(state.at))
        .take(AT_ONCE)
        .map(|token| Event::TokenExpired { token: token.id });
    let mut events: Vec<Event> = expired.collect();
    let (tokens, certificates, keys) = (old_tokens(state), old_certificates(state), old_keys(state));
    if !(tokens.is_empty() && certificates.is_empty() && keys.is_empty()) {
        events.push(Event::Tidied { tokens, certificates, keys });
    }
    Decision::granted(events)
}

fn old_tokens(state: &State) -> Vec<TokenId> {
    let over = |token: &&Arc<Token>| {
        token.state != TokenState::Unused && token.expires_at.plus(TOKEN_MEMORY) <= state.at
    };
    state.tokens.values().filter(over).take(AT_ONCE).map(|token| token.id).collect()
}

/// Expired certificates, except the last one of each holder: that is how its end is told.
fn old_certificates(state: &State) -> Vec<Serial> {
    let expired = state.certificates.iter().filter(|(_, certificate)| certificate.not_after <= state.at);
    let mut found = BTreeSet::new();
    for (serial, certificate) in expired {
        let current = match &certificate.owner {
            Owner::Node(id) => state.nodes.get(id).and_then(|node| node.current_serial()),
            Owner::Operator(name) => state.operators.get(name).and_then(|operator| operator.serial.as_ref()),
        };
        if current != Some(serial) {
            found.insert(serial.clone());
        }
        if found.len() == AT_ONCE {
            break;
        }
    }
    found.into_iter().collect()
}

fn old_keys(state: &State) -> Vec<KeyId> {
    let over = |key: &&crate::registry::OperatorKey| {
        key.revoked_at.unwrap_or(key.expires_at).plus(KEY_MEMORY) <= state.at
    };
    state.operator_keys.values().filter(over).take(AT_ONCE).map(|key| key.id).collect()
}
