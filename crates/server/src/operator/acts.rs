//! `/v1/nodes/{id}/…`: what operators do to a node. Each act is one command and answers with the node as it is
//! then; done again it changes nothing.

use super::nodes::parse;
use crate::fleet::everywhere;
use crate::http::extract::{Caller, Json, Segment, bad_in, duration};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::rest::nodes::{
    Decommission, Drain, IntoVcluster, LabelNode, NodeItem, Plainly, Quarantine, Revoke, RotateRequest,
};
use axum::extract::State;
use lifecycle::names::{LabelKey, Labels, NodeId, VclusterId, is_steering};
use lifecycle::registry::{Change, Command, Describe, Rejection, Relabel};
use std::sync::Arc;

const REASON_CHARS: usize = 200;
const NO_REASON: &str = "unspecified";

type Done = Result<axum::Json<NodeItem>, Failure>;

pub async fn drain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Drain { within }): Json<Drain>,
) -> Done {
    let within = duration("within", within.as_deref())?;
    act(&app, caller, &id, |node| Command::Drain { node, within }).await
}

pub async fn undrain(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Plainly {}): Json<Plainly>,
) -> Done {
    act(&app, caller, &id, |node| Command::Undrain { node }).await
}

pub async fn quarantine(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<Quarantine>,
) -> Done {
    let reason = reason(request.reason)?;
    act(&app, caller, &id, |node| Command::Quarantine { node, reason }).await
}

pub async fn release(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Plainly {}): Json<Plainly>,
) -> Done {
    act(&app, caller, &id, |node| Command::Release { node }).await
}

/// Open sessions stand in its way without `force`.
pub async fn decommission(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Decommission { force }): Json<Decommission>,
) -> Done {
    let force = force.unwrap_or(false);
    act(&app, caller, &id, |node| Command::Decommission { node, force }).await
}

pub async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<Revoke>,
) -> Done {
    let reason = reason(request.reason)?;
    act(&app, caller, &id, |node| Command::Revoke { node, reason }).await
}

pub async fn reinstate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Plainly {}): Json<Plainly>,
) -> Done {
    act(&app, caller, &id, |node| Command::Reinstate { node, as_registered: true }).await
}

pub async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(RotateRequest { overlay, replace }): Json<RotateRequest>,
) -> Done {
    let (overlay, replace) = (overlay.unwrap_or(false), replace.unwrap_or(false));
    if replace && !overlay {
        return Err(Failure::new(code::BAD_REQUEST, "replace: only with overlay"));
    }
    act(&app, caller, &id, |node| match overlay {
        true => Command::OrderRekey { node, replace },
        false => Command::Rotate { node },
    })
    .await
}

pub async fn revoke_recovery(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Plainly {}): Json<Plainly>,
) -> Done {
    act(&app, caller, &id, |node| Command::RevokeRecoveryTokens { node }).await
}

pub async fn label(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<LabelNode>,
) -> Done {
    let relabel = relabel(request)?;
    act(&app, caller, &id, |node| {
        Command::Describe(Describe { node, name: Change::Keep, labels: Change::Keep, relabel })
    })
    .await
}

fn relabel(LabelNode { set, remove }: LabelNode) -> Result<Relabel, Failure> {
    let bad = |message: String| Failure::new(code::BAD_REQUEST, message);
    if set.is_empty() && remove.is_empty() {
        return Err(bad("set or remove at least one label".to_owned()));
    }
    if remove.len() > Labels::MAX {
        return Err(bad(format!("remove: at most {} keys", Labels::MAX)));
    }
    if let Some(key) = remove.iter().find(|key| set.contains_key(*key)) {
        return Err(bad(format!("label {key:?} is both set and removed")));
    }
    let remove = remove.iter().map(|key| LabelKey::parse(key));
    let remove = remove.collect::<Result<_, _>>().map_err(bad_in("remove"))?;
    Ok(Relabel { remove, set: Labels::parse(set).map_err(bad_in("set"))? })
}

pub async fn assign(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(IntoVcluster { vcluster }): Json<IntoVcluster>,
) -> Done {
    let vcluster = VclusterId::parse(&vcluster).map_err(bad_in("vcluster"))?;
    act(&app, caller, &id, |node| Command::Assign { node, vcluster }).await
}

pub async fn unassign(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(Plainly {}): Json<Plainly>,
) -> Done {
    act(&app, caller, &id, |node| Command::Unassign { node }).await
}

pub async fn relocate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(IntoVcluster { vcluster }): Json<IntoVcluster>,
) -> Done {
    let vcluster = VclusterId::parse(&vcluster).map_err(bad_in("vcluster"))?;
    act(&app, caller, &id, |node| Command::Move { node, vcluster }).await
}

async fn act(app: &App, caller: Caller, id: &str, command: impl FnOnce(NodeId) -> Command) -> Done {
    let id = parse(id)?;
    let (_, view) = app.commit(caller.actor, &caller.origin, command(id.clone())).await?;
    let node = view.state.nodes.get(&id).ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    Ok(axum::Json(NodeItem::of(&view.state, node, &everywhere::live(app, &id).await)))
}

/// An operator's words for the trail: bounded, and nothing that could steer what a reader sees.
pub fn reason(asked: Option<String>) -> Result<String, Failure> {
    let reason = asked.unwrap_or_else(|| NO_REASON.to_owned());
    let fits = (1..=REASON_CHARS).contains(&reason.chars().count()) && !reason.chars().any(is_steering);
    if fits {
        return Ok(reason);
    }
    let message = format!("reason must be 1 to {REASON_CHARS} characters without control characters");
    Err(Failure::new(code::BAD_REQUEST, message))
}
