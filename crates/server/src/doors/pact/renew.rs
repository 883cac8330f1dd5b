//! RenewCert: a node gets its next certificate, by the one that it shows. A bearer beside it is not looked at: pact's agents
//! send one that means nothing.

use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::refused_renewals::CertificateHolder;
use crate::http::failure::Failure;
use crate::http::pem::{leaf_and_chain, trust_with_outside_issuer};
use crate::issuance::Released;
use crate::issuance::renew::{self, RenewalRequest};
use crate::process::app::{App, Provenance};
use api::code;
use api::doors::pact::enrollment::{RenewCertRequest, RenewCertResponse};
use lifecycle::names::{NodeId, Serial, Timestamp};
use lifecycle::registry::{Keeping, Owner, State, Verdict};
use std::sync::Arc;

pub async fn renew(
    app: &Arc<App>,
    peer: &ConnectionPeer,
    origin: &Provenance,
    request: RenewCertRequest,
) -> Result<RenewCertResponse, Failure> {
    match attempt(app, peer, origin, request).await {
        Ok(renewed) => Ok(answer(&renewed)),
        Err(failure) => {
            let holder = CertificateHolder::of(app, peer);
            app.edge.refused_renewals.record(app, origin, holder, &failure).await;
            Err(failure)
        }
    }
}

async fn attempt(
    app: &Arc<App>,
    peer: &ConnectionPeer,
    origin: &Provenance,
    request: RenewCertRequest,
) -> Result<Released, Failure> {
    let (node, with) = authenticate::node(app, peer).await?;
    if request.node_id.as_deref().is_some_and(|named| named != node.as_str()) {
        return Err(Failure::new(
            code::NOT_YOUR_NODE,
            "the client certificate belongs to another node than node_id names",
        ));
    }
    let known = Serial::parse(&request.current_cert_serial);
    if !known.is_ok_and(|serial| is_live(&app.view().state, &serial, &node, app.now())) {
        return Err(Failure::new(
            code::SERIAL_MISMATCH,
            "current_cert_serial is not the serial of a certificate that this node may use",
        ));
    }
    let csr = pki::pem::request_pem(&request.csr).into_bytes();
    let request = RenewalRequest { node, with, csr, agent_version: None, keeping: Keeping::default() };
    renew::renew(app, origin, request).await
}

/// After a renewal whose answer may be lost two certificates of a node are good, and a superseded one is until it has drained.
fn is_live(state: &State, serial: &Serial, node: &NodeId, now: Timestamp) -> bool {
    let own = |owner: &Owner| matches!(owner, Owner::Node(id) if id == node);
    state.certificates.get(serial).is_some_and(|certificate| own(&certificate.owner))
        && matches!(state.verdict(serial, now), Verdict::Good | Verdict::Grace { .. })
}

fn answer(renewed: &Released) -> RenewCertResponse {
    let Released { serial, certificate, der, view, .. } = renewed;
    let (state, issuer) = (&view.state, &certificate.issuer);
    RenewCertResponse {
        signed_cert: leaf_and_chain(state, der, issuer).into_bytes(),
        ca_chain: trust_with_outside_issuer(state, issuer).into_bytes(),
        cert_serial: serial.to_string(),
        cert_expires_at: certificate.not_after.to_string(),
    }
}
