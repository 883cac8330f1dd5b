//! `/v1/overlay`: the hosts that have a place in the overlay.

use crate::edge::authenticate;
use crate::fleet::everywhere;
use crate::fleet::presence::at_replica::ReportWanted;
use crate::http::extract::{Caller, Query};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::process::app::App;
use api::rest::overlay::{OverlayStatusItem, OverlayStatusQuery};
use api::rest::page::Page;
use axum::extract::State;
use lifecycle::names::NodeId;
use lifecycle::registry::{self, Act, Node, NodeReach, OverlayGroup};
use std::collections::HashMap;
use std::sync::Arc;

pub async fn status(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<OverlayStatusQuery>,
) -> Result<axum::Json<Page<OverlayStatusItem>>, Failure> {
    let (view, seen) = authenticate::node_reader(&app, &caller.actor, Act::ReadNodes)?;
    let reach = NodeReach { tenants: caller.narrowed(&app, seen.tenants, query.tenant.as_deref())?, ..seen };
    let limit = limit(query.limit)?;
    let range = after("cursor", query.cursor.as_deref(), NodeId::parse)?;
    let placed = |node: &&Node| node.wireguard.is_some() && !node.state.is_gone() && reach.includes(node);
    let nodes = view.state.nodes.range(range).map(|(_, node)| node.as_ref()).filter(placed);
    let (nodes, next_cursor) = page(nodes, limit, |node| node.id.to_string());
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id.clone()).collect();
    let known = everywhere::nodes(&app, &ids, ReportWanted::Latest).await;
    let mut groups = GroupSizes::default();
    let items = nodes.iter().map(|node| {
        let peers = groups.peers_of(&view.state, node);
        OverlayStatusItem::of(&view.state, node, &known.live(&node.id), peers)
    });
    Ok(axum::Json(Page { items: items.collect(), next_cursor }))
}

/// How many hosts each group has, counted once.
#[derive(Default)]
struct GroupSizes(HashMap<OverlayGroup, u64>);

impl GroupSizes {
    fn peers_of(&mut self, state: &registry::State, node: &Node) -> u64 {
        let Some(group) = state.overlay_group(node) else { return 0 };
        let size = *self.0.entry(group).or_insert_with_key(|group| {
            let overlay = state.overlays.get(&group.tenant);
            overlay.map_or(0, |overlay| match group.vcluster {
                None => overlay.peers.len() as u64,
                Some(_) => overlay.peers.values().filter(|peer| group.includes(peer)).count() as u64,
            })
        });
        size.saturating_sub(node.is_peer().into())
    }
}
