//! `POST /v1/nodes`, `/v1/nodes/batch`: machines that may enroll with their hardware identity.

use crate::edge::authenticate;
use crate::fleet::everywhere;
use crate::http::extract::{Caller, Json, bad_in};
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::chance;
use api::code;
use api::rest::nodes::{
    BATCH_MAX, NodeItem, RegisterNodeRequest, RegisterNodesRequest, RegisteredNodes, RegistrationResult,
};
use axum::extract::State;
use futures::StreamExt;
use http::StatusCode;
use lifecycle::names::{AlertId, NodeId, ProfileName, VclusterId};
use lifecycle::registry::{
    Act, Claim, Command, HardwareIdentity, HardwareText, Register, RegisterHardware, Rejection,
};
use std::sync::Arc;

/// Machines of one batch that are registered at once: together they take few entries of the log.
const AT_ONCE: usize = 512;
/// More addresses than any machine has: what is beyond need not be looked at to be refused.
const MACS_READ: usize = 128;

pub async fn register(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<RegisterNodeRequest>,
) -> Result<(StatusCode, axum::Json<NodeItem>), Failure> {
    let (id, command) = match is_without_hardware(&request) {
        true => {
            // The same right as with hardware: an SVID may let it in from now on.
            let (view, registers) = authenticate::reader(&app, &caller.actor, Act::RegisterHardware)?;
            let register = without_hardware(&app, &caller, &request)?;
            if let Claim::Tenant(tenant) = &register.claim
                && view.state.tenants.contains_key(tenant)
                && !registers.include(tenant)
            {
                let message = format!("policy hardware.tenants does not name {tenant}");
                return Err(Failure::new(code::FORBIDDEN, message));
            }
            (register.node.clone(), Command::Register(register))
        }
        false => {
            let register = shape(&app, &caller, &request)?;
            (register.node.clone(), Command::RegisterHardware(Box::new(register)))
        }
    };
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let node = view.state.nodes.get(&id).ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    Ok((StatusCode::CREATED, axum::Json(NodeItem::of(&view.state, node, &everywhere::live(&app, &id).await))))
}

/// Each machine is a command of its own; they begin in the order of the request. Done again, it is done.
pub async fn batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(RegisterNodesRequest { nodes }): Json<RegisterNodesRequest>,
) -> Result<axum::Json<RegisteredNodes>, Failure> {
    // May it at all? Said once, not for each machine.
    authenticate::reader(&app, &caller.actor, Act::RegisterHardware)?;
    if nodes.len() > BATCH_MAX {
        let most = format!("a batch has at most {BATCH_MAX} nodes");
        return Err(Failure::new(code::TOO_LARGE, most));
    }
    let caller = Arc::new(caller);
    let registered = futures::stream::iter(nodes.into_iter().zip(1..)).map(move |(request, line)| {
        let (app, caller) = (app.clone(), caller.clone());
        async move {
            let done = one(&app, &caller, &request).await;
            result(line, request, done)
        }
    });
    let results: Vec<_> = registered.buffered(AT_ONCE).collect().await;
    let succeeded = results.iter().filter(|result| result.ok).count() as u64;
    let failed = results.len() as u64 - succeeded;
    Ok(axum::Json(RegisteredNodes { results, succeeded, failed }))
}

/// Why not, and whether the machine is registered all the same.
async fn one(app: &App, caller: &Caller, request: &RegisterNodeRequest) -> Result<(), Unregistered> {
    let refused = |failure| (failure, false, None);
    let register = shape(app, caller, request).map_err(refused)?;
    let (id, tenant, identity) = (register.node.clone(), register.tenant.clone(), register.identity.clone());
    let wanted = register.vcluster.clone();
    let command = Command::RegisterHardware(Box::new(register));
    let Err(failure) = app.commit(caller.actor.clone(), &caller.origin, command).await else { return Ok(()) };
    let view = app.view();
    let known = view.state.nodes.get(&id).filter(|node| node.tenant == tenant);
    let same = known.is_some_and(|node| node.identity.as_deref() == Some(&identity));
    let again = failure.code == code::NODE_ALREADY_ENROLLED && same;
    let notice = known.filter(|node| again && wanted.is_some() && node.vcluster != wanted).map(|node| {
        let place = node
            .vcluster
            .as_ref()
            .map_or_else(|| "no vCluster".to_owned(), |name| format!("vCluster {name}"));
        format!("it was registered before and stays in {place}")
    });
    Err((failure, again, notice))
}

/// Why not, whether nothing was left undone, and what was left as it is.
type Unregistered = (Failure, bool, Option<String>);

fn result(line: u64, request: RegisterNodeRequest, done: Result<(), Unregistered>) -> RegistrationResult {
    let (ok, code, message, notice) = match done {
        Ok(()) => (true, None, None, None),
        Err((failure, again, notice)) => {
            (again, Some(failure.code.word.to_owned()), Some(failure.message), notice)
        }
    };
    RegistrationResult { line, node_id: Some(request.node_id), ok, code, message, notice }
}

fn is_without_hardware(request: &RegisterNodeRequest) -> bool {
    let said = [&request.bmc_serial, &request.system_uuid, &request.tpm_ek_hash];
    let is_empty = |text: &str| text.trim().is_empty();
    request.mac.as_slice().iter().all(|mac| is_empty(mac))
        && said.into_iter().all(|text| text.as_deref().is_none_or(is_empty))
}

/// A node that comes in by an SVID, or with a token that is for it alone.
fn without_hardware(app: &App, caller: &Caller, request: &RegisterNodeRequest) -> Result<Register, Failure> {
    let node = NodeId::parse(&request.node_id).map_err(bad_in("node_id"))?;
    if node.is_reserved() {
        return Err(Rejection::NodeIdInUse { node }.into());
    }
    if request.vcluster.as_deref().is_some_and(|name| !name.is_empty()) {
        let what = "vcluster: a node without hardware is assigned afterwards, `enlist node assign`";
        return Err(Failure::new(code::BAD_REQUEST, what));
    }
    let profile = request.profile.as_deref().map(ProfileName::parse).transpose();
    Ok(Register {
        node,
        claim: Claim::Tenant(caller.tenant(app, request.tenant.as_deref())?),
        profile: profile.map_err(bad_in("profile"))?,
        plane: None,
        hostname: None,
    })
}

/// Strings become names. What is empty is not said.
fn shape<'a>(
    app: &App,
    caller: &Caller,
    request: &'a RegisterNodeRequest,
) -> Result<RegisterHardware, Failure> {
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    let macs = request.mac.as_slice().iter().flat_map(|macs| macs.split(';')).map(str::trim);
    let identity = HardwareIdentity::registered(&HardwareText {
        macs: macs.filter(|mac| !mac.is_empty()).take(MACS_READ).collect(),
        bmc_serial: text(&request.bmc_serial),
        system_uuid: text(&request.system_uuid),
        tpm_ek_hash: text(&request.tpm_ek_hash),
    })?;
    let vcluster = request.vcluster.as_deref().map(VclusterId::parse).transpose();
    let profile = request.profile.as_deref().map(ProfileName::parse).transpose();
    Ok(RegisterHardware {
        node: NodeId::parse(&request.node_id).map_err(bad_in("node_id"))?,
        tenant: caller.tenant(app, request.tenant.as_deref())?,
        profile: profile.map_err(bad_in("profile"))?,
        identity,
        vcluster: vcluster.map_err(bad_in("vcluster"))?,
        alert: Some(AlertId(chance::ulid(app.now())?)),
    })
}
