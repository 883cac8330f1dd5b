//! `POST /enroll/agent`: a join token becomes an identity.

use super::{AgentRefusal, agent_id, check_tenant, identity, label, named_tenant};
use crate::doors::{NAMING, idempotency};
use crate::http::extract::Json;
use crate::http::failure::Failure;
use crate::issuance::enroll::{self, Enrollment, Naming, Proof};
use crate::process::app::{App, Provenance};
use api::doors::probectl::{EnrollAgent, ProbectlIdentity};
use api::{code, header};
use axum::Extension;
use axum::extract::State;
use http::HeaderMap;
use lifecycle::registry::Door;
use std::sync::Arc;

/// The only one there is yet.
const ATTESTOR: &str = "join-token";

pub async fn enroll(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    headers: HeaderMap,
    Json(request): Json<EnrollAgent>,
) -> Result<axum::Json<ProbectlIdentity>, Failure> {
    let token = request.token.reveal().to_owned();
    let request = match shape(&headers, &request) {
        Ok(request) => request,
        Err(failure) => {
            app.edge.refusals.record(&app, &origin, failure.code.word, None).await;
            return Err(failure);
        }
    };
    let named = named_tenant(&headers)?;
    let again = request.idempotency.as_ref();
    if let Err(refused) = check_tenant(&app, &token, again, named.as_ref()).await {
        return Err(refused.recorded(&app, &origin).await);
    }
    let enrolled = enroll::enroll(&app, &origin, request).await;
    let enrolled = enrolled.map_err(|failure| AgentRefusal::from(failure).into_failure())?;
    Ok(identity(&enrolled))
}

fn shape(headers: &HeaderMap, request: &EnrollAgent) -> Result<Enrollment, Failure> {
    if request.attestor.as_deref().is_some_and(|attestor| !["", ATTESTOR].contains(&attestor)) {
        return Err(Failure::new(code::BAD_REQUEST, format!("attestor must be {ATTESTOR} or nothing")));
    }
    Ok(Enrollment {
        door: Door::Probectl,
        proof: Proof::token(request.token.reveal().to_owned()),
        csr: request.csr_pem.clone().into_bytes(),
        idempotency: idempotency(headers.get(header::IDEMPOTENCY_KEY).map(|key| key.as_bytes()))?,
        naming: Naming { drawn: |_, _| agent_id(), ..NAMING },
        wireguard: None,
        underlay: None,
        hardware: None,
        hostname: label("hostname", request.hostname.as_deref())?,
        agent_version: label("version", request.version.as_deref())?,
        memory_storage: false,
    })
}
