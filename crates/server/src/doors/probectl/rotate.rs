//! `POST /enroll/agent/rotate`: a certificate and a proof of its key become the next certificate.
//!
//! The certificate comes in the body, so what a handshake would have checked is checked here, what costs least
//! first: signatures are only looked at for a certificate that is on record.

use super::{AgentRefusal, TENANT_MISMATCH, identity, named_tenant};
use crate::edge::node_peer::ShownIdentity;
use crate::edge::refused_renewals::CertificateHolder;
use crate::http::extract::Json;
use crate::http::failure::Failure;
use crate::issuance::Released;
use crate::issuance::renew::{self, RenewalRequest};
use crate::process::app::{App, Provenance};
use api::doors::probectl::{ProbectlIdentity, RotateAgent};
use axum::Extension;
use axum::extract::State;
use http::HeaderMap;
use lifecycle::names::{NodeId, Serial, SpiffePath, TenantId, Timestamp};
use lifecycle::registry::{self, Keeping, Owner, Verdict};
use pki::verify::{PeerCertificate, PeerError};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

pub async fn rotate(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    headers: HeaderMap,
    Json(request): Json<RotateAgent>,
) -> Result<axum::Json<ProbectlIdentity>, Failure> {
    let named = named_tenant(&headers)?;
    match attempt(&app, &origin, request, named).await {
        Ok(renewed) => Ok(identity(&renewed)),
        Err(refused) => Err(refused.recorded(&app, &origin).await),
    }
}

async fn attempt(
    app: &Arc<App>,
    origin: &Provenance,
    request: RotateAgent,
    named: Option<TenantId>,
) -> Result<Released, AgentRefusal> {
    let (node, with) = proven(app, origin, &request).await?;
    let sample = format!("node:{node}");
    let holder = CertificateHolder { node: node.clone(), serial: Some(with.clone()) };
    let own = app.view().state.nodes.get(&node).map(|node| node.tenant.clone());
    if named.is_some() && named != own {
        app.edge.refused_renewals.note(app, origin, holder, TENANT_MISMATCH).await;
        return Err(AgentRefusal::Credential(TENANT_MISMATCH, Some(sample)));
    }
    let request = RenewalRequest {
        node,
        with: ShownIdentity::Certificate(with),
        csr: request.csr_pem.into_bytes(),
        agent_version: None,
        keeping: Keeping::default(),
    };
    let failure = match renew::renew(app, origin, request).await {
        Ok(renewed) => return Ok(renewed),
        Err(failure) => failure,
    };
    app.edge.refused_renewals.record(app, origin, Some(holder), &failure).await;
    Err(match AgentRefusal::from(failure) {
        AgentRefusal::Credential(reason, _) => AgentRefusal::Credential(reason, Some(sample)),
        AgentRefusal::Other(failure) => AgentRefusal::Other(failure),
    })
}

/// The node whose certificate this is, and which has shown that it holds its key.
async fn proven(
    app: &App,
    origin: &Provenance,
    request: &RotateAgent,
) -> Result<(NodeId, Serial), AgentRefusal> {
    let malformed = || AgentRefusal::Credential("certificate_malformed", None);
    let leaf = pki::pem::first_certificate(request.cert_pem.as_bytes()).map_err(|_| malformed())?;
    let peer = PeerCertificate::read(&leaf).map_err(|_| malformed())?;
    let refused = |reason| AgentRefusal::Credential(reason, Some(format!("serial:{}", peer.serial)));
    let now = app.now();
    let mut view = app.view();
    if !view.state.certificates.contains_key(&peer.serial) {
        // Signed by one of our issuers but not on record: perhaps it has not arrived from the leader yet. Only then is
        // the barrier waited for.
        check_chain(app, &view.state, &leaf, now)?.map_err(refused)?;
        view = app.journal.barrier().await.map_err(Failure::from)?;
    }
    let record = view.state.certificates.get(&peer.serial);
    let record = record.filter(|record| record.fingerprint == peer.fingerprint);
    let record = record.ok_or_else(|| refused("certificate_unknown"))?;
    let id = match (&record.owner, peer.spiffe.as_ref().map(|spiffe| &spiffe.path)) {
        (Owner::Node(id), Some(SpiffePath::Agent { node, .. })) if id == node => id.clone(),
        _ => return Err(refused("certificate_unknown")),
    };
    if peer.not_after <= now {
        return Err(refused("certificate_expired"));
    }
    let verdict = view.state.verdict(&peer.serial, now);
    match verdict {
        Verdict::Denied(_) => return Err(refused("certificate_revoked")),
        Verdict::Expired => return Err(refused("certificate_expired")),
        Verdict::Unknown => return Err(refused("certificate_unknown")),
        // One that is superseded renews nothing, but its key has to be proven before that says something.
        Verdict::Good | Verdict::Grace { .. } | Verdict::Superseded { .. } => {}
    }
    check_chain(app, &view.state, &leaf, now)?.map_err(refused)?;
    if !pki::proof::holds(&leaf, request.csr_pem.as_bytes(), &request.proof) {
        return Err(refused("proof_invalid"));
    }
    // Only now does an old certificate that comes back say something about its holder.
    if verdict.shows_a_copy() {
        app.fleet.presence.suspect_superseded(&record.owner, &peer.serial, Some(origin.source), now);
    }
    Ok((id, peer.serial.clone()))
}

/// Whether one of our issuers signed it and its dates are good; the inner error is the reason for the trail.
fn check_chain(
    app: &App,
    state: &registry::State,
    leaf: &CertificateDer<'_>,
    at: Timestamp,
) -> Result<Result<(), &'static str>, Failure> {
    let unreadable = |error| Failure::internal("the issuers of nodes cannot be read", &error);
    let issuers = app.ca.anchors.of(state).map_err(unreadable)?;
    Ok(issuers.check(leaf, at).map(drop).map_err(|error| match error {
        PeerError::Expired => "certificate_expired",
        PeerError::NotYetValid => "certificate_not_yet_valid",
        PeerError::UnknownIssuer | PeerError::WrongTrustDomain => "certificate_unknown_issuer",
        PeerError::RevokedIssuer => "certificate_revoked",
        PeerError::Malformed(_) | PeerError::NotClientAuth => "certificate_malformed",
    }))
}
