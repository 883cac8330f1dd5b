//! `POST /v1/collectors/register`: a collector is known before it has a certificate.

use super::{AgentRefusal, agent_id, check_tenant, label, named_tenant};
use crate::http::extract::{Caller, Json};
use crate::http::failure::Failure;
use crate::issuance::enroll;
use crate::process::app::{App, Provenance};
use api::code;
use api::doors::probectl::{RegisterCollector, RegisteredCollector};
use axum::Extension;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use journal::View;
use lifecycle::names::{Label, NodeId};
use lifecycle::registry::{Actor, Claim, Command, Door, Outcome, Register};
use std::sync::Arc;

pub async fn register(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    headers: HeaderMap,
    caller: Result<Caller, Failure>,
    Json(request): Json<RegisterCollector>,
) -> Result<(StatusCode, axum::Json<RegisteredCollector>), Failure> {
    let plane = label("plane", Some(&request.plane))?;
    let plane = plane.ok_or_else(|| Failure::new(code::BAD_REQUEST, "plane must not be empty"))?;
    let hostname = label("hostname", request.hostname.as_deref())?;
    let (id, view) = match &request.token {
        Some(token) => {
            // Its own rights, if it has any, are not what a token is redeemed by.
            let actor = caller.map_or(Actor::Stranger, |caller| caller.actor);
            let named = named_tenant(&headers)?;
            if let Err(refused) = check_tenant(&app, token.reveal(), None, named.as_ref()).await {
                return Err(refused.recorded(&app, &origin).await);
            }
            match by_token(&app, actor, &origin, token.reveal(), &plane, hostname.clone()).await {
                Ok(registered) => registered,
                Err(refused) => return Err(refused.recorded(&app, &origin).await),
            }
        }
        None => {
            let caller = caller?;
            let claim = Claim::Tenant(caller.tenant(&app, None)?);
            commit(&app, caller.actor, &origin, claim, &plane, hostname.clone()).await?
        }
    };
    let missing = || Failure::internal("a registration is not on record", &id);
    let node = view.state.nodes.get(&id).ok_or_else(missing)?;
    let registered = RegisteredCollector {
        tenant_id: node.tenant.to_string(),
        agent_id: node.id.to_string(),
        plane: node.plane.as_ref().unwrap_or(&plane).to_string(),
        hostname: node.hostname.as_ref().or(hostname.as_ref()).map(ToString::to_string),
    };
    Ok((StatusCode::CREATED, axum::Json(registered)))
}

async fn by_token(
    app: &App,
    actor: Actor,
    origin: &Provenance,
    token: &str,
    plane: &Label,
    hostname: Option<Label>,
) -> Result<(NodeId, Arc<View>), AgentRefusal> {
    let (token, _) = enroll::credential(app, token, None).await?;
    Ok(commit(app, actor, origin, Claim::Token(token), plane, hostname).await?)
}

async fn commit(
    app: &App,
    actor: Actor,
    origin: &Provenance,
    claim: Claim,
    plane: &Label,
    hostname: Option<Label>,
) -> Result<(NodeId, Arc<View>), Failure> {
    let register = Register {
        node: agent_id()?,
        claim,
        profile: Door::Probectl.profile(),
        plane: Some(plane.clone()),
        hostname,
    };
    match app.commit(actor, origin, Command::Register(register)).await? {
        (Outcome::Registered { node }, view) => Ok((node, view)),
        _ => Err(Failure::internal("a registration answered nothing", &"")),
    }
}
