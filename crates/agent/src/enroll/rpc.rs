//! The two calls of an enrollment: Enroll as a stranger, Confirm as the node.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::agent::{ConfirmRequest, ConfirmResponse, ConfirmStatus, EnrollRequest, EnrollResponse};
use client::unreachable::{Distrust, Unreachable};
use client::{AgentApi, Error, ServerUrl, Trust};
use lifecycle::host::TOLERANCE;
use lifecycle::names::Timestamp;
use pki::wireguard::WireguardPrivate;
use tokio::time::{Instant, timeout};

use super::plan::EnrollPlan;
use super::{credential, underlay};
use crate::code::{self, AgentCode};
use crate::config::{KeyStorage, OverlaySettings, UnderlayAddresses};
use crate::failed_call::{self, FailedCall};
use crate::fault::Fault;
use crate::fault_code::FaultCode;
use crate::hardware::SysfsIdentity;
use crate::host;
use crate::output;
use crate::store::identity::HostIdentity;
use crate::store::pending::Pending;

/// An answer that comes sooner needs no words before it.
const SILENCE: Duration = Duration::from_secs(3);

/// Who asks, and how patiently.
#[derive(Debug, Clone)]
pub struct CallOptions {
    pub hostname: String,
    /// Ties the calls of one enrollment together in the control plane's records.
    pub correlation_id: String,
    /// For all tries of one call together; without it every server is asked once.
    pub patience: Option<Duration>,
    /// Whether a person at a terminal waits, who wants a sentence instead of the log.
    pub plain: bool,
}

impl CallOptions {
    fn deadline(&self) -> Option<Instant> {
        self.patience.and_then(|patience| Instant::now().checked_add(patience))
    }

    /// Whoever waits should see what for: a person each reason once, the log every round.
    fn on_retry(&self) -> impl Fn(&Error, Duration) + Send + Sync + 'static {
        let (plain, most) = (self.plain, self.patience.unwrap_or_default().as_secs());
        let said = Mutex::new(BTreeSet::new());
        move |error, pause| {
            if !plain {
                return log(error, pause);
            }
            let what = waiting(error, most);
            if said.lock().is_ok_and(|mut said| said.insert(what.clone())) {
                output::notice(&what);
            }
        }
    }
}

/// Asks for a certificate for this key: for the token, or for what this machine is known by.
pub async fn enroll(
    plan: &EnrollPlan,
    trust: &Trust,
    pending: &Pending,
    options: &CallOptions,
) -> Result<EnrollResponse, Fault> {
    // Read anew for every call: a network card may appear after the daemon has started.
    let identity = credential::identity(plan)?;
    let csr = pending.key.csr_pem().map_err(|error| {
        Fault::host(
            AgentCode::KeyUnusable,
            error.to_string(),
            "remove the directory `pending`, then run the command again",
        )
    })?;
    let wireguard = pending.wireguard.as_ref().map(WireguardPrivate::public_text).transpose();
    let wireguard = wireguard.map_err(|error| {
        Fault::host(
            AgentCode::KeyUnusable,
            error.to_string(),
            "remove wireguard/private.key, then run the command again",
        )
    })?;
    let request = EnrollRequest {
        token: plan.credential.token().map(|token| token.expose().to_owned()).unwrap_or_default(),
        csr,
        hostname: options.hostname.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        wireguard_public_key: wireguard.unwrap_or_default(),
        underlay: underlay(plan, pending).await.map(UnderlayAddresses::message),
        hardware: Some(host::hardware()),
        hardware_identity: identity.as_ref().map(SysfsIdentity::message),
        memory_storage: plan.storage == KeyStorage::Memory,
    };
    let is_quiet = Arc::new(AtomicBool::new(options.plain));
    let (told, on_retry) = (is_quiet.clone(), options.on_retry());
    let agent =
        AgentApi::new(plan.servers.clone(), trust, None).map_err(fault)?.on_retry(move |error, pause| {
            told.store(false, Ordering::Relaxed);
            on_retry(error, pause);
        });
    let key = &pending.idempotency_key;
    let call = agent.enroll(request, key, &options.correlation_id, options.deadline());
    match said_meanwhile(call, plan, &is_quiet).await {
        Ok(reply) => {
            warn_of_clock(reply.server_time);
            Ok(reply.message)
        }
        Err(error) => Err(clock_or_fault(error, &plan.servers, trust).await),
    }
}

