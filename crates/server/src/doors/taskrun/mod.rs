//! The taskrun door: workers with bootstrap tokens, renewed over mTLS, with a stream that they hold open.

pub mod stream;
pub mod worker;
mod workers;

use super::{NAMING, idempotency};
use crate::edge::authenticate::ConnectionPeer;
use crate::edge::refused_renewals::CertificateHolder;
use crate::http::extract::Json;
use crate::http::failure::Failure;
use crate::http::pem::{leaf_and_chain, trust};
use crate::issuance::Released;
use crate::issuance::enroll::{self, Enrollment, Naming, Proof};
use crate::issuance::renew::{self, RenewalRequest};
use crate::process::app::{App, Provenance};
use api::doors::taskrun::{EnrollWorker, EnrolledWorker, RenewWorker, RenewedWorker};
use api::header;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::HeaderMap;
use lifecycle::registry::{Door, Keeping};
use std::sync::Arc;

pub fn router(app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
        .route_service("/taskrun.v1.RunService/{method}", stream::service(app))
        .route("/v1/enroll", post(enroll))
        .route("/v1/renew", post(renew))
        .route("/v1/workers", get(workers::list))
        .route("/v1/workers/{id}", get(workers::show))
        .route("/v1/workers/{id}/revoke", post(workers::revoke))
}

async fn enroll(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    headers: HeaderMap,
    body: Result<Json<EnrollWorker>, Failure>,
) -> Result<axum::Json<EnrolledWorker>, Failure> {
    let request = match body.and_then(|Json(body)| shape(&headers, body)) {
        Ok(request) => request,
        Err(failure) => {
            app.edge.refusals.record(&app, &origin, failure.code.word, None).await;
            return Err(failure);
        }
    };
    let enrolled = enroll::enroll(&app, &origin, request).await?;
    let (state, issuer) = (&enrolled.view.state, &enrolled.certificate.issuer);
    Ok(axum::Json(EnrolledWorker {
        worker_cert: leaf_and_chain(state, &enrolled.der, issuer),
        ca_cert: trust(state, issuer),
        expires_at: enrolled.certificate.not_after.to_string(),
    }))
}

fn shape(headers: &HeaderMap, body: EnrollWorker) -> Result<Enrollment, Failure> {
    Ok(Enrollment {
        door: Door::Taskrun,
        proof: Proof::token(body.bootstrap_token.reveal().to_owned()),
        csr: body.csr.into_bytes(),
        idempotency: idempotency(headers.get(header::IDEMPOTENCY_KEY).map(|key| key.as_bytes()))?,
        naming: Naming { requested: worker::requested, ..NAMING },
        wireguard: None,
        underlay: None,
        hardware: None,
        hostname: None,
        agent_version: None,
        memory_storage: false,
    })
}

async fn renew(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    Extension(peer): Extension<ConnectionPeer>,
    body: Result<Json<RenewWorker>, Failure>,
) -> Result<axum::Json<RenewedWorker>, Failure> {
    match attempt(&app, &origin, &peer, body).await {
        Ok(renewed) => Ok(axum::Json(RenewedWorker {
            worker_cert: leaf_and_chain(&renewed.view.state, &renewed.der, &renewed.certificate.issuer),
            expires_at: renewed.certificate.not_after.to_string(),
        })),
        Err(failure) => {
            let holder = CertificateHolder::of(&app, &peer);
            app.edge.refused_renewals.record(&app, &origin, holder, &failure).await;
            Err(failure)
        }
    }
}

async fn attempt(
    app: &Arc<App>,
    origin: &Provenance,
    peer: &ConnectionPeer,
    body: Result<Json<RenewWorker>, Failure>,
) -> Result<Released, Failure> {
    let (node, with) = worker::authenticated(app, peer).await?;
    let Json(body) = body?;
    let request = RenewalRequest {
        node,
        with,
        csr: body.csr.into_bytes(),
        agent_version: None,
        keeping: Keeping::default(),
    };
    renew::renew(app, origin, request).await
}
