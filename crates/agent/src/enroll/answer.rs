//! Checks what came back from Enroll before any of it is written: a host that stores a certificate it cannot
//! use has spent its token for nothing.

use std::sync::Arc;

use api::agent::EnrollResponse;
use client::Trust;
use lifecycle::names::Timestamp;
use pki::agent_key::HostKey;

use crate::fault::Fault;
use crate::issued::{IssuedAnswer, agrees, invalid};
use crate::store::identity::HostIdentity;
use crate::trust_offer::TrustOffer;
use client::RootLists;

/// The identity that the answer holds, for the key that asked for it. The operator named by what the control plane is
/// recognised; whoever has only its issuing key must not name another CA in its place.
pub fn check(
    answer: &EnrollResponse,
    key: HostKey,
    trust: &Trust,
    lists: RootLists,
    at: Timestamp,
) -> Result<HostIdentity, Fault> {
    let mut identity = IssuedAnswer::from(answer).check(Arc::new(key), at)?;
    agrees("spiffe_id", &answer.spiffe_id, &identity.spiffe.to_string())?;
    agrees("domain", &answer.domain, identity.spiffe.domain.as_str())?;
    agrees("tenant", &answer.tenant, identity.tenant().unwrap_or_default())?;
    agrees("node_id", &answer.node_id, identity.node_id().unwrap_or_default())?;
    take_trust(&mut identity, TrustOffer::from(answer), trust, lists, at)?;
    Ok(identity)
}

/// Takes what the control plane offers to trust, if the CA that was named for first contact vouches for it. `lists` are those
/// that were here before.
pub fn take_trust(
    identity: &mut HostIdentity,
    offer: TrustOffer<'_>,
    trust: &Trust,
    lists: RootLists,
    at: Timestamp,
) -> Result<(), Fault> {
    identity.bundle = offer.bundle(trust.anchors(), &lists, at).map_err(|reason| {
        invalid(format!("the CA that was named for it does not vouch for its trust bundle: {reason}"))
    })?;
    identity.meta_mut().bundle_version = offer.bundle_version;
    identity.root_lists = lists;
    offer.take_beside_bundle(identity);
    Ok(())
}
