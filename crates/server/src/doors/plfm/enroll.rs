//! `/v1/hosts/enroll`: a token becomes a host with an identity and an overlay address.

use super::peers::{self, PeerText};
use crate::doors::{NAMING, host, idempotency};
use crate::fleet::overlays::UNFINISHED;
use crate::http::extract::{Json, bad};
use crate::http::failure::Failure;
use crate::http::pem::{leaf_and_chain, trust};
use crate::issuance::Released;
use crate::issuance::enroll::{self, Enrollment, Proof};
use crate::process::app::{App, Provenance};
use api::code;
use api::doors::plfm::{ClusterConfig, EnrollHost, EnrolledHost, OverlayConfig, UnderlayEndpoint};
use api::header;
use api::rest::nodes::HardwareFacts;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use lifecycle::names::Label;
use lifecycle::registry::{Door, Hardware, Underlay, overlay};
use std::sync::Arc;

pub async fn enroll(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    headers: HeaderMap,
    body: Result<Json<EnrollHost>, Failure>,
) -> Result<Response, Failure> {
    let request = match body.and_then(|Json(body)| shape(&headers, body)) {
        Ok(request) => request,
        Err(failure) => {
            app.edge.refusals.record(&app, &origin, failure.code.word, None).await;
            return Err(failure);
        }
    };
    let busy = |why| Failure::new(code::OVERLOADED, why).retry_after(2);
    let place =
        app.fleet.overlays.enrollment().await.ok_or_else(|| busy("more requests than can be served now"))?;
    let enrolled = enroll::enroll(&app, &origin, request).await?;
    let turn = app.fleet.overlays.turn(&enrolled.node.id, UNFINISHED);
    let turn = turn.ok_or_else(|| busy("this enrollment already has sixteen unread answers"))?;
    // Said again, the answer says nothing that is new.
    let (state, node) = (&enrolled.view.state, &enrolled.node);
    let peers = PeerText::of(&app, state, node, node.overlay_seen);
    peers::answer(StatusCode::CREATED, &answer(&app, &enrolled)?, peers, turn.of_enrollment(place))
}

fn shape(headers: &HeaderMap, body: EnrollHost) -> Result<Enrollment, Failure> {
    Ok(Enrollment {
        door: Door::Plfm,
        proof: Proof::token(body.enrollment_token.reveal().to_owned()),
        csr: body.mtls_csr.into_bytes(),
        idempotency: idempotency(headers.get(header::IDEMPOTENCY_KEY).map(|key| key.as_bytes()))?,
        naming: NAMING,
        wireguard: Some(body.wireguard_public_key),
        underlay: Some(underlay(&body.underlay_endpoint)?),
        hardware: body.hardware_facts.map(hardware).transpose()?,
        hostname: None,
        agent_version: None,
        memory_storage: false,
    })
}

fn underlay(endpoint: &UnderlayEndpoint) -> Result<Underlay, Failure> {
    let port = endpoint.port.unwrap_or(overlay::PORT);
    host::underlay(endpoint.ipv6.as_deref(), endpoint.ipv4.as_deref(), port.into())
}

fn hardware(facts: HardwareFacts) -> Result<Hardware, Failure> {
    let arch = facts.arch.as_deref().map(Label::parse).transpose().map_err(bad)?;
    let HardwareFacts { cpu_cores, memory_bytes, disk_bytes, .. } = facts;
    Ok(Hardware { cpu_cores, memory_bytes, disk_bytes, arch })
}

/// The answer without its peers.
fn answer(app: &App, enrolled: &Released) -> Result<EnrolledHost, Failure> {
    let (state, node) = (&enrolled.view.state, &enrolled.node);
    // Asked again for what was enrolled at another door, which gives no address.
    let overlay_config = OverlayConfig::of(node, std::iter::empty())
        .ok_or_else(|| Failure::new(code::NO_OVERLAY, "this host enrolled without a WireGuard key"))?;
    Ok(EnrolledHost {
        host_id: node.id.to_string(),
        mtls_cert: leaf_and_chain(state, &enrolled.der, &enrolled.certificate.issuer),
        mtls_ca_chain: trust(state, &enrolled.certificate.issuer),
        overlay_config,
        cluster_config: ClusterConfig {
            control_plane_endpoints: app.servers(),
            agent_version_policy: state.policy.agent_version_policy().to_owned(),
        },
    })
}
