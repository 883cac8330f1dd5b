//! `POST /v1/agents/enroll-tokens`: minting a join token.

use crate::http::extract::{Caller, Json, bad};
use crate::http::failure::Failure;
use crate::issuance::mint;
use crate::process::app::App;
use api::doors::probectl::{MintEnrollToken, MintedEnrollToken, moment};
use api::rest::secret::Secret;
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::{Labels, NodeId, Span, Title};
use lifecycle::registry::Door;
use std::sync::Arc;

pub async fn mint(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<MintEnrollToken>,
) -> Result<(StatusCode, axum::Json<MintedEnrollToken>), Failure> {
    let order = mint::TokenRequest {
        door: Door::Probectl,
        tenant: caller.tenant(&app, None)?,
        node: request.agent_id.as_deref().map(NodeId::parse).transpose().map_err(bad)?,
        profile: None,
        ttl: request.ttl_seconds.map(|seconds| Span::from_millis(seconds.saturating_mul(1000))),
        name: request.name.as_deref().map(Title::parse).transpose().map_err(bad)?,
        labels: Labels::default(),
        connected: mint::IfConnected::NotAsked,
    };
    let mint::NewToken { value, token, .. } = mint::mint(&app, caller.actor, &caller.origin, order).await?;
    let minted = MintedEnrollToken {
        token: Secret::new(value.as_str()),
        id: token.id.to_string(),
        tenant_id: token.tenant.to_string(),
        expires_at: moment(token.expires_at),
        server_cert_pin: app.ca.presented.pin(),
    };
    Ok((StatusCode::CREATED, axum::Json(minted)))
}
