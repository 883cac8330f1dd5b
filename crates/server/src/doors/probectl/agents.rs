//! `/v1/agents`: what operators see of agents and do to them.

use crate::fleet::everywhere;
use crate::http::extract::{Caller, Json, Query, Segment, bad};
use crate::http::failure::Failure;
use crate::http::page::{after, limit, page};
use crate::operator::acts::reason;
use crate::operator::nodes::{of_tenant, parse};
use crate::process::app::App;
use api::doors::probectl::{AgentQuery, Agents, DescribeAgent, ProbectlAgent, RevokedAgent, spiffe_id};
use api::rest::nodes::Revoke;
use axum::extract::State;
use http::StatusCode;
use journal::View;
use lifecycle::names::{Labels, NodeId, Serial, Title};
use lifecycle::registry::{Act, Change, Command, Describe, Node, Rejection, Relabel};
use std::sync::Arc;

/// Why an agent that is deleted is revoked.
const DELETED: &str = "deleted";

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<AgentQuery>,
) -> Result<axum::Json<Agents>, Failure> {
    let (view, tenant) = caller.scope(&app, Act::ReadNodes)?;
    let cursor = query.after.as_deref().filter(|after| !after.is_empty());
    let range = after("after", cursor, NodeId::parse)?;
    let nodes = view.state.nodes.range(range).map(|(_, node)| node.as_ref());
    let nodes = nodes.filter(|node| node.tenant == tenant);
    let (nodes, next) = page(nodes, limit(query.limit)?, |node| node.id.to_string());
    let known = everywhere::listed(&app, nodes.iter().map(|node| &node.id)).await;
    let agents = nodes.iter().map(|node| ProbectlAgent::of(&view.state, node, known.last_seen(&node.id)));
    Ok(axum::Json(Agents::page(agents.collect(), next)))
}

pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<axum::Json<ProbectlAgent>, Failure> {
    let (view, node) = visible(&app, &caller, &id)?;
    Ok(axum::Json(shown(&app, &view, &node).await))
}

pub async fn describe(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<DescribeAgent>,
) -> Result<axum::Json<ProbectlAgent>, Failure> {
    let (_, node) = visible(&app, &caller, &id)?;
    let describe = Describe {
        node: node.id.clone(),
        name: change(request.name, |name| Title::parse(&name).map_err(bad))?,
        labels: change(request.labels, |labels| Labels::parse(labels).map_err(bad))?,
        relabel: Relabel::default(),
    };
    let (_, view) = app.commit(caller.actor, &caller.origin, Command::Describe(describe)).await?;
    let node =
        view.state.nodes.get(&node.id).ok_or_else(|| Rejection::NodeNotFound { node: node.id.clone() })?;
    Ok(axum::Json(shown(&app, &view, node).await))
}

/// Absent keeps, null forgets.
fn change<T, U>(
    asked: Option<Option<T>>,
    read: impl FnOnce(T) -> Result<U, Failure>,
) -> Result<Change<U>, Failure> {
    match asked {
        None => Ok(Change::Keep),
        Some(None) => Ok(Change::Forget),
        Some(Some(value)) => read(value).map(Change::Set),
    }
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<Revoke>,
) -> Result<axum::Json<RevokedAgent>, Failure> {
    let reason = reason(request.reason)?;
    let (view, node) = visible(&app, &caller, &id)?;
    let accepted = |serial: &&Serial| view.state.verdict(serial, app.now()).is_accepted();
    let live = node.serials.iter().filter(accepted).count();
    let command = Command::Revoke { node: node.id.clone(), reason };
    app.commit(caller.actor, &caller.origin, command).await?;
    let agent_id = node.id.to_string();
    Ok(axum::Json(RevokedAgent {
        agent_id,
        spiffe_id: spiffe_id(&view.state, &node),
        live_serials_revoked: live,
    }))
}

/// Two commands, each of which changes nothing when it is given again: who repeats this completes it.
pub async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
) -> Result<StatusCode, Failure> {
    let (_, node) = visible(&app, &caller, &id)?;
    let revoke = Command::Revoke { node: node.id.clone(), reason: DELETED.to_owned() };
    app.commit(caller.actor.clone(), &caller.origin, revoke).await?;
    let forget = Describe {
        node: node.id.clone(),
        name: Change::Forget,
        labels: Change::Forget,
        relabel: Relabel::default(),
    };
    app.commit(caller.actor, &caller.origin, Command::Describe(forget)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// An agent of the tenant that the request is about.
fn visible(app: &App, caller: &Caller, id: &str) -> Result<(Arc<View>, Arc<Node>), Failure> {
    let (view, tenant) = caller.scope(app, Act::ReadNodes)?;
    let node = of_tenant(&view, &tenant, &parse(id)?)?;
    Ok((view, node))
}

async fn shown(app: &App, view: &View, node: &Node) -> ProbectlAgent {
    ProbectlAgent::of(&view.state, node, everywhere::live(app, &node.id).await.last_seen)
}
