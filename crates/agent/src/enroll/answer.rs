//! Checks what came back from Enroll before any of it is written: a host that stores a certificate it cannot
//! use has spent its token for nothing.

use std::sync::Arc;

use api::agent::EnrollResponse;
use lifecycle::names::Timestamp;
use pki::agent_key::HostKey;

use crate::fault::Fault;
use crate::issued::{IssuedAnswer, agrees};
use crate::store::identity::HostIdentity;

/// The identity that the answer holds, for the key that asked for it.
pub fn check(answer: &EnrollResponse, key: HostKey, at: Timestamp) -> Result<HostIdentity, Fault> {
    let identity = IssuedAnswer::from(answer).check(Arc::new(key), at)?;
    agrees("spiffe_id", &answer.spiffe_id, &identity.spiffe.to_string())?;
    agrees("domain", &answer.domain, identity.spiffe.domain.as_str())?;
    agrees("tenant", &answer.tenant, identity.tenant().unwrap_or_default())?;
    agrees("node_id", &answer.node_id, identity.node_id().unwrap_or_default())?;
    Ok(identity)
}
