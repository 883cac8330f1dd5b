//! Changing policy.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::credential::Attestor;
use crate::registry::overlay;
use crate::registry::{
    Confirmation, EPHEMERAL_LEAF, Envelope, Event, Node, Policy, PolicyError, Rejection, State,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How much of a refused value is shown.
const SHOWN: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPolicy {
    pub key: String,
    pub value: String,
    #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
    pub confirm: Confirmation,
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
    let longest = changed.profiles.values().map(|profile| profile.lifetime).max();
    if state.has_ephemeral_issuers() && longest.is_some_and(|longest| longest > EPHEMERAL_LEAF) {
        let expected = format!("at most {EPHEMERAL_LEAF} in a domain with ephemeral issuers");
        let value = set.value.chars().take(SHOWN).collect();
        return Rejection::PolicyValueInvalid { key: set.key.clone(), expected, value }.into();
    }
    if changed == state.policy {
        return Decision::granted(Vec::new());
    }
    if let Err(needed) = check_confirmed(state, &changed, set) {
        return needed.into();
    }
    let old = state.policy.get(&set.key);
    Decision::granted(vec![Event::PolicyChanged(PolicyChanged {
        key: set.key.clone(),
        old,
        new: set.value.clone(),
    })])
}

impl State {
    /// Refuses a value that would be in force as another one, or names what is not there.
    pub fn check_policy_fits(&self, key: &str, value: &str) -> Result<(), Rejection> {
        let mut changed = self.policy.clone();
        // What cannot be set at all is refused where it is decided.
        if changed.set(key, value).is_err() {
            return Ok(());
        }
        let refused = |expected: String| {
            let value = value.chars().take(SHOWN).collect();
            Err(Rejection::PolicyValueInvalid { key: key.to_owned(), expected, value })
        };
        if key == "liveness.interval" && changed.heartbeat_interval() < changed.liveness_interval {
            return refused(format!(
                "at most {}, half of liveness.grace ({})",
                changed.heartbeat_interval(),
                changed.liveness_grace
            ));
        }
        let unknown = changed.hardware_tenants.iter().find(|tenant| !self.tenants.contains_key(*tenant));
        match unknown {
            Some(unknown) if key == "hardware.tenants" => refused(format!(
                "names of tenants that exist, and there is no tenant {unknown} (`enlist tenant list`)"
            )),
            _ => Ok(()),
        }
    }
}

/// Of what lets hosts in only `attestors` and `attestors.require` can be set so that no host could meet them: every other key has bounds that leave a
/// way in (a kind of key, ten seconds of a token's life, one enrollment a minute). Hardware is a way in once a machine is
/// registered by it.
fn check_confirmed(state: &State, changed: &Policy, set: &SetPolicy) -> Result<(), Rejection> {
    let accepts = |policy: &Policy, attestor| policy.check_attestor(attestor).is_ok();
    let lost = |attestor| accepts(&state.policy, attestor) && !accepts(changed, attestor);
    let is_known = |node: &Arc<Node>| !node.state.is_gone() && node.identity.is_some();
    let known = state.nodes.values().any(is_known);
    let admits = |policy: &Policy| {
        let by_hardware = [Attestor::JoinToken, Attestor::Hardware];
        policy.check_attested(&[Attestor::JoinToken]).is_ok()
            || known
                && (policy.check_attested(&[Attestor::Hardware]).is_ok()
                    || policy.check_attested(&by_hardware).is_ok())
    };
    if admits(changed) || !(admits(&state.policy) || lost(Attestor::RecoveryToken)) {
        return Ok(());
    }
    let recovers = accepts(changed, Attestor::RecoveryToken);
    let has_way_back = |node: &Node| recovers && node.recovery.current().is_some();
    let stranded = |node: &&Arc<Node>| !(node.state.is_gone() || has_way_back(node));
    let affected = state.nodes.values().filter(stranded).count() as u64;
    let consequence = if recovers {
        "no host can enroll any more, and one without a recovery token cannot come back"
    } else {
        "no host can enroll any more, and none can recover"
    };
    set.confirm.check(&set.key, consequence, affected)
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
        let scope = state.policy.overlay_scope;
        let set = state.policy.set(&self.key, &self.new);
        debug_assert!(set.is_ok(), "{} was decided to be {}", self.key, self.new);
        if state.policy.overlay_scope != scope {
            overlay::settle_all(state);
        }
    }
}
