//! `/v1/ca`: what is trusted and what signs.

use super::acts::reason;
use crate::ca::crl;
use crate::ca::rewrap;
use crate::ca::roll::{self, Requester};
use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Query, Segment, bad};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::rest::ca::{
    ActivateIssuerRequest, BundleQuery, Ca, CrlQuery, PrepareRollRequest, RetireIssuer, RevokeIssuer,
    RewrapRequest, Rewrapped, Roll,
};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use journal::View;
use lifecycle::names::IssuerId;
use lifecycle::registry::{Act, Actor, Command, Confirmation, Rejection, Tenants};
use pki::pem;
use std::sync::Arc;

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<Ca>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    shown(&view, &tenants)
}

fn shown(view: &View, tenants: &Tenants) -> Result<axum::Json<Ca>, Failure> {
    Ca::of(&view.state, tenants).map(axum::Json).ok_or_else(|| Rejection::NotInitialized.into())
}

/// What verifies nodes (issuers, then roots), or what hosts trust to reach the control plane (roots alone).
pub async fn bundle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<BundleQuery>,
) -> Result<Response, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    let mut ders: Vec<&[u8]> = Vec::new();
    if query.server != Some(true) {
        let trusted = view.state.issuers.values().filter(|issuer| issuer.state.is_trusted());
        ders.extend(trusted.map(|issuer| issuer.certificate.as_slice()));
    }
    for root in &view.state.roots {
        if !ders.contains(&root.certificate.as_slice()) {
            ders.push(&root.certificate);
        }
    }
    Ok(([(header::CONTENT_TYPE, "application/pem-certificate-chain")], pem::chain_pem(ders)).into_response())
}

/// Public: whoever verifies certificates needs it, and it says only what it must.
pub async fn list(State(app): State<Arc<App>>, Query(query): Query<CrlQuery>) -> Result<Response, Failure> {
    let issuer = query.issuer.as_deref().map(issuer).transpose()?;
    let as_pem = match query.format.as_deref() {
        None | Some("der") => false,
        Some("pem") => true,
        Some(_) => return Err(Failure::new(code::BAD_REQUEST, "format must be der or pem")),
    };
    let list = crl::list(&app, issuer.as_ref()).await?;
    let (kind, body) =
        if as_pem { ("application/x-pem-file", list.pem) } else { ("application/pkix-crl", list.der) };
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

pub async fn roll(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<Roll>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    Ok(axum::Json(Roll::of(&view.state, &tenants)))
}

pub async fn prepare(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<PrepareRollRequest>,
) -> Result<axum::Json<Roll>, Failure> {
    let by = manager(&app, &caller)?;
    let view = match &body.certificate {
        Some(certificate) => roll::certify(&app, &by, certificate).await?,
        None => roll::request(&app, &by).await?,
    };
    // Whoever manages the CA sees all tenants.
    Ok(axum::Json(Roll::of(&view.state, &Tenants::All)))
}

pub async fn activate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<ActivateIssuerRequest>,
) -> Result<axum::Json<Ca>, Failure> {
    let named = body.issuer.as_deref().map(issuer).transpose()?;
    shown(
        &*roll::activate(&app, &manager(&app, &caller)?, named, body.force, body.confirm).await?,
        &Tenants::All,
    )
}

pub async fn retire(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<RetireIssuer>,
) -> Result<axum::Json<Ca>, Failure> {
    let named = body.issuer.as_deref().map(issuer).transpose()?;
    shown(&*roll::retire(&app, &manager(&app, &caller)?, named).await?, &Tenants::All)
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(body): Json<RevokeIssuer>,
) -> Result<axum::Json<Ca>, Failure> {
    let issuer = issuer(&id)?;
    let command = Command::RevokeIssuer {
        issuer,
        reason: reason(body.reason)?,
        confirm: Confirmation::Asked(body.confirm),
    };
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    shown(&view, &Tenants::All)
}

pub async fn rewrap(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<RewrapRequest>,
) -> Result<axum::Json<Rewrapped>, Failure> {
    let by = manager(&app, &caller)?;
    // It names a file or a variable of this machine, and so may only who is on it.
    if !matches!(caller.actor, Actor::Local { .. }) {
        return Err(Failure::new(
            code::LOCAL_ONLY,
            "the key-encryption key is changed on the operator socket only",
        ));
    }
    let rewrapped = rewrap::rewrap(&app, &by, &body.kek).await?;
    Ok(axum::Json(Rewrapped { kek_id: rewrapped.kek_id, warnings: rewrapped.warnings }))
}

fn issuer(text: &str) -> Result<IssuerId, Failure> {
    IssuerId::parse(text).map_err(bad)
}

/// Rights first: who may not touch the CA costs no key and reads no file.
fn manager<'a>(app: &App, caller: &'a Caller) -> Result<Requester<'a>, Failure> {
    authenticate::reader(app, &caller.actor, Act::ManageCa)?;
    Ok(Requester { actor: &caller.actor, origin: &caller.origin })
}
