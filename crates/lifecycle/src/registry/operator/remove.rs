//! Removing an operator.

use super::key::OperatorKeyRevoked;
use crate::names::{NodeId, OperatorName};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, State};

/// Whoever goes takes the keys that carry the name along.
pub(in crate::registry) fn remove(state: &State, name: &OperatorName) -> Decision {
    if !state.operators.contains_key(name) {
        return Rejection::OperatorNotFound { name: name.clone() }.into();
    }
    let theirs = state.operator_keys.values().filter(|key| key.name == *name && key.revoked_at.is_none());
    let revoked =
        theirs.map(|key| Event::OperatorKeyRevoked(OperatorKeyRevoked { key: key.id, name: name.clone() }));
    Decision::granted(
        [Event::OperatorRemoved(OperatorRemoved { name: name.clone() })].into_iter().chain(revoked).collect(),
    )
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
