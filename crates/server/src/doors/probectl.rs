//! The probectl door: agents with join tokens, rotated by proof of possession.
//!
//! A refused credential has one answer, whatever is wrong with it; the exact reason is in the audit trail.

mod agents;
mod collectors;
mod enroll;
mod rotate;
mod tokens;

use super::drawn_id;
use crate::http::extract;
use crate::http::failure::Failure;
use crate::http::pem;
use crate::issuance::Released;
use crate::issuance::enroll as enroll_by_token;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code::{self, Code};
use api::doors::probectl::{self, ProbectlIdentity};
use api::error::Wording;
use axum::Router;
use axum::routing::{get, post};
use http::HeaderMap;
use lifecycle::names::{IdempotencyHash, Label, NodeId, TenantId};
use std::sync::Arc;

pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/enroll/agent", post(enroll::enroll))
        .route("/enroll/agent/rotate", post(rotate::rotate))
        .route("/v1/agents", get(agents::list))
        .route("/v1/agents/enroll-tokens", post(tokens::mint))
        .route("/v1/agents/{id}", get(agents::show).patch(agents::describe).delete(agents::delete))
        .route("/v1/agents/{id}/revoke", post(agents::revoke))
        .route("/v1/collectors/register", post(collectors::register))
}

/// Agents are named by UUIDs.
pub fn agent_id() -> Result<NodeId, Failure> {
    drawn_id(&chance::uuid()?)
}

/// What is said of a credential and of whom it names, and therefore not to the caller.
const CREDENTIAL: &[&Code] = &[
    code::TOKEN_MALFORMED,
    code::TOKEN_INVALID,
    code::TOKEN_EXPIRED,
    code::TOKEN_REVOKED,
    code::TOKEN_USED,
    code::NODE_REVOKED,
    code::NODE_NOT_FOUND,
    code::NODE_ID_IN_USE,
    code::ATTESTOR_NOT_ALLOWED,
    code::UNAUTHENTICATED,
    code::FORBIDDEN,
    code::CERTIFICATE_SUPERSEDED,
    code::KEY_IN_USE,
];

/// Why a credential is refused when the headers name another tenant than its own.
const TENANT_MISMATCH: &str = "tenant_mismatch";

/// Why something asked with a credential was not done.
enum AgentRefusal {
    /// The reason is for the trail, with what is known of whoever asked.
    Credential(&'static str, Option<String>),
    /// The fault lies elsewhere, and may be told.
    Other(Failure),
}

impl From<Failure> for AgentRefusal {
    fn from(failure: Failure) -> Self {
        if CREDENTIAL.contains(&failure.code) {
            Self::Credential(failure.code.word, None)
        } else {
            Self::Other(failure)
        }
    }
}

impl AgentRefusal {
    /// What the caller is told.
    fn into_failure(self) -> Failure {
        match self {
            Self::Credential(..) => Failure::new(code::UNAUTHENTICATED, "the credential was refused"),
            Self::Other(failure) => failure,
        }
    }

    /// Writes the reason into the trail first.
    async fn recorded(self, app: &App, origin: &Provenance) -> Failure {
        if let Self::Credential(reason, sample) = &self {
            app.edge.refusals.record(app, origin, reason, sample.clone()).await;
        }
        self.into_failure()
    }
}

/// The tenant in the headers, if there is one: a credential of another is refused, so that nobody takes the answer for
/// that tenant's.
fn named_tenant(headers: &HeaderMap) -> Result<Option<TenantId>, Failure> {
    let named = extract::named_tenant(Wording::Probectl, headers)?;
    named.map(|name| TenantId::parse(&name).map_err(extract::bad)).transpose()
}

/// Refuses a token of another tenant than the named one. What else may be wrong with the token is found where it is used.
async fn check_tenant(
    app: &App,
    token: &str,
    again: Option<&IdempotencyHash>,
    named: Option<&TenantId>,
) -> Result<(), AgentRefusal> {
    let Some(named) = named else { return Ok(()) };
    let Ok((hash, view)) = enroll_by_token::credential(app, token, again).await else { return Ok(()) };
    match view.state.token_with_hash(&hash) {
        Some(token) if token.tenant != *named => {
            Err(AgentRefusal::Credential(TENANT_MISMATCH, Some(format!("token:{}", token.id))))
        }
        Some(_) | None => Ok(()),
    }
}

/// What an agent says about itself; empty counts as unsaid.
fn label(name: &str, text: Option<&str>) -> Result<Option<Label>, Failure> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    Label::parse(text).map(Some).map_err(|error| Failure::new(code::BAD_REQUEST, format!("{name}: {error}")))
}

fn identity(released: &Released) -> axum::Json<ProbectlIdentity> {
    let Released { node, serial, certificate, der, view, .. } = released;
    let state = &view.state;
    axum::Json(ProbectlIdentity {
        cert_pem: pem::leaf_and_chain(state, der, &certificate.issuer),
        ca_bundle: pem::trust_with_issuer(state, &certificate.issuer),
        spiffe_id: probectl::spiffe_id(state, node),
        tenant_id: node.tenant.to_string(),
        agent_id: node.id.to_string(),
        serial: serial.to_string(),
        not_after: probectl::moment(certificate.not_after),
    })
}
