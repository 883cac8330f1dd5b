//! `/v1/nodes`: reading. What changes a node is an act: `acts.rs`.

use super::node_filter::{LabelsRead, NodeFilter};
use crate::edge::authenticate::{self, CredentialHolder};
use crate::edge::sharer::sharers;
use crate::edge::turns::Turn;
use crate::fleet::everywhere;
use crate::http::extract::{Caller, Query, Segment};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::process::app::App;
use api::code;
use api::rest::nodes::{NodeDetail, NodeItem, NodeQuery};
use api::rest::page::Page;
use axum::extract::State;
use journal::View;
use lifecycle::names::{NodeId, TenantId};
use lifecycle::registry::{Act, Node, NodeReach, Rejection};
use std::cell::Cell;
use std::sync::Arc;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<NodeQuery>,
) -> Result<axum::Json<Page<NodeItem>>, Failure> {
    let (view, seen) = authenticate::node_reader(&app, &caller.actor, Act::ReadNodes)?;
    let reach = NodeReach { tenants: caller.narrowed(&app, seen.tenants, query.tenant.as_deref())?, ..seen };
    let filter = NodeFilter::parse(&query)?;
    let limit = limit(query.limit)?;
    let turn = if filter.compares() { compared(&app, &caller).await? } else { None };
    let range = after("cursor", query.cursor.as_deref(), NodeId::parse)?;
    // What the caller may not see is left out first: the cursor is the id of a node that it may.
    let within =
        view.state.nodes.range(range).map(|(_, node)| node.as_ref()).filter(|node| reach.includes(node));
    let (examined, mut last) = (Cell::new(LabelsRead::default()), None);
    let nodes = within
        .take_while(|_| filter.goes_on(examined.get()))
        .inspect(|node| {
            examined.set(examined.get().and(node));
            last = Some(&node.id);
        })
        .filter(|node| filter.includes(node));
    let (nodes, next_cursor) = page(nodes, limit, |node| node.id.to_string());
    let next_cursor = next_cursor.or_else(|| {
        let more = last.filter(|_| !filter.goes_on(examined.get()));
        more.map(ToString::to_string)
    });
    drop(turn);
    let known = everywhere::listed(&app, nodes.iter().map(|node| &node.id)).await;
    let items = nodes.iter().map(|node| NodeItem::of(&view.state, node, &known.live(&node.id)));
    Ok(axum::Json(Page { items: items.collect(), next_cursor }))
}

/// A turn among those whose lists compare text, so that nobody keeps the others waiting for more than one of them.
async fn compared(app: &App, caller: &Caller) -> Result<Option<Turn<CredentialHolder>>, Failure> {
    let Some(holder) = CredentialHolder::of(&caller.actor) else { return Ok(None) };
    let sharers = sharers(&app.view().state, &holder);
    let busy = || Failure::new(code::OVERLOADED, "too many lists of nodes at once").retry_after(2);
    Ok(Some(app.edge.capacity.list(&holder, &sharers).await.ok_or_else(busy)?))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<NodeDetail>, Failure> {
    let (view, reach) = authenticate::node_reader(&app, &caller.actor, Act::ReadNodes)?;
    let id = parse(&id)?;
    let node = view.state.nodes.get(&id).filter(|node| reach.includes(node));
    let node = node.ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    let profile = app.config.endpoint_profile.as_ref();
    Ok(axum::Json(NodeDetail::of(&view.state, node, &everywhere::live(&app, &id).await, profile)))
}

pub async fn show_batch(app: State<Arc<App>>, caller: Caller) -> Result<axum::Json<NodeDetail>, Failure> {
    show(app, caller, Segment("batch".to_owned())).await
}

/// A node of one tenant; what lies in another does not exist for the caller.
pub fn of_tenant(view: &View, tenant: &TenantId, id: &NodeId) -> Result<Arc<Node>, Failure> {
    let node = view.state.nodes.get(id).filter(|node| node.tenant == *tenant);
    node.cloned().ok_or_else(|| Rejection::NodeNotFound { node: id.clone() }.into())
}

/// What cannot be an id is not found.
pub fn parse(id: &str) -> Result<NodeId, Failure> {
    NodeId::parse(id).map_err(|_| Failure::new(code::NODE_NOT_FOUND, "there is no node with this id"))
}
