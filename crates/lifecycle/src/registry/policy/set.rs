//! Changing policy.

use crate::registry::apply::Decision;
use crate::registry::{Event, PolicyError, Rejection, SetPolicy, State};

pub(in crate::registry) fn set(state: &State, set: &SetPolicy) -> Decision {
    let mut changed = state.policy.clone();
    if let Err(error) = changed.set(&set.key, &set.value) {
        let key = set.key.clone();
        return match error {
            PolicyError::Key => Rejection::PolicyKeyUnknown { key },
            PolicyError::Value(expected) => {
                Rejection::PolicyValueInvalid { key, expected: expected.to_owned() }
            }
            PolicyError::Raised(now) => {
                let expected = format!("at most {now}, as it is now: it can only be lowered");
                Rejection::PolicyValueInvalid { key, expected }
            }
        }
        .into();
    }
    if changed == state.policy {
        return Decision::granted(Vec::new());
    }
    let old = state.policy.get(&set.key);
    Decision::granted(vec![Event::PolicyChanged { key: set.key.clone(), old, new: set.value.clone() }])
}
