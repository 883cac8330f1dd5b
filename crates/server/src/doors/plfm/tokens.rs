//! `/v1/hosts/enroll-tokens`: minting, listing, revoking.

use crate::http::extract::{Caller, Json, Query, Segment, duration};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::issuance::mint;
use crate::operator::tokens::{is_pending, parse};
use crate::process::app::App;
use api::doors::plfm::{CreateHostToken, HostTokenItem, HostTokenList, HostTokenQuery, MintedHostToken};
use api::rest::secret::Secret;
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::{Labels, TokenId};
use lifecycle::registry::{Act, Command, Door, Rejection};
use std::sync::Arc;

pub async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<CreateHostToken>,
) -> Result<(StatusCode, axum::Json<MintedHostToken>), Failure> {
    let order = mint::TokenRequest {
        name: None,
        labels: Labels::default(),
        door: Door::Plfm,
        tenant: caller.tenant(&app, None)?,
        node: None,
        profile: None,
        ttl: duration("expires_in", request.expires_in.as_deref())?,
        connected: mint::IfConnected::NotAsked,
    };
    let mint::NewToken { value, token, view } = mint::mint(&app, caller.actor, &caller.origin, order).await?;
    let item = HostTokenItem::of(&view.state, &token, app.now());
    let minted = MintedHostToken {
        token_id: item.token_id,
        token: Secret::new(value.as_str()),
        cluster_id: item.cluster_id,
        created_by: item.created_by,
        created_at: item.created_at,
        expires_at: item.expires_at,
    };
    Ok((StatusCode::CREATED, axum::Json(minted)))
}

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<HostTokenQuery>,
) -> Result<axum::Json<HostTokenList>, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadTokens)?;
    let range = after("cursor", query.cursor.as_deref(), TokenId::parse)?;
    let (now, all) = (app.now(), query.all.unwrap_or(false));
    let tokens = view.state.tokens.range(range).map(|(_, token)| token);
    let items = tokens
        .filter(|token| token.tenant == tenant && (all || is_pending(token, now)))
        .map(|token| HostTokenItem::of(&view.state, token, now));
    let (tokens, next_cursor) = page(items, limit(query.limit)?, |token| token.token_id.clone());
    Ok(axum::Json(HostTokenList { tokens, next_cursor }))
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<StatusCode, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadTokens)?;
    let token = parse(&id)?;
    if view.state.tokens.get(&token).is_none_or(|known| known.tenant != tenant) {
        return Err(Rejection::TokenNotFound { token }.into());
    }
    app.commit(caller.actor, &caller.origin, Command::RevokeToken { token }).await?;
    Ok(StatusCode::NO_CONTENT)
}
