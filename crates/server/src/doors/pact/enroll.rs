//! Enroll: a registered machine gets a certificate, by its hardware alone.

use super::{hardware, status};
use crate::doors::{NAMING, idempotency};
use crate::http::failure::Failure;
use crate::http::pem::{leaf_and_chain, trust_with_outside_issuer};
use crate::issuance::Released;
use crate::issuance::enroll::{self, Enrollment, Proof};
use crate::process::app::{App, Provenance};
use api::doors::pact::enrollment::{EnrollRequest, EnrollResponse};
use api::{code, header};
use lifecycle::registry::{Door, HardwareIdentity, NodeState, State};
use std::sync::Arc;
use tonic::{Request, Status};

pub async fn enroll(
    app: &Arc<App>,
    origin: &Provenance,
    request: Request<EnrollRequest>,
) -> Result<EnrollResponse, Status> {
    let (claimed, enrollment) = match shape(request) {
        Ok(shaped) => shaped,
        Err(failure) => {
            app.edge.refusals.record(app, origin, failure.code.word, None).await;
            return Err(status::status(&failure));
        }
    };
    let before = app.view();
    match enroll::enroll(app, origin, enrollment).await {
        Ok(enrolled) => Ok(answer(&enrolled)),
        Err(failure) if failure.code == code::ALREADY_ACTIVE => Err(match awaited(&before.state, &claimed) {
            // It was free when this request came, and another was faster.
            Some(message) => status::precondition(&Failure { message, ..failure }),
            None => status::status(&failure),
        }),
        Err(failure) => Err(status::status(&failure)),
    }
}

fn shape(request: Request<EnrollRequest>) -> Result<(HardwareIdentity, Enrollment), Failure> {
    let key = request.metadata().get(header::IDEMPOTENCY_KEY).map(|key| key.as_bytes());
    let idempotency = idempotency(key)?;
    let body = request.into_inner();
    let claimed = hardware::claimed(body.hardware_identity.as_ref())?;
    let enrollment = Enrollment {
        door: Door::Pact,
        proof: Proof::Hardware(claimed.clone()),
        csr: pki::pem::request_pem(&body.csr).into_bytes(),
        idempotency,
        naming: NAMING,
        wireguard: None,
        underlay: None,
        hardware: None,
        hostname: None,
        agent_version: None,
        memory_storage: false,
    };
    Ok((claimed, enrollment))
}

/// The node that a machine might have enrolled as. Not looked up before the request has passed every check: a refusal would take
/// longer where the machine is known, and tell a stranger so.
fn awaited(state: &State, claimed: &HardwareIdentity) -> Option<String> {
    match state.nodes_with_hardware(claimed)[..] {
        [node] if matches!(node.state, NodeState::Registered | NodeState::Inactive) => {
            Some(node.id.to_string())
        }
        _ => None,
    }
}

fn answer(enrolled: &Released) -> EnrollResponse {
    let Released { node, serial, certificate, der, view, .. } = enrolled;
    let (state, issuer) = (&view.state, &certificate.issuer);
    EnrollResponse {
        node_id: node.id.to_string(),
        domain_id: state.domain.as_ref().map(|domain| domain.name.to_string()).unwrap_or_default(),
        signed_cert: leaf_and_chain(state, der, issuer).into_bytes(),
        ca_chain: trust_with_outside_issuer(state, issuer).into_bytes(),
        vcluster_id: node.vcluster.as_ref().map(ToString::to_string).unwrap_or_default(),
        cert_serial: serial.to_string(),
        cert_expires_at: certificate.not_after.to_string(),
    }
}
