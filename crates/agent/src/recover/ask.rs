//! The call itself, and what comes back.

use std::sync::Arc;

use api::agent::{RecoverRequest, RecoverResponse};
use client::AgentApi;
use lifecycle::host::Class;
use lifecycle::names::{Span, Timestamp};
use pki::agent_key::HostKey;

use super::endpoint::RecoveryEndpoint;
use crate::failed_call::{self, FailedCall};
use crate::fault::Fault;
use crate::issued::{IssuedAnswer, agrees};
use crate::store::identity::HostIdentity;
use crate::token::SecretToken;

/// As whom, with what and why. The certificate that was lost is not shown.
pub fn request(
    token: &SecretToken,
    profile: &str,
    csr: String,
    node_id: Option<&str>,
    class: Class,
) -> RecoverRequest {
    RecoverRequest {
        token: token.expose().to_owned(),
        csr,
        node_id: node_id.unwrap_or_default().to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        class: class.to_string(),
        bundle: None,
        recovery_profile_id: profile.to_owned(),
    }
}

/// Compares the clocks before the token leaves: by a wrong clock no certificate would be of use.
pub async fn ask(
    endpoint: &RecoveryEndpoint,
    request: RecoverRequest,
    correlation_id: &str,
    tolerance: Span,
) -> Result<RecoverResponse, FailedCall> {
    let ahead = failed_call::ahead(&endpoint.servers, &endpoint.trust).await;
    if let Some(ahead) = ahead.filter(|ahead| ahead.unsigned_abs() > tolerance.millis()) {
        return Err(FailedCall::skewed(ahead));
    }
    let agent = AgentApi::new(endpoint.servers.clone(), &endpoint.trust, None).map_err(FailedCall::from)?;
    match agent.recover(request, correlation_id, None).await {
        Ok(reply) => Ok(reply.message),
        Err(error) => Err(FailedCall { clock: ahead, ..FailedCall::from(error) }),
    }
}

/// The identity that the answer holds, for the key that asked for it; of this node, if it is known which one this is.
pub fn check(
    answer: &RecoverResponse,
    key: Arc<HostKey>,
    known: Option<&HostIdentity>,
    at: Timestamp,
) -> Result<HostIdentity, Fault> {
    let identity = IssuedAnswer::from(answer).check(key, at)?;
    agrees("spiffe_id", &answer.spiffe_id, &identity.spiffe.to_string())?;
    agrees("node_id", &answer.node_id, identity.node_id().unwrap_or_default())?;
    if let Some(known) = known {
        agrees("the node", known.node_id().unwrap_or_default(), identity.node_id().unwrap_or_default())?;
        agrees("the domain", known.spiffe.domain.as_str(), identity.spiffe.domain.as_str())?;
    }
    Ok(identity)
}