/// A person who waits longer than for a control plane that is there is told what for, before the first time limit is over.
async fn said_meanwhile<T>(call: impl Future<Output = T>, plan: &EnrollPlan, is_quiet: &AtomicBool) -> T {
    tokio::pin!(call);
    if let Ok(answer) = timeout(SILENCE, &mut call).await {
        return answer;
    }
    // Unless a failed attempt was told of, or nobody is there to read it.
    if is_quiet.load(Ordering::Relaxed) {
        let servers: Vec<String> = plan.servers.iter().map(ToString::to_string).collect();
        output::notice(&format!("asking {} for a certificate", servers.join(", ")));
    }
    call.await
}

/// A certificate may be valid by a wrong clock too; the next one may not be.
fn warn_of_clock(server_time: Option<u64>) {
    let Some(server_time) = server_time else { return };
    let ahead = failed_call::ahead_of(Timestamp::from_millis(server_time));
    if ahead.unsigned_abs() > TOLERANCE.millis() {
        tracing::warn!(
            class = AgentCode::ClockSkew.word(),
            "{}; remedy: {}",
            FailedCall::skewed(ahead).error,
            code::CLOCK
        );
    }
}

/// As it was said; else, for a host with a WireGuard key, as far as it can be seen from here.
async fn underlay(plan: &EnrollPlan, pending: &Pending) -> Option<UnderlayAddresses> {
    let OverlaySettings { endpoint, port, .. } = plan.overlay;
    if endpoint.is_some() || pending.wireguard.is_none() {
        return endpoint;
    }
    let found = underlay::from_here(&plan.servers).await.map(|found| found.with_port(port));
    match found.map(UnderlayAddresses::message) {
        Some(at) => tracing::info!(ipv4 = at.ipv4, ipv6 = at.ipv6, port = at.port, "underlay found"),
        None => tracing::warn!("no underlay address found; name it with --underlay"),
    }
    found
}

/// Tells the control plane what became of the identity: kept, or why not. A host that can keep it gets what brings it
/// back some day.
pub async fn confirm(
    identity: &HostIdentity,
    servers: &[ServerUrl],
    failure: Option<&str>,
    recovery_kept: String,
    options: &CallOptions,
) -> Result<ConfirmResponse, Fault> {
    let status = if failure.is_some() { ConfirmStatus::Failed } else { ConfirmStatus::Ok };
    let request = ConfirmRequest {
        status: status.into(),
        reason: failure.unwrap_or_default().to_owned(),
        recovery_kept,
        recovery_wanted: failure.is_none(),
    };
    let agent = AgentApi::new(servers.to_vec(), &identity.trust(), Some(&identity.credentials()));
    let agent = agent.map_err(fault)?.on_retry(options.on_retry());
    match agent.confirm(request, &options.correlation_id, options.deadline()).await {
        Ok(reply) => Ok(reply.message),
        Err(error) => Err(clock_or_fault(error, servers, &identity.trust()).await),
    }
}

/// Where the server's chain is not valid at this host's time, and is at the server's own, it is this clock that is wrong.
async fn clock_or_fault(error: Error, servers: &[ServerUrl], trust: &Trust) -> Fault {
    let by_dates = matches!(
        &error,
        Error::Unreachable { cause: Unreachable::Untrusted(Distrust::Expired | Distrust::NotYetValid), .. }
    );
    let ahead = if by_dates { failed_call::ahead(servers, trust).await } else { None };
    match ahead.filter(|ahead| ahead.unsigned_abs() > TOLERANCE.millis()) {
        Some(ahead) => {
            let what = format!("{}; nothing was sent", FailedCall::skewed(ahead).error);
            Fault::host(AgentCode::ClockSkew, what, code::CLOCK)
        }
        None => fault(error),
    }
}

fn waiting(error: &Error, most: u64) -> String {
    let what = match error {
        Error::Unreachable { cause: Unreachable::Untrusted(_) | Unreachable::Garbage(_), .. } => {
            error.to_string()
        }
        Error::Unreachable { server, cause } => format!("cannot reach {server}: {cause}"),
        _ => error.to_string(),
    };
    format!("{what}; trying again for up to {most} s, Ctrl-C stops")
}

fn log(error: &Error, pause: Duration) {
    tracing::warn!(
        code = error.code(),
        "attempt failed: {error}; trying again in {:.1} s",
        pause.as_secs_f32()
    );
}

pub fn fault(error: Error) -> Fault {
    let exit = error.exit();
    let code = FaultCode::of_error(&error);
    let detail = error.detail();
    let hint = match detail.hint.as_str() {
        "" => "run the command again with ENLIST_LOG=debug to see more".to_owned(),
        hint => hint.to_owned(),
    };
    Fault {
        request_id: Some(detail.request_id).filter(|id| !id.is_empty()),
        retryable: detail.retryable,
        ..Fault::new(exit, code, detail.message, hint)
    }
}
