//! `POST /v1/nodes/import`: a certificate made elsewhere goes on record. What the registry cannot see, the
//! signature of its issuer, is checked here.

use crate::ca::server_cert;
use crate::doors::taskrun::worker;
use crate::edge::authenticate;
use crate::fleet::everywhere;
use crate::http::extract::{Caller, Json};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::rest::nodes::{ImportNode, NodeItem};
use axum::extract::State;
use lifecycle::names::{IssuerId, TenantId};
use lifecycle::registry::{self, Act, Command, Import, IssuerKind, Rejection};
use pki::import::Imported;
use std::sync::Arc;

pub async fn import(
    State(app): State<Arc<App>>,
    caller: Caller,
    body: Result<Json<ImportNode>, Failure>,
) -> Result<axum::Json<NodeItem>, Failure> {
    // May it at all? Asked before anything is read.
    let (_, seen) = authenticate::reader(&app, &caller.actor, Act::ImportNode)?;
    if !caller.narrowed(&app, seen, None)?.include(&TenantId::default_tenant()) {
        let message = "imported certificates belong to the tenant default";
        return Err(Failure::new(code::BAD_REQUEST, message));
    }
    let Json(request) = body?;
    let invalid = |error: &dyn std::fmt::Display| Failure::new(code::CERTIFICATE_INVALID, error.to_string());
    let read = pki::import::read(request.certificate.as_bytes()).map_err(|error| invalid(&error))?;
    if is_own(&app, &read) {
        return Err(invalid(&"this is the control plane's own server certificate, not a node's"));
    }
    let node = worker::named(&read.common_name)
        .map_err(|error| invalid(&format!("the common name holds no node id: {error}")))?;
    let import = Import {
        node: node.clone(),
        issuer: issuer(&app.view().state, &read),
        serial: read.serial,
        fingerprint: read.fingerprint,
        key: read.key,
        not_before: read.not_before,
        not_after: read.not_after,
    };
    let (_, view) = app.commit(caller.actor, &caller.origin, Command::Import(Box::new(import))).await?;
    let known = view.state.nodes.get(&node).ok_or_else(|| Rejection::NodeNotFound { node: node.clone() })?;
    Ok(axum::Json(NodeItem::of(&view.state, known, &everywhere::live(&app, &node).await)))
}

/// The control plane is no node: on record as one, its certificate would speak for a host, and end up on the list of
/// revocations with it.
fn is_own(app: &App, read: &Imported) -> bool {
    let recorded = app.view().state.server_certificates().any(|own| own.fingerprint == read.fingerprint);
    let given = app.config.own_certificate.as_ref();
    recorded || given.is_some_and(|files| server_cert::presents(files, &read.der))
}

/// The imported CA that signed it; one that nobody knows if none did, which the registry refuses once it has
/// looked at who asks.
fn issuer(state: &registry::State, read: &Imported) -> IssuerId {
    let brought = state.issuers.values().filter(|issuer| issuer.kind == IssuerKind::Imported);
    let signed = brought.into_iter().find(|issuer| read.is_issued_by(&issuer.certificate));
    signed.map_or_else(|| pki::issuer::issuer_id(&read.der), |issuer| issuer.id.clone())
}
