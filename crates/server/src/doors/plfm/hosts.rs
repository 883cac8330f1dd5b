//! `/v1/hosts`: what operators see of hosts, and do to them.

use crate::fleet::everywhere;
use crate::http::extract::{Caller, Json, Query, Segment};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::operator::acts::reason;
use crate::operator::nodes::{of_tenant, parse};
use crate::process::app::App;
use api::doors::plfm::{DecommissionHost, HostItem, HostList, HostQuery, RevokeHost};
use axum::extract::State;
use journal::View;
use lifecycle::names::NodeId;
use lifecycle::registry::{Act, Command, Rejection};
use std::sync::Arc;

type Shown = Result<axum::Json<HostItem>, Failure>;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<HostQuery>,
) -> Result<axum::Json<HostList>, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadNodes)?;
    let range = after("cursor", query.cursor.as_deref(), NodeId::parse)?;
    let of_tenant = view.state.nodes.range(range).map(|(_, node)| node).filter(|node| node.tenant == tenant);
    let (nodes, next_cursor) = page(of_tenant, limit(query.limit)?, |node| node.id.to_string());
    let known = everywhere::listed(&app, nodes.iter().map(|node| &node.id)).await;
    let hosts = nodes.iter().map(|node| HostItem::of(&view.state, node, known.last_seen(&node.id)));
    Ok(axum::Json(HostList { hosts: hosts.collect(), next_cursor }))
}

pub async fn show(State(app): State<Arc<App>>, caller: Caller, Segment(id): Segment) -> Shown {
    let (view, id) = known(&app, &caller, &id)?;
    shown(&app, &view, &id).await
}

pub async fn drain(State(app): State<Arc<App>>, caller: Caller, Segment(id): Segment) -> Shown {
    act(&app, caller, &id, |node| Command::Drain { node, within: None }).await
}

/// The document has no word for sessions: a request as it describes it is refused while some are open.
pub async fn decommission(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(DecommissionHost { force }): Json<DecommissionHost>,
) -> Shown {
    let force = force.unwrap_or(false);
    act(&app, caller, &id, |node| Command::Decommission { node, force }).await
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<RevokeHost>,
) -> Shown {
    let reason = reason(request.reason)?;
    act(&app, caller, &id, |node| Command::Revoke { node, reason }).await
}

async fn act(app: &App, caller: Caller, id: &str, command: impl FnOnce(NodeId) -> Command) -> Shown {
    let (_, id) = known(app, &caller, id)?;
    let (_, view) = app.commit(caller.actor, &caller.origin, command(id.clone())).await?;
    shown(app, &view, &id).await
}

/// A host of the tenant that the request is about.
fn known(app: &App, caller: &Caller, id: &str) -> Result<(Arc<View>, NodeId), Failure> {
    let (view, tenant) = caller.scope(app, Act::ReadNodes)?;
    let id = parse(id)?;
    of_tenant(&view, &tenant, &id)?;
    Ok((view, id))
}

async fn shown(app: &App, view: &View, id: &NodeId) -> Shown {
    let node = view.state.nodes.get(id).ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    Ok(axum::Json(HostItem::of(&view.state, node, everywhere::live(app, id).await.last_seen)))
}
