//! ListNodes and InspectNode.

use super::acts::node_id;
use super::{hardware, state_word};
use crate::edge::authenticate::CredentialHolder;
use crate::edge::sharer::sharers;
use crate::fleet::everywhere;
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::pact::enrollment::{
    InspectNodeRequest, InspectNodeResponse, ListNodesRequest, ListNodesResponse, NodeSummary,
};
use lifecycle::names::Timestamp;
use lifecycle::registry::{Act, Node, NodeReach, NodeState, Rejection, may_reach};

/// Nodes that are looked at before others get their turn: the list has no pages, and a fleet may have a hundred thousand.
const TURN: usize = 1024;

pub async fn list(
    app: &App,
    caller: &Caller,
    request: &ListNodesRequest,
) -> Result<ListNodesResponse, Failure> {
    may_reach(&app.view().state, &caller.actor, Act::ReadNodes)?;
    // The whole fleet at once: few are put together at a time, and none for a caller who does not read those it has.
    let holder = CredentialHolder::of(&caller.actor);
    let busy = || Failure::new(code::OVERLOADED, "too many lists of nodes at once").retry_after(2);
    let turn = match &holder {
        Some(holder) => {
            let sharers = sharers(&app.view().state, holder);
            Some(app.edge.capacity.list(holder, &sharers).await.ok_or_else(busy)?)
        }
        None => None,
    };
    let view = app.view();
    let NodeReach { tenants, vclusters } = may_reach(&view.state, &caller.actor, Act::ReadNodes)?;
    let reach = NodeReach { tenants: caller.narrowed(app, tenants, None)?, vclusters };
    let state = wanted_state(&request.state_filter)?;
    let wanted = |node: &Node| {
        reach.includes(node)
            && state.is_none_or(|state| state_word(node.state) == state)
            && (request.vcluster_filter.is_empty() || vcluster(node) == request.vcluster_filter)
            && !(request.unassigned_only && node.vcluster.is_some())
    };
    let mut nodes: Vec<&Node> = Vec::new();
    for (index, node) in view.state.nodes.values().enumerate() {
        if index % TURN == TURN - 1 {
            tokio::task::yield_now().await;
        }
        if wanted(node) {
            nodes.push(node);
        }
    }
    let known = everywhere::listed(app, nodes.iter().map(|node| &node.id)).await;
    let summary = |node: &&Node| NodeSummary {
        node_id: node.id.to_string(),
        enrollment_state: state_word(node.state).to_owned(),
        vcluster_id: vcluster(node).to_owned(),
        last_seen: text(node.last_seen.max(known.last_seen(&node.id))),
        mac_address: hardware::mac_address(node),
    };
    let response = ListNodesResponse { nodes: nodes.iter().map(summary).collect() };
    drop(turn);
    Ok(response)
}

pub async fn inspect(
    app: &App,
    caller: &Caller,
    request: &InspectNodeRequest,
) -> Result<InspectNodeResponse, Failure> {
    let view = app.view();
    let reach = may_reach(&view.state, &caller.actor, Act::ReadNodes)?;
    let id = node_id(&request.node_id)?;
    let node = view.state.nodes.get(&id).filter(|node| reach.includes(node));
    let node = node.ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    let serial = node.serials.last();
    let certificate = serial.and_then(|serial| view.state.certificates.get(serial));
    Ok(InspectNodeResponse {
        node_id: id.to_string(),
        domain_id: view.state.domain.as_ref().map(|domain| domain.name.to_string()).unwrap_or_default(),
        enrollment_state: state_word(node.state).to_owned(),
        hardware_identity: node.identity.as_deref().map(hardware::sent),
        vcluster_id: vcluster(node).to_owned(),
        cert_serial: serial.map(ToString::to_string).unwrap_or_default(),
        cert_expires_at: certificate.map(|certificate| certificate.not_after.to_string()).unwrap_or_default(),
        last_seen: text(node.last_seen.max(everywhere::live(app, &id).await.last_seen)),
        // The document calls it enrolling when an operator makes a machine known.
        enrolled_at: text(node.registered_at.or(node.enrolled_at)),
        enrolled_by: node.registered_by.clone().unwrap_or_default(),
        active_sessions: node.sessions.count(),
    })
}

/// In upper or lower case; nothing is all of them.
fn wanted_state(filter: &str) -> Result<Option<&'static str>, Failure> {
    if filter.is_empty() {
        return Ok(None);
    }
    let words = NodeState::ALL.map(state_word);
    let word = words.into_iter().find(|word| word.eq_ignore_ascii_case(filter));
    let expected = "state_filter must be Registered, Active, Inactive or Revoked";
    word.map(Some).ok_or_else(|| Failure::new(code::BAD_REQUEST, expected))
}

fn vcluster(node: &Node) -> &str {
    node.vcluster.as_ref().map(|vcluster| vcluster.as_str()).unwrap_or_default()
}

fn text(at: Option<Timestamp>) -> String {
    at.map(|at| at.to_string()).unwrap_or_default()
}
