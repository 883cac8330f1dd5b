//! Founding the domain: the first command of every log.

use crate::registry::apply::Decision;
use crate::registry::{Event, Found, Rejection, State};

pub(in crate::registry) fn decide(state: &State, found: &Found) -> Decision {
    if state.domain.is_some() {
        return Rejection::AlreadyFounded.into();
    }
    if !state.policy.profiles.contains_key(&found.default_profile) {
        return Rejection::ProfileNotFound { profile: found.default_profile.clone() }.into();
    }
    // Bits below the /48 would give two nodes one address, and no issuer outlives its root.
    let below_prefix = u128::from(found.overlay_prefix) << 48 != 0;
    if below_prefix || found.issuer.not_after > found.root_not_after {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::DomainFounded(Box::new(found.clone()))])
}
