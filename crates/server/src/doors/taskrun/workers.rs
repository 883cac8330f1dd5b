//! `/v1/workers`: what operators see of workers, and how they take an identity away.

use crate::http::extract::{Caller, Json, Query, Segment};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::operator::acts::reason;
use crate::operator::nodes::{of_tenant, parse};
use crate::process::app::App;
use api::doors::taskrun::{RevokeWorker, RevokedWorker, WorkerItem, WorkerList};
use api::rest::nodes::NodeItem;
use api::rest::page::PageQuery;
use axum::extract::State;
use journal::View;
use lifecycle::names::NodeId;
use lifecycle::registry::{Act, Command, Node, authorize};
use std::sync::Arc;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<WorkerList>, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadNodes)?;
    let range = after("cursor", query.cursor.as_deref(), NodeId::parse)?;
    let nodes = view.state.nodes.range(range).map(|(_, node)| node.as_ref());
    let items = nodes.filter(|node| node.tenant == tenant).map(|node| item(&app, &view, node));
    let (workers, next_cursor) = page(items, limit(query.limit)?, |item| item.worker_id.clone());
    Ok(axum::Json(WorkerList { workers, next_cursor }))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<WorkerItem>, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadNodes)?;
    let node = of_tenant(&view, &tenant, &parse(&id)?)?;
    Ok(axum::Json(item(&app, &view, &node)))
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<RevokeWorker>,
) -> Result<axum::Json<RevokedWorker>, Failure> {
    let id = parse(&id)?;
    let command = Command::Revoke { node: id.clone(), reason: reason(request.reason)? };
    // The caller's tenants and role come first, so that nothing is learned of what exists elsewhere.
    let (view, tenant) = caller.scope(&app, Act::ReadNodes)?;
    authorize(&view.state, &caller.actor, &command)?;
    of_tenant(&view, &tenant, &id)?;
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let revoked = of_tenant(&view, &tenant, &id)?;
    Ok(axum::Json(RevokedWorker { worker_id: id.to_string(), revoked_at: revoked.state_since.to_string() }))
}

fn item(app: &App, view: &View, node: &Node) -> WorkerItem {
    NodeItem::of(&view.state, node, &app.fleet.presence.live(&node.id)).into()
}
