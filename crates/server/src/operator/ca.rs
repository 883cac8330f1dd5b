//! `/v1/ca`: what is trusted and what signs.

use super::acts::reason;
use super::bootstrap;
use crate::ca::crl;
use crate::ca::ephemeral;
use crate::ca::rewrap;
use crate::ca::roll::{self, ClaimedRoll, Requester, RollRequest};
use crate::ca::root_list;
use crate::ca::{hsm, step_ca};
use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Query, Segment, bad};
use crate::http::failure::Failure;
use crate::http::pem::{bundle_to_follow, root_crls, verifying};
use crate::process::app::App;
use api::code;
use api::rest::ca::{
    AbandonRollRequest, AbandonedRoll, ActivateIssuerRequest, BundleQuery, Ca, CrlQuery,
    ImportRootListRequest, OfferedTrust, PrepareRollRequest, RetireIssuer, RevokeIssuer, RewrapRequest,
    Rewrapped, Roll, StepCaSettings,
};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use journal::View;
use lifecycle::names::{IssuerId, IssuerUse};
use lifecycle::registry::{Act, Actor, Command, Confirmation, Issuer, IssuerKind, Rejection, Tenants};
use pki::pem;
use std::sync::Arc;

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<Ca>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    let axum::Json(mut ca) = shown(&view, &tenants)?;
    if tenants == Tenants::All {
        name_failures(&app, &view, &mut ca);
    }
    // What other replicas accept is in their own configuration.
    ca.issuers.extend(app.ca.spire.anchors().iter().map(bootstrap::spire_item));
    Ok(axum::Json(ca))
}

/// Why an issuer does not sign, where that is known.
fn name_failures(app: &App, view: &View, ca: &mut Ca) {
    for item in &mut ca.issuers {
        let record = view.state.issuers.values().find(|issuer| issuer.id.to_string() == item.id);
        item.unavailable =
            record.and_then(|issuer| hsm::failure(app, issuer).or_else(|| step_ca::failure(app, issuer)));
    }
}

fn shown(view: &View, tenants: &Tenants) -> Result<axum::Json<Ca>, Failure> {
    Ca::of(&view.state, tenants, serial).map(axum::Json).ok_or_else(|| Rejection::NotInitialized.into())
}

/// Of its certificate, as revocation lists name it.
fn serial(issuer: &Issuer) -> String {
    pki::describe::facts(&issuer.certificate).map(|facts| facts.serial.to_string()).unwrap_or_default()
}

/// What verifies nodes (issuers, then roots), or what hosts trust to reach the control plane (roots alone).
pub async fn bundle(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<BundleQuery>,
) -> Result<Response, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    let mut ders: Vec<&[u8]> = Vec::new();
    if let Some(id) = query.issuer.as_deref().map(issuer).transpose()? {
        let found = view.state.issuers.get(&id);
        let found = found.ok_or(Rejection::IssuerNotFound { issuer: id })?;
        let pem = pem::certificate_pem(&found.certificate);
        return Ok(([(header::CONTENT_TYPE, "application/pem-certificate-chain")], pem).into_response());
    }
    if query.server != Some(true) {
        let all = query.nodes != Some(true);
        let wanted =
            |issuer: &&Issuer| issuer.state.is_trusted() && (all || issuer.issues_for().signs_clients());
        let trusted = view.state.issuers.values().filter(wanted);
        ders.extend(trusted.flat_map(verifying));
    }
    for root in view.state.server_trust() {
        if !ders.contains(&root) {
            ders.push(root);
        }
    }
    Ok(([(header::CONTENT_TYPE, "application/pem-certificate-chain")], pem::chain_pem(ders)).into_response())
}

/// Public: the certificates are presented in every handshake, and who asks should have to send no credential before it has them.
pub async fn trust(State(app): State<Arc<App>>) -> axum::Json<OfferedTrust> {
    let view = app.view();
    let bundle = bundle_to_follow(&view.state, app.now());
    axum::Json(OfferedTrust { bundle, root_crls: root_crls(&view.state) })
}

const PEM: &str = "application/x-pem-file";

