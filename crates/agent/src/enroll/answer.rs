//! Checks what came back from Enroll before any of it is written: a host that stores a certificate it cannot
//! use has spent its token for nothing.

use std::sync::Arc;

use api::agent::EnrollResponse;
use client::Trust;
use lifecycle::names::Timestamp;
use pki::agent_key::HostKey;
use rustls_pki_types::CertificateDer;

use crate::fault::Fault;
use crate::issued::{IssuedAnswer, agrees, invalid};
use crate::recover::ask;
use crate::store::identity::HostIdentity;

/// The identity that the answer holds, for the key that asked for it. The operator named by what the control plane is
/// recognised; whoever has only its issuing key must not name another CA in its place.
pub fn check(
    answer: &EnrollResponse,
    key: HostKey,
    trust: &Trust,
    at: Timestamp,
) -> Result<HostIdentity, Fault> {
    let identity = IssuedAnswer::from(answer).check(Arc::new(key), at)?;
    agrees("spiffe_id", &answer.spiffe_id, &identity.spiffe.to_string())?;
    agrees("domain", &answer.domain, identity.spiffe.domain.as_str())?;
    agrees("tenant", &answer.tenant, identity.tenant().unwrap_or_default())?;
    agrees("node_id", &answer.node_id, identity.node_id().unwrap_or_default())?;
    named(trust, &identity.bundle, at)?;
    Ok(identity)
}

/// Whether the CA that was named for first contact vouches for the bundle.
pub fn named(trust: &Trust, bundle: &[CertificateDer<'static>], at: Timestamp) -> Result<(), Fault> {
    ask::vouched(bundle, None, trust.anchors(), at).map_err(|reason| {
        invalid(format!("the CA that was named for it does not vouch for its trust bundle: {reason}"))
    })
}
