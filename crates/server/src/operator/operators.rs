//! `/v1/operators` and `/v1/operator-keys`.

use crate::ca::hsm;
use crate::ca::keys::{self, OPERATOR_LIFETIME, Terms};
use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Segment, bad, bad_in, duration};
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::chance;
use api::code;
use api::rest::one_or_more::OneOrMore;
use api::rest::operators::{self, AddedOperator, CreatedKey, KeyItem, OperatorItem, RemovedOperator};
use api::rest::page::Page;
use api::rest::scope::TenantScope;
use api::rest::secret::Secret;
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::{KeyId, OperatorName, Span, SpiffeId, VclusterId};
use lifecycle::registry::{
    Act, AddOperator, Command, CreateOperatorKey, Issued, Outcome, Rejection, Role, Vclusters,
};
use pki::{csr, pem};
use std::sync::Arc;

const KEY_TTL: Span = Span::from_days(90);

fn role(word: &str) -> Result<Role, Failure> {
    Role::parse(word)
        .ok_or_else(|| Failure::new(code::BAD_REQUEST, "role must be viewer, operator or platform-admin"))
}

/// What a role is narrowed to; none named is not narrowed.
fn vclusters(names: &OneOrMore) -> Result<Vclusters, Failure> {
    let names = names.as_slice().iter().map(|name| VclusterId::parse(name)).collect::<Result<_, _>>();
    Ok(Vclusters::narrowed(names.map_err(bad_in("vcluster"))?))
}

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<axum::Json<Page<OperatorItem>>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadOperators)?;
    let items = view.state.operators.values().map(|operator| OperatorItem::of(&view.state, operator));
    Ok(axum::Json(Page::whole(items.collect())))
}

pub async fn add(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<operators::AddOperatorRequest>,
) -> Result<(StatusCode, axum::Json<AddedOperator>), Failure> {
    // May it at all? Asked before anything is signed.
    authenticate::reader(&app, &caller.actor, Act::AddOperator)?;
    let name = OperatorName::parse(&request.name).map_err(bad)?;
    let tenants = TenantScope::tenants(request.tenant.as_ref()).map_err(bad)?;
    let certificate = request.csr.as_deref().map(|csr| sign(&app, &name, csr)).transpose()?;
    let command = AddOperator {
        name: name.clone(),
        role: role(&request.role)?,
        tenants,
        certificate: certificate.clone(),
        vclusters: vclusters(&request.vcluster)?,
    };
    let (_, view) = app.commit(caller.actor, &caller.origin, Command::AddOperator(command)).await?;
    let operator =
        view.state.operators.get(&name).ok_or(Rejection::OperatorNotFound { name: name.clone() })?;
    let issuer = certificate.as_ref().and_then(|issued| view.state.issuers.get(&issued.issuer));
    let roots = view.state.server_trust();
    let added = AddedOperator {
        name: name.to_string(),
        role: operator.role.as_str().to_owned(),
        tenant: TenantScope::of(&operator.tenants),
        vclusters: operators::vcluster_names(&operator.vclusters),
        certificate: certificate.as_ref().map(|issued| pem::certificate_pem(&issued.der)),
        chain: issuer.map(|issuer| pem::certificate_pem(&issuer.certificate)),
        ca: certificate.as_ref().map(|_| pem::chain_pem(roots)),
        cert_serial: certificate.as_ref().map(|issued| issued.serial.to_string()),
        not_after: certificate.as_ref().map(|issued| issued.not_after.to_string()),
        server_url: app.servers().into_iter().next(),
        server_urls: app.servers(),
    };
    Ok((StatusCode::CREATED, axum::Json(added)))
}

fn sign(app: &App, name: &OperatorName, csr: &str) -> Result<Issued, Failure> {
    issue(app, name, &read_csr(csr)?)
}

pub(super) fn read_csr(pem: &str) -> Result<csr::VerifiedCsr, Failure> {
    csr::read(pem.as_bytes()).map_err(|error| Failure::new(code::CSR_INVALID, error.to_string()))
}

/// A certificate for this operator, signed in memory.
pub(super) fn issue(app: &App, name: &OperatorName, request: &csr::VerifiedCsr) -> Result<Issued, Failure> {
    let view = app.view();
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let at = app.now();
    let terms = Terms {
        subject: SpiffeId::operator(&domain.name, name),
        common_name: Some(name.to_string()),
        lifetime: OPERATOR_LIFETIME,
        profile: None,
    };
    let issuer = app.ca.keys.client_issuer(&view.state)?;
    let serial = chance::serial(at)?;
    let what = "an operator's certificate could not be signed";
    hsm::signed(app, &issuer, what, || keys::sign(&issuer, request, terms, serial, at))
}

pub async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(name): Segment,
) -> Result<axum::Json<RemovedOperator>, Failure> {
    let name = OperatorName::parse(&name)
        .map_err(|_| Failure::new(code::OPERATOR_NOT_FOUND, "there is no operator of this name"))?;
    let command = Command::RemoveOperator { name: name.clone(), keys_made: true };
    let (outcome, _) = app.commit(caller.actor, &caller.origin, command).await?;
    let Outcome::OperatorRemoved { keys } = outcome else {
        return Err(Failure::internal(
            "an operator was removed with another outcome",
            &format!("{outcome:?}"),
        ));
    };
    let keys_revoked = keys.iter().map(ToString::to_string).collect();
    Ok(axum::Json(RemovedOperator { name: name.to_string(), removed: true, keys_revoked }))
}

pub async fn list_keys(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<axum::Json<Page<KeyItem>>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadOperators)?;
    let now = app.now();
    Ok(axum::Json(Page::whole(view.state.operator_keys.values().map(|key| KeyItem::of(key, now)).collect())))
}

pub async fn create_key(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<operators::CreateOperatorKeyRequest>,
) -> Result<(StatusCode, axum::Json<CreatedKey>), Failure> {
    let value = chance::secret(chance::KEY_PREFIX)?;
    let command = CreateOperatorKey {
        key: KeyId(chance::ulid(app.now())?),
        hash: pki::digest::secret_hash(value.as_bytes()),
        name: OperatorName::parse(&request.name).map_err(bad)?,
        role: role(&request.role)?,
        tenants: TenantScope::tenants(request.tenant.as_ref()).map_err(bad)?,
        ttl: duration("expires", request.expires.as_deref())?.unwrap_or(KEY_TTL),
        vclusters: vclusters(&request.vcluster)?,
    };
    let id = command.key;
    let (_, view) = app.commit(caller.actor, &caller.origin, Command::CreateOperatorKey(command)).await?;
    let key = view.state.operator_keys.get(&id).ok_or(Rejection::OperatorKeyNotFound { key: id })?;
    let created = CreatedKey {
        key_id: id.to_string(),
        key: Secret::new(value.as_str()),
        name: key.name.to_string(),
        role: key.role.as_str().to_owned(),
        tenant: TenantScope::of(&key.tenants),
        vclusters: operators::vcluster_names(&key.vclusters),
        expires_at: key.expires_at.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(created)))
}

pub async fn revoke_key(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<StatusCode, Failure> {
    let key = KeyId::parse(&id)
        .map_err(|_| Failure::new(code::OPERATOR_KEY_NOT_FOUND, "there is no API key with this id"))?;
    app.commit(caller.actor, &caller.origin, Command::RevokeOperatorKey { key }).await?;
    Ok(StatusCode::NO_CONTENT)
}
