//! `/v1/tokens`: minting, listing, revoking.

use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Query, Segment, bad, duration};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::issuance::mint::{self, IfConnected};
use crate::process::app::App;
use api::code;
use api::rest::page::Page;
use api::rest::secret::Secret;
use api::rest::tokens::{self, MintedToken, TokenItem, TokenQuery};
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::{Labels, NodeId, ProfileName, Timestamp, TokenId};
use lifecycle::registry::{Act, Command, Door, Rejection, Token, TokenState};
use std::sync::Arc;

pub async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<tokens::CreateTokenRequest>,
) -> Result<(StatusCode, axum::Json<MintedToken>), Failure> {
    let door = match request.door.as_deref() {
        None => Door::Native,
        Some(word) => Door::parse(word).ok_or_else(|| {
            Failure::new(
                code::BAD_REQUEST,
                format!("door must be one of {}", Door::ALL.map(Door::as_str).join(", ")),
            )
        })?,
    };
    if request.replace && request.node.is_none() {
        return Err(Failure::new(
            code::BAD_REQUEST,
            "replace needs node: a token for any node replaces none",
        ));
    }
    let connected = match (request.replace, door) {
        (true, _) => IfConnected::Replace,
        (false, Door::Native) => IfConnected::Refuse,
        // By the command lines of other systems.
        (false, Door::Plfm | Door::Pact | Door::Probectl | Door::Taskrun) => IfConnected::NotAsked,
    };
    let order = mint::TokenRequest {
        door,
        tenant: caller.tenant(&app, request.tenant.as_deref())?,
        node: request.node.as_deref().map(NodeId::parse).transpose().map_err(bad)?,
        profile: request.profile.as_deref().map(ProfileName::parse).transpose().map_err(bad)?,
        ttl: duration("expires", request.expires.as_deref())?,
        name: None,
        labels: Labels::parse(request.labels).map_err(bad)?,
        connected,
    };
    let mint::NewToken { value, token, view } = mint::mint(&app, caller.actor, &caller.origin, order).await?;
    let ca_pin = view.state.active_root().map(|root| root.fingerprint.pin()).unwrap_or_default();
    let server_url = app.servers().into_iter().next().unwrap_or_default();
    let minted = MintedToken {
        token_id: token.id.to_string(),
        tenant: token.tenant.to_string(),
        node: token.node.as_ref().map(ToString::to_string),
        profile: token.profile.as_ref().map(ToString::to_string),
        labels: token.labels.pairs().clone(),
        expires_at: token.expires_at.to_string(),
        join_command: Secret::new(join_command(&server_url, &value, &ca_pin, token.replace)),
        token: Secret::new(value.as_str()),
        ca_pin,
        server_url,
        server_cert_pin: app.ca.presented.pin().filter(|_| door == Door::Probectl),
    };
    Ok((StatusCode::CREATED, axum::Json(minted)))
}

/// The token goes through standard input, so that it does not show among the host's processes.
/// Whoever replaces a connected host may do so on that host, which has an identity already.
fn join_command(server_url: &str, token: &str, ca_pin: &str, replace: bool) -> String {
    let replace = if replace { " --replace" } else { "" };
    format!("echo {token} | enlist-agent enroll --server {server_url} --ca-pin {ca_pin} --token -{replace}")
}

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<TokenQuery>,
) -> Result<axum::Json<Page<TokenItem>>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadTokens)?;
    let tenants = caller.narrowed(&app, tenants, query.tenant.as_deref())?;
    let range = after("cursor", query.cursor.as_deref(), TokenId::parse)?;
    let (now, all) = (app.now(), query.all.unwrap_or(false));
    let tokens = view.state.tokens.range(range).map(|(_, token)| token);
    let wanted = tokens
        .filter(|token| tenants.include(&token.tenant) && (all || is_pending(token, now)))
        .map(|token| TokenItem::of(token, now));
    let (items, next_cursor) = page(wanted, limit(query.limit)?, |item| item.token_id.clone());
    Ok(axum::Json(Page { items, next_cursor }))
}

/// Whether it can still be redeemed.
pub fn is_pending(token: &Token, at: Timestamp) -> bool {
    token.state == TokenState::Unused && !token.is_expired(at)
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<TokenItem>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadTokens)?;
    let id = parse(&id)?;
    let token = view.state.tokens.get(&id).filter(|token| tenants.include(&token.tenant));
    let token = token.ok_or(Rejection::TokenNotFound { token: id })?;
    Ok(axum::Json(TokenItem::of(token, app.now())))
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<StatusCode, Failure> {
    let command = Command::RevokeToken { token: parse(&id)? };
    app.commit(caller.actor, &caller.origin, command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What cannot be an id is not found.
pub fn parse(id: &str) -> Result<TokenId, Failure> {
    TokenId::parse(id).map_err(|_| Failure::new(code::TOKEN_NOT_FOUND, "there is no token with this id"))
}
