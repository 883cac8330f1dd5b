//! `/v1/workers`: what operators see of workers, and how they take an identity away.

use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Query, Segment, bad_in};
use crate::http::failure::Failure;
use crate::operator::acts::reason;
use crate::operator::nodes::parse;
use crate::operator::tokens::limit;
use crate::process::app::App;
use api::doors::taskrun::{RevokeWorker, RevokedWorker, WorkerItem, WorkerList};
use api::rest::nodes::NodeItem;
use api::rest::page::PageQuery;
use axum::extract::State;
use journal::View;
use lifecycle::names::{NodeId, TenantId};
use lifecycle::registry::{Act, Command, Node, Rejection, authorize};
use std::ops::Bound;
use std::sync::Arc;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<WorkerList>, Failure> {
    let (view, tenant) = scope(&app, &caller)?;
    let limit = limit(query.limit)?;
    let after = query.cursor.as_deref().map(NodeId::parse).transpose().map_err(bad_in("cursor"))?;
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let of_tenant = view.state.nodes.range((from, Bound::Unbounded)).map(|(_, node)| node.as_ref());
    let mut workers: Vec<WorkerItem> = of_tenant
        .filter(|node| node.tenant == tenant)
        .take(limit + 1)
        .map(|node| item(&app, &view, node))
        .collect();
    let more = workers.len() > limit;
    workers.truncate(limit);
    let next_cursor = more.then(|| workers.last().map(|item| item.worker_id.clone())).flatten();
    Ok(axum::Json(WorkerList { workers, next_cursor }))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<WorkerItem>, Failure> {
    let (view, tenant) = scope(&app, &caller)?;
    let node = find(&view, &tenant, &parse(&id)?)?;
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
    // The role comes first: who may not revoke at all learns nothing of what exists.
    authorize(&app.view().state, &caller.actor, &command)?;
    let (view, tenant) = scope(&app, &caller)?;
    find(&view, &tenant, &id)?;
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let revoked = find(&view, &tenant, &id)?;
    Ok(axum::Json(RevokedWorker { worker_id: id.to_string(), revoked_at: revoked.state_since.to_string() }))
}

/// The tenant that the request is about, of those that the caller may see.
fn scope(app: &App, caller: &Caller) -> Result<(Arc<View>, TenantId), Failure> {
    let (view, seen) = authenticate::reader(app, &caller.actor, Act::ReadNodes)?;
    let tenant = caller.tenant(app, None)?;
    caller.narrowed(app, seen, Some(tenant.as_str()))?;
    Ok((view, tenant))
}

fn find(view: &View, tenant: &TenantId, id: &NodeId) -> Result<Arc<Node>, Failure> {
    let node = view.state.nodes.get(id).filter(|node| node.tenant == *tenant);
    node.cloned().ok_or_else(|| Rejection::NodeNotFound { node: id.clone() }.into())
}

fn item(app: &App, view: &View, node: &Node) -> WorkerItem {
    NodeItem::of(&view.state, node, &app.fleet.presence.live(&node.id)).into()
}
