//! Removing an operator.

use super::key::OperatorKeyRevoked;
use crate::names::{KeyId, NodeId, OperatorName};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, OperatorKey, Outcome, Rejection, State};

/// Whoever goes takes along the keys that carry the name and the keys that came from it: with one of them it would be back.
pub(in crate::registry) fn remove(state: &State, name: &OperatorName, keys_made: bool) -> Decision {
    if !state.operators.contains_key(name) {
        return Rejection::OperatorNotFound { name: name.clone() }.into();
    }
    let made = if keys_made { state.keys_of(name) } else { std::collections::BTreeSet::new() };
    let goes = |key: &&OperatorKey| key.revoked_at.is_none() && (key.name == *name || made.contains(&key.id));
    let theirs: Vec<&OperatorKey> = state.operator_keys.values().filter(goes).collect();
    let keys: Vec<KeyId> = theirs.iter().map(|key| key.id).collect();
    let revoked = theirs
        .into_iter()
        .map(|key| Event::OperatorKeyRevoked(OperatorKeyRevoked { key: key.id, name: key.name.clone() }));
    let removed = Event::OperatorRemoved(OperatorRemoved { name: name.clone() });
    let answer = Ok(if keys_made { Outcome::OperatorRemoved { keys } } else { Outcome::Done });
    Decision { events: [removed].into_iter().chain(revoked).collect(), answer }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorRemoved {
    pub name: OperatorName,
}

impl Happened for OperatorRemoved {
    const NAME: &'static str = "operator.removed";

    fn fields(&self) -> AuditFields {
        vec![("operator", AuditField::text(&self.name))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(gone) = state.operators.remove(&self.name) {
            state.deny(gone.serial.iter().chain(&gone.renewed));
        }
    }
}