/// Public: whoever verifies certificates needs it, and it says only what it must.
pub async fn list(State(app): State<Arc<App>>, Query(query): Query<CrlQuery>) -> Result<Response, Failure> {
    let issuer = query.issuer.as_deref().map(issuer).transpose()?;
    let as_pem = match query.format.as_deref() {
        None | Some("der") => false,
        Some("pem") => true,
        Some(_) => return Err(Failure::new(code::BAD_REQUEST, "format must be der or pem")),
    };
    let (kind, body) = match (as_pem, &issuer, query.roots.unwrap_or_default()) {
        (_, Some(_), true) => return Err(wrong("roots: give it without an issuer")),
        (false, None, true) => return Err(wrong("roots: their lists are PEM; give format=pem")),
        (true, None, true) => (
            PEM,
            app.view().state.root_lists().map(|list| pem::crl_pem(&list.der)).collect::<String>().into(),
        ),
        (true, None, false) => (PEM, crl::all(&app).await?),
        (true, Some(issuer), false) => (PEM, crl::list(&app, Some(issuer)).await?.pem),
        (false, issuer, false) => ("application/pkix-crl", crl::list(&app, issuer.as_ref()).await?.der),
    };
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

pub async fn roll(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<Roll>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    Ok(axum::Json(Roll::of(&view.state, &tenants, serial)))
}

pub async fn prepare(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<PrepareRollRequest>,
) -> Result<axum::Json<Roll>, Failure> {
    let by = manager(&app, &caller)?;
    let view = match &body.certificate {
        Some(certificate) => roll::certify(&app, &by, certificate, claimed(&body)?).await?,
        None => roll::request(&app, &by, &wanted(&body)?).await?,
    };
    // Whoever manages the CA sees all tenants.
    Ok(axum::Json(Roll::of(&view.state, &Tenants::All, serial)))
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
    let by = manager(&app, &caller)?;
    shown(&*roll::retire(&app, &by, named, body.force, body.confirm).await?, &Tenants::All)
}

pub async fn abandon(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<AbandonRollRequest>,
) -> Result<axum::Json<AbandonedRoll>, Failure> {
    let (certified_root, view) = roll::abandon(&app, &manager(&app, &caller)?, body.confirm).await?;
    let roll = Roll::of(&view.state, &Tenants::All, serial);
    Ok(axum::Json(AbandonedRoll { roll, certified_root }))
}

pub async fn import_list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<ImportRootListRequest>,
) -> Result<axum::Json<Ca>, Failure> {
    let by = manager(&app, &caller)?;
    shown(&*root_list::import(&app, &by, &body.list, body.confirm).await?, &Tenants::All)
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
        asks_for_holders: true,
    };
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    // Where it was this replica's own ephemeral issuer, the next one signs before this is answered; if it could not be published, its
    // task tries again.
    let _ = ephemeral::ensure(&app).await;
    shown(&view, &Tenants::All)
}

pub async fn change_step_ca(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(body): Json<StepCaSettings>,
) -> Result<axum::Json<Ca>, Failure> {
    let by = manager(&app, &caller)?;
    // It holds a private key, which goes over no network.
    if !matches!(caller.actor, Actor::Local { .. }) {
        return Err(Failure::new(
            code::LOCAL_ONLY,
            "the settings of step-ca are changed on the operator socket only",
        ));
    }
    let view = step_ca::change(&app, &by, body).await?;
    let axum::Json(mut ca) = shown(&view, &Tenants::All)?;
    name_failures(&app, &view, &mut ca);
    Ok(axum::Json(ca))
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

fn wanted(body: &PrepareRollRequest) -> Result<RollRequest, Failure> {
    if body.new_root && body.usage.is_some() {
        return Err(wrong("use: a new root brings issuers for both uses, so that none can be chosen"));
    }
    let usage = usage(body)?.unwrap_or(IssuerUse::Node);
    let kind = match body.kind.as_deref() {
        None => None,
        Some("sealed") => Some(IssuerKind::Sealed),
        Some("pkcs11") => Some(IssuerKind::Pkcs11),
        Some(_) => return Err(wrong("kind must be sealed or pkcs11")),
    };
    Ok(RollRequest { usage, new_root: body.new_root, kind })
}

fn usage(body: &PrepareRollRequest) -> Result<Option<IssuerUse>, Failure> {
    match body.usage.as_deref() {
        None => Ok(None),
        Some("node") => Ok(Some(IssuerUse::Node)),
        Some("server") => Ok(Some(IssuerUse::Server)),
        Some("both") => Ok(Some(IssuerUse::Both)),
        Some(_) => Err(wrong("use must be node, server or both")),
    }
}

fn claimed(body: &PrepareRollRequest) -> Result<ClaimedRoll, Failure> {
    if body.kind.is_some() {
        return Err(wrong("kind: where keys are kept is said when a roll begins, not with its certificates"));
    }
    Ok(ClaimedRoll { usage: usage(body)?, new_root: body.new_root })
}

fn wrong(what: &str) -> Failure {
    Failure::new(code::BAD_REQUEST, what.to_owned())
}

fn issuer(text: &str) -> Result<IssuerId, Failure> {
    IssuerId::parse(text).map_err(bad)
}

/// Rights first: who may not touch the CA costs no key and reads no file.
fn manager<'a>(app: &App, caller: &'a Caller) -> Result<Requester<'a>, Failure> {
    authenticate::reader(app, &caller.actor, Act::ManageCa)?;
    Ok(Requester { actor: &caller.actor, origin: &caller.origin })
}
