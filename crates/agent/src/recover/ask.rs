//! The call itself, and what comes back.

use std::sync::Arc;

use api::agent::{EnrollRequest, EnrollResponse, RecoverRequest, RecoverResponse};
use client::AgentApi;
use lifecycle::host::Class;
use lifecycle::names::{Span, Timestamp};
use pki::agent_key::HostKey;
use rustls_pki_types::CertificateDer;

use super::endpoint::RecoveryEndpoint;
use crate::code::AgentCode;
use crate::failed_call::{self, FailedCall};
use crate::fault::Fault;
use crate::hardware::SysfsIdentity;
use crate::host;
use crate::issued::{IssuedAnswer, agrees};
use crate::store::identity::HostIdentity;
use crate::store::trust_refused;
use crate::token::SecretToken;
use crate::trust_offer::TrustOffer;
use client::RootLists;

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
async fn compared(endpoint: &RecoveryEndpoint, tolerance: Span) -> Result<Option<i64>, FailedCall> {
    match failed_call::ahead(&endpoint.servers, &endpoint.trust).await {
        Some(ahead) if ahead.unsigned_abs() > tolerance.millis() => Err(FailedCall::skewed(ahead)),
        ahead => Ok(ahead),
    }
}

/// What this machine is known by, without a token, for a key.
pub fn by_hardware(found: &SysfsIdentity, csr: String, memory_storage: bool) -> EnrollRequest {
    EnrollRequest {
        csr,
        hostname: host::name(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        hardware: Some(host::hardware()),
        hardware_identity: Some(found.message()),
        memory_storage,
        ..EnrollRequest::default()
    }
}

/// Another certificate for the same machine: an enrollment, whose answer counts as that to a recovery. The idempotency key is
/// the same for the same CSR key, so that a lost answer can be had again.
pub async fn enroll(
    endpoint: &RecoveryEndpoint,
    request: EnrollRequest,
    idempotency_key: &str,
    correlation_id: &str,
    tolerance: Span,
) -> Result<RecoverResponse, FailedCall> {
    let ahead = compared(endpoint, tolerance).await?;
    let agent = AgentApi::new(endpoint.servers.clone(), &endpoint.trust, None).map_err(FailedCall::from)?;
    match agent.enroll(request, idempotency_key, correlation_id, None).await {
        Ok(reply) => Ok(as_recovery(reply.message)),
        Err(error) => Err(FailedCall { clock: ahead, ..FailedCall::from(error) }),
    }
}

fn as_recovery(answer: EnrollResponse) -> RecoverResponse {
    RecoverResponse {
        node_id: answer.node_id,
        tenant: answer.tenant,
        spiffe_id: answer.spiffe_id,
        domain: answer.domain,
        certificate: answer.certificate,
        chain: answer.chain,
        bundle: answer.bundle,
        bundle_version: answer.bundle_version,
        root_crls: answer.root_crls,
        node_issuers: answer.node_issuers,
        node_issuers_version: answer.node_issuers_version,
        cert_serial: answer.cert_serial,
        not_after: answer.not_after,
        renew_at: answer.renew_at,
        profile: answer.profile,
        servers: answer.servers,
    }
}

/// Sends the token, once the clocks are known to agree.
pub async fn ask(
    endpoint: &RecoveryEndpoint,
    request: RecoverRequest,
    correlation_id: &str,
    tolerance: Span,
) -> Result<RecoverResponse, FailedCall> {
    let ahead = compared(endpoint, tolerance).await?;
    let agent = AgentApi::new(endpoint.servers.clone(), &endpoint.trust, None).map_err(FailedCall::from)?;
    match agent.recover(request, correlation_id, None).await {
        Ok(reply) => Ok(reply.message),
        Err(error) => Err(FailedCall { clock: ahead, ..FailedCall::from(error) }),
    }
}

/// The identity that the answer holds, for the key that asked for it; of this node, if it is known which one this is. What
/// is to be trusted from now on is vouched for by what is trusted here, and by the CAs that verify the recovery endpoint. `lists`
/// are those that are here.
pub fn check(
    answer: &RecoverResponse,
    key: Arc<HostKey>,
    known: Option<&HostIdentity>,
    anchors: &[CertificateDer<'static>],
    lists: RootLists,
    at: Timestamp,
) -> Result<HostIdentity, Fault> {
    let mut identity = IssuedAnswer::from(answer).check(key, at)?;
    agrees("spiffe_id", &answer.spiffe_id, &identity.spiffe.to_string())?;
    agrees("node_id", &answer.node_id, identity.node_id().unwrap_or_default())?;
    if let Some(known) = known {
        agrees("the node", known.node_id().unwrap_or_default(), identity.node_id().unwrap_or_default())?;
        agrees("the domain", known.spiffe.domain.as_str(), identity.spiffe.domain.as_str())?;
        agrees("the tenant", known.tenant().unwrap_or_default(), identity.tenant().unwrap_or_default())?;
    }
    let offer = TrustOffer::from(answer);
    identity.bundle = next_bundle(&offer, known, anchors, &lists, at).map_err(|reason| {
        let what = format!("the trust bundle of a recovery is not kept: {reason}");
        Fault::host(AgentCode::BundleNotKept, what, trust_refused::REMEDY)
    })?;
    identity.meta_mut().bundle_version = offer.bundle_version;
    identity.root_lists = lists;
    offer.take_beside_bundle(&mut identity);
    Ok(identity)
}

/// The bundle to be trusted next, if what is trusted here says so.
pub fn next_bundle(
    offer: &TrustOffer<'_>,
    known: Option<&HostIdentity>,
    anchors: &[CertificateDer<'static>],
    lists: &RootLists,
    at: Timestamp,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let bundle = known.into_iter().flat_map(|known| &known.bundle);
    let trusted: Vec<CertificateDer<'static>> = bundle.chain(anchors).cloned().collect();
    offer.bundle(&trusted, lists, at)
}
