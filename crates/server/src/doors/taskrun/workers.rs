//! `/v1/workers`: what operators see of workers, and how they take an identity away.

use crate::fleet::everywhere;
use crate::http::extract::{Caller, Json, Query, Segment};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::operator::acts::reason;
use crate::operator::nodes::{of_tenant, parse};
use crate::process::app::App;
use api::doors::taskrun::{RevokeWorker, RevokedWorker, WorkerItem, WorkerList};
use api::rest::nodes::{NodeItem, NodeLiveness};
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
    let nodes = nodes.filter(|node| node.tenant == tenant);
    let (nodes, next_cursor) = page(nodes, limit(query.limit)?, |node| node.id.to_string());
    let known = everywhere::listed(&app, nodes.iter().map(|node| &node.id)).await;
    let workers = nodes.iter().map(|node| item(&view, node, &known.live(&node.id)));
    Ok(axum::Json(WorkerList { workers: workers.collect(), next_cursor }))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<WorkerItem>, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadNodes)?;
    let node = of_tenant(&view, &tenant, &parse(&id)?)?;
    let live = everywhere::live(&app, &node.id).await;
    Ok(axum::Json(item(&view, &node, &live)))
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

fn item(view: &View, node: &Node, live: &NodeLiveness) -> WorkerItem {
    NodeItem::of(&view.state, node, live).into()
}
