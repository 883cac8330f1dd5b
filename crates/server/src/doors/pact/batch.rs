//! BatchRegisterNodes: many machines in one request, each registered by itself. What fails leaves the others alone, and the same
//! batch again registers what is missing.

use super::{register, state_word, status};
use crate::edge::authenticate;
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::pact::enrollment::{
    BATCH_MAX, BatchNodeResult, BatchRegisterNodesRequest, BatchRegisterNodesResponse, RegisterNodeRequest,
};
use futures::{StreamExt, stream};
use lifecycle::names::TenantId;
use lifecycle::registry::{Act, Command, NodeState};

/// Registrations in progress at once: they share entries of the log.
const AT_ONCE: usize = 256;

pub async fn register(
    app: &App,
    caller: &Caller,
    request: BatchRegisterNodesRequest,
) -> Result<BatchRegisterNodesResponse, Failure> {
    // Who may not register any is told so once, and not for each.
    authenticate::reader(app, &caller.actor, Act::RegisterHardware)?;
    if request.nodes.len() > BATCH_MAX {
        let most = format!("a batch has at most {BATCH_MAX} nodes");
        return Err(Failure::new(code::TOO_LARGE, most));
    }
    let tenant = caller.tenant(app, None)?;
    let registering = request.nodes.into_iter().map(|node| one(app, caller, &tenant, node));
    let results: Vec<BatchNodeResult> = stream::iter(registering).buffered(AT_ONCE).collect().await;
    let succeeded = results.iter().filter(|result| result.success).count();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(BatchRegisterNodesResponse {
        succeeded: number(succeeded),
        failed: number(results.len() - succeeded),
        results,
    })
}

async fn one(app: &App, caller: &Caller, tenant: &TenantId, node: RegisterNodeRequest) -> BatchNodeResult {
    let (state, failure) = match register::command(app, &node, tenant.clone()) {
        Err(failure) => {
            // It is known at once: many of them would keep everybody else waiting.
            tokio::task::yield_now().await;
            (None, Some(failure))
        }
        Ok(wanted) => {
            let command = Command::RegisterHardware(Box::new(wanted.clone()));
            match app.commit(caller.actor.clone(), &caller.origin, command).await {
                Ok((_, view)) => {
                    let registered = view.state.nodes.get(&wanted.node).map(|node| node.state);
                    (Some(registered.unwrap_or(NodeState::Registered)), None)
                }
                // Registered before with this hardware: nothing was left undone.
                Err(failure) if failure.code == code::NODE_ALREADY_ENROLLED => {
                    let view = app.view();
                    let known = view.state.nodes.get(&wanted.node).filter(|known| known.tenant == *tenant);
                    let same = known.filter(|known| known.identity.as_deref() == Some(&wanted.identity));
                    (same.map(|known| known.state), Some(failure))
                }
                Err(failure) => (None, Some(failure)),
            }
        }
    };
    BatchNodeResult {
        node_id: node.node_id,
        success: state.is_some(),
        enrollment_state: state.map(state_word).unwrap_or_default().to_owned(),
        error: failure.as_ref().map(status::message).unwrap_or_default(),
    }
}
