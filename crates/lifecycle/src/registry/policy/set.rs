//! Changing policy.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, PolicyError, Rejection, State};
use serde::{Deserialize, Serialize};

/// How much of a refused value is shown.
const SHOWN: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPolicy {
    pub key: String,
    pub value: String,
}

pub(in crate::registry) fn set(state: &State, set: &SetPolicy) -> Decision {
    let mut changed = state.policy.clone();
    if let Err(error) = changed.set(&set.key, &set.value) {
        let key = set.key.clone();
        return match error {
            PolicyError::Key => Rejection::PolicyKeyUnknown { key },
            PolicyError::Value(expected) => {
                let value = set.value.chars().take(SHOWN).collect();
                Rejection::PolicyValueInvalid { key, expected, value }
            }
        }
        .into();
    }
    if changed == state.policy {
        return Decision::granted(Vec::new());
    }
    let old = state.policy.get(&set.key);
    Decision::granted(vec![Event::PolicyChanged(PolicyChanged {
        key: set.key.clone(),
        old,
        new: set.value.clone(),
    })])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanged {
    pub key: String,
    pub old: Option<String>,
    pub new: String,
}

impl Happened for PolicyChanged {
    const NAME: &'static str = "policy.changed";

    fn fields(&self) -> AuditFields {
        vec![
            ("key", AuditField::text(&self.key)),
            ("old", AuditField::maybe(self.old.as_ref())),
            ("new", AuditField::text(&self.new)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        // Decided on a copy before: setting it here cannot fail.
        let set = state.policy.set(&self.key, &self.new);
        debug_assert!(set.is_ok(), "{} was decided to be {}", self.key, self.new);
    }
}
