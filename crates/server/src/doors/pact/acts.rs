//! DecommissionNode, AssignNode, UnassignNode, MoveNode.

use super::{state_word, status};
use crate::http::extract::{Caller, bad_in};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code::{self, Code};
use api::doors::pact::enrollment::{
    AssignNodeRequest, AssignNodeResponse, DecommissionNodeRequest, DecommissionNodeResponse,
    MoveNodeRequest, MoveNodeResponse, UnassignNodeRequest, UnassignNodeResponse,
};
use journal::View;
use lifecycle::names::{NodeId, VclusterId};
use lifecycle::registry::{Command, Node, Rejection};
use std::sync::Arc;
use tonic::Status;

/// Open sessions stand in its way without `force`. The number of those that ended with the node stays on its record, so that
/// the same request again answers the same.
pub async fn decommission(
    app: &App,
    caller: Caller,
    request: &DecommissionNodeRequest,
) -> Result<DecommissionNodeResponse, Failure> {
    let id = node_id(&request.node_id)?;
    let command = Command::Decommission { node: id.clone(), force: request.force };
    let view = commit(app, caller, command).await?;
    let node = found(&view, &id)?;
    Ok(DecommissionNodeResponse {
        node_id: id.to_string(),
        enrollment_state: state_word(node.state).to_owned(),
        sessions_terminated: node.sessions.terminated,
        cert_serial_revoked: node.serials.last().map(ToString::to_string).unwrap_or_default(),
    })
}

pub async fn assign(
    app: &App,
    caller: Caller,
    request: AssignNodeRequest,
) -> Result<AssignNodeResponse, Status> {
    let act = async {
        let (node, vcluster) =
            (node_id(&request.node_id)?, vcluster_id("vcluster_id", &request.vcluster_id)?);
        commit(app, caller, Command::Assign { node, vcluster }).await
    };
    act.await.map_err(|failure| in_the_way(&failure))?;
    Ok(AssignNodeResponse { node_id: request.node_id, vcluster_id: request.vcluster_id })
}

pub async fn unassign(
    app: &App,
    caller: Caller,
    request: UnassignNodeRequest,
) -> Result<UnassignNodeResponse, Status> {
    let act = async { commit(app, caller, Command::Unassign { node: node_id(&request.node_id)? }).await };
    act.await.map_err(|failure| in_the_way(&failure))?;
    Ok(UnassignNodeResponse { node_id: request.node_id })
}

pub async fn relocate(
    app: &App,
    caller: Caller,
    request: MoveNodeRequest,
) -> Result<MoveNodeResponse, Status> {
    let act = async {
        let id = node_id(&request.node_id)?;
        let to = vcluster_id("to_vcluster_id", &request.to_vcluster_id)?;
        let stayed = app.view().state.nodes.get(&id).is_some_and(|node| node.vcluster.as_ref() == Some(&to));
        let view = commit(app, caller, Command::Move { node: id.clone(), vcluster: to.clone() }).await?;
        let node = found(&view, &id)?;
        Ok(if stayed { Some(to) } else { came_from(&node, &to) })
    };
    let from = act.await.map_err(|failure: Failure| in_the_way(&failure))?;
    Ok(MoveNodeResponse {
        node_id: request.node_id,
        from_vcluster_id: from.map(|vcluster| vcluster.to_string()).unwrap_or_default(),
        to_vcluster_id: request.to_vcluster_id,
    })
}

/// Where the node was before it came into this vCluster, by the record: what was true before the request may not be any more.
fn came_from(node: &Node, to: &VclusterId) -> Option<VclusterId> {
    let latest_first = node.assignments.iter().rev().map(|assignment| &assignment.vcluster);
    latest_first.skip_while(|vcluster| vcluster.as_ref() != Some(to)).nth(1)?.clone()
}

/// What the caller sent, who it is, what does not exist and what cannot be done now keep their status; everything else stands in
/// the way of the act.
fn in_the_way(failure: &Failure) -> Status {
    const OF_THE_NODE: [&Code; 3] = [code::NODE_REVOKED, code::ALREADY_ASSIGNED, code::NOT_ASSIGNED];
    if OF_THE_NODE.contains(&failure.code) { status::precondition(failure) } else { status::status(failure) }
}

async fn commit(app: &App, caller: Caller, command: Command) -> Result<Arc<View>, Failure> {
    app.commit(caller.actor, &caller.origin, command).await.map(|(_, view)| view)
}

fn found(view: &View, id: &NodeId) -> Result<Arc<Node>, Failure> {
    let node = view.state.nodes.get(id).cloned();
    node.ok_or_else(|| Rejection::NodeNotFound { node: id.clone() }.into())
}

pub fn node_id(text: &str) -> Result<NodeId, Failure> {
    NodeId::parse(text).map_err(bad_in("node_id"))
}

fn vcluster_id(field: &'static str, text: &str) -> Result<VclusterId, Failure> {
    VclusterId::parse(text).map_err(bad_in(field))
}
