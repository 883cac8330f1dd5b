//! RegisterNode: an operator makes a machine known by its hardware.

use super::{hardware, state_word};
use crate::http::extract::{Caller, bad_in};
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::chance;
use api::doors::pact::enrollment::{RegisterNodeRequest, RegisterNodeResponse};
use lifecycle::names::{AlertId, NodeId, TenantId};
use lifecycle::registry::{Command, Door, NodeState, RegisterHardware};

pub async fn register(
    app: &App,
    caller: &Caller,
    request: &RegisterNodeRequest,
) -> Result<RegisterNodeResponse, Failure> {
    let command = command(app, request, caller.tenant(app, None)?)?;
    let node = command.node.clone();
    let command = Command::RegisterHardware(Box::new(command));
    let (_, view) = app.commit(caller.actor.clone(), &caller.origin, command).await?;
    let state = view.state.nodes.get(&node).map_or(NodeState::Registered, |node| node.state);
    Ok(RegisterNodeResponse { node_id: node.to_string(), enrollment_state: state_word(state).to_owned() })
}

pub fn command(
    app: &App,
    request: &RegisterNodeRequest,
    tenant: TenantId,
) -> Result<RegisterHardware, Failure> {
    Ok(RegisterHardware {
        node: NodeId::parse(&request.node_id).map_err(bad_in("node_id"))?,
        tenant,
        // What is registered through this API is named by its document, by whichever API the machine enrolls.
        profile: Door::Pact.profile(),
        identity: hardware::registered(request.hardware_identity.as_ref())?,
        vcluster: None,
        alert: Some(AlertId(chance::ulid(app.now())?)),
    })
}
