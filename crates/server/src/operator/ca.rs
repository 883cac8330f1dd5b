//! `/v1/ca`: what is trusted and what signs.

use super::extract::{Caller, Query};
use crate::app::App;
use crate::auth;
use crate::failure::Failure;
use api::rest::ca::{BundleQuery, Ca};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use lifecycle::registry::{Act, Rejection};
use pki::pem;
use std::sync::Arc;

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<Ca>, Failure> {
    let (view, _) = auth::reader(&app, &caller.actor, Act::ReadCa)?;
    Ca::of(&view.state).map(axum::Json).ok_or_else(|| Rejection::NotFounded.into())
}

/// What verifies nodes (issuers, then roots), or what hosts trust to reach the control plane (roots alone).
pub async fn bundle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<BundleQuery>,
) -> Result<Response, Failure> {
    let (view, _) = auth::reader(&app, &caller.actor, Act::ReadCa)?;
    let mut ders: Vec<&[u8]> = Vec::new();
    if query.server != Some(true) {
        ders.extend(view.state.issuers.values().map(|issuer| issuer.certificate.as_slice()));
    }
    for root in &view.state.roots {
        if !ders.contains(&root.certificate.as_slice()) {
            ders.push(&root.certificate);
        }
    }
    Ok(([(header::CONTENT_TYPE, "application/pem-certificate-chain")], pem::chain_pem(ders)).into_response())
}
