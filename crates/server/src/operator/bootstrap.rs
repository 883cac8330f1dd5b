//! `/v1/ca/bootstrap`: certificates that hosts share until they have one of their own; and how the CAs of SPIRE are shown.

use super::operators::read_csr;
use crate::ca::hsm;
use crate::ca::keys::{self, Terms};
use crate::ca::spire::SpireAnchor;
use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Segment, bad, duration};
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::chance;
use api::code;
use api::rest::bootstrap::{BootstrapItem, IssueBootstrapRequest, IssuedBootstrap};
use api::rest::ca::IssuerItem;
use api::rest::page::Page;
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::{BootstrapName, Span, SpiffeId};
use lifecycle::registry::{Act, BOOTSTRAP_LONGEST, BOOTSTRAP_SHORTEST, Command, IssueBootstrap, Rejection};
use pki::pem;
use std::sync::Arc;

const USUAL: Span = Span::from_days(90);

pub async fn issue(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<IssueBootstrapRequest>,
) -> Result<(StatusCode, axum::Json<IssuedBootstrap>), Failure> {
    // May it at all? Asked before anything is signed.
    authenticate::reader(&app, &caller.actor, Act::ManageCa)?;
    let name = BootstrapName::parse(&request.name).map_err(bad)?;
    let lifetime = duration("expires", request.expires.as_deref())?.unwrap_or(USUAL);
    if !(BOOTSTRAP_SHORTEST..=BOOTSTRAP_LONGEST).contains(&lifetime) {
        return Err(Rejection::BootstrapTtl { min: BOOTSTRAP_SHORTEST, max: BOOTSTRAP_LONGEST }.into());
    }
    let csr = read_csr(&request.csr)?;
    let view = app.view();
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let at = app.now();
    let subject = SpiffeId::bootstrap(&domain.name, &name);
    let terms = Terms {
        subject: subject.clone(),
        common_name: Some(format!("bootstrap:{name}")),
        lifetime,
        profile: None,
    };
    let issuer = app.ca.keys.client_issuer(&view.state)?;
    let serial = chance::serial(at)?;
    let what = "the certificate of a bootstrap identity could not be signed";
    let certificate = hsm::signed(&app, &issuer, what, || keys::sign(&issuer, &csr, terms, serial, at))?;
    let command = IssueBootstrap { name: name.clone(), certificate: certificate.clone() };
    let command = Command::IssueBootstrap(Box::new(command));
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let issuer = view.state.issuers.get(&certificate.issuer);
    let issued = IssuedBootstrap {
        name: name.to_string(),
        spiffe_id: subject.to_string(),
        certificate: pem::certificate_pem(&certificate.der),
        chain: issuer.map(|issuer| pem::certificate_pem(&issuer.certificate)).unwrap_or_default(),
        ca: pem::chain_pem(view.state.server_trust()),
        cert_serial: certificate.serial.to_string(),
        not_after: certificate.not_after.to_string(),
        shortened: certificate.not_after.plus(Span::from_secs(1)) < at.plus(lifetime),
    };
    Ok((StatusCode::CREATED, axum::Json(issued)))
}

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<axum::Json<Page<BootstrapItem>>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadCa)?;
    let state = crate::issuance::at_now(&app, &view);
    let items = state.bootstraps.values().map(|bootstrap| BootstrapItem::of(&state, bootstrap));
    Ok(axum::Json(Page::whole(items.collect())))
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(name): Segment,
) -> Result<StatusCode, Failure> {
    let name = BootstrapName::parse(&name).map_err(|_| {
        Failure::new(code::BOOTSTRAP_NOT_FOUND, "there is no bootstrap identity of this name")
    })?;
    app.commit(caller.actor, &caller.origin, Command::RevokeBootstrap { name }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Hexadecimal digits of an issuer's id.
const ID: usize = 16;

/// A CA of another trust domain among the issuers; of a bundle that was never read, that it is missing.
pub fn spire_item(held: &SpireAnchor) -> IssuerItem {
    let anchor = held.anchor.as_ref();
    let fingerprint = anchor.map(|anchor| anchor.fingerprint.pin());
    IssuerItem {
        // As long as the ids of issuers of our own.
        id: anchor.map_or_else(
            || held.domain.to_string(),
            |anchor| anchor.fingerprint.hex().chars().take(ID).collect(),
        ),
        kind: "spire".to_owned(),
        usage: "node".to_owned(),
        state: if anchor.is_some() { "active" } else { "prepared" }.to_owned(),
        subject: anchor.map(|anchor| anchor.subject.clone()).unwrap_or_default(),
        fingerprint: fingerprint.unwrap_or_default(),
        serial: anchor.map(|anchor| anchor.serial.clone()).unwrap_or_default(),
        not_after: anchor.map(|anchor| anchor.not_after.to_string()).unwrap_or_default(),
        leaves: 0,
        other_leaves: 0,
        crl: false,
        replica: None,
        root: None,
        unavailable: held.fault.clone(),
        trust_domain: Some(held.domain.to_string()),
    }
}
