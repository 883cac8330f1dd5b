//! `/v1/alerts`: what wants attention, and the word that somebody gives it.

use crate::edge::authenticate;
use crate::fleet::alert_changes;
use crate::http::extract::{Caller, Json, Query, Segment, bad};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::process::app::App;
use api::code;
use api::rest::alerts::{AlertItem, AlertQuery};
use api::rest::nodes::Plainly;
use api::rest::page::Page;
use axum::extract::State;
use lifecycle::names::{AlertId, NodeId};
use lifecycle::registry::{Act, Alert, AlertKind, Command, Rejection};
use std::sync::Arc;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<AlertQuery>,
) -> Result<axum::Json<Page<AlertItem>>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadAlerts)?;
    let tenants = caller.narrowed(&app, tenants, None)?;
    let kind = query.kind.as_deref().map(kind_word).transpose()?;
    let node = query.node.as_deref().map(NodeId::parse).transpose().map_err(bad)?;
    let limit = limit(query.limit)?;
    let range = after("cursor", query.cursor.as_deref(), AlertId::parse)?;
    let wanted = |alert: &&Alert| {
        alert_changes::is_visible(&view.state, &tenants, alert)
            && kind.is_none_or(|kind| alert.kind == kind)
            && (node.is_none() || alert.node == node)
    };
    let alerts = view.state.alerts.range(range).map(|(_, alert)| alert).filter(wanted);
    let (items, next_cursor) = page(alerts.map(AlertItem::of), limit, |item| item.alert_id.clone());
    Ok(axum::Json(Page { items, next_cursor }))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<AlertItem>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadAlerts)?;
    let id = parse(&id)?;
    let alert = view.state.alerts.get(&id);
    let alert = alert.filter(|alert| alert_changes::is_visible(&view.state, &tenants, alert));
    Ok(axum::Json(AlertItem::of(alert.ok_or(Rejection::AlertNotFound { alert: id })?)))
}

/// What cannot be an id is not found.
fn parse(id: &str) -> Result<AlertId, Failure> {
    AlertId::parse(id).map_err(|_| Failure::new(code::ALERT_NOT_FOUND, "there is no alert with this id"))
}

fn kind_word(word: &str) -> Result<AlertKind, Failure> {
    AlertKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or_else(|| {
        let words: Vec<&str> = AlertKind::ALL.iter().map(|kind| kind.as_str()).collect();
        Failure::new(code::BAD_REQUEST, format!("kind must be one of {}", words.join(", ")))
    })
}

pub async fn acknowledge(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Plainly {}): Json<Plainly>,
) -> Result<axum::Json<AlertItem>, Failure> {
    let id = parse(&id)?;
    let (_, view) = app
        .commit(caller.actor, &caller.origin, Command::AcknowledgeAlert { alert: id, dated: true })
        .await?;
    let alert = view.state.alerts.get(&id).ok_or(Rejection::AlertNotFound { alert: id })?;
    Ok(axum::Json(AlertItem::of(alert)))
}
