//! A recovery without a daemon: ask, keep, say that it is kept, put it to use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::agent::{
    BundleEvidence, ConfirmRequest, ConfirmResponse, ConfirmStatus, NotNeeded, RecoverRequest, RecoveryGrant,
};
use api::code::{
    Code, NODE_REVOKED, TOKEN_EXPIRED, TOKEN_INVALID, TOKEN_MALFORMED, TOKEN_NOT_FOUND, TOKEN_REVOKED,
    TOKEN_SUPERSEDED, TOKEN_USED,
};
use client::{AgentApi, Error, ServerUrl};
use lifecycle::host::{Class, FailureKind, TOLERANCE};
use lifecycle::names::Timestamp;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

use super::endpoint::RecoveryEndpoint;
use super::report::RecoverReport;
use super::{ask, clock_floor, endpoint};
use crate::code::AgentCode;
use crate::config::{AgentConfig, RecoveryConfig};
use crate::enroll::{persist, rpc};
use crate::failed_call::FailedCall;
use crate::fault::{Exit, Fault};
use crate::fault_code::FaultCode;
use crate::issued;
use crate::space::Ballast;
use crate::store::dir::Dir;
use crate::store::generation::Generations;
use crate::store::identity::{self, HostIdentity};
use crate::store::last_attempts::{self, LastAttempts};
use crate::store::recovery::VouchedGrant;
use crate::store::recovery_attempt::RecoveryAttempt;
use crate::store::{recovery, recovery_attempt, revoked, tolerance, trust_refused, unconfirmed};
use crate::token::SecretToken;
use crate::trust_offer::TrustOffer;
use crate::{chance, clock, code, status};

/// Long enough for a control plane that is there.
const PATIENCE: Duration = Duration::from_secs(20);

/// Refusals of the recovery token itself.
const SPENT: &[&Code] = &[
    TOKEN_MALFORMED,
    TOKEN_INVALID,
    TOKEN_EXPIRED,
    TOKEN_REVOKED,
    TOKEN_NOT_FOUND,
    TOKEN_SUPERSEDED,
    TOKEN_USED,
];

#[derive(Debug)]
pub struct RecoverPlan {
    pub token: SecretToken,
    /// The recovery profile that it was given with; empty if that is not known.
    pub profile: String,
    pub endpoint: RecoveryEndpoint,
    /// What is here, if it can be read.
    pub identity: Option<HostIdentity>,
    /// Of a repair bundle.
    pub evidence: Option<BundleEvidence>,
    /// Whom it is for; empty if that is no longer known.
    pub node_id: String,
    pub domain: Option<String>,
    pub class: Class,
    /// Where the control plane is, as the operator named it.
    pub servers: Vec<ServerUrl>,
    /// The latest moment that has certainly been.
    pub made: Option<Timestamp>,
}

pub async fn perform(dir: &Dir, config: &AgentConfig, plan: RecoverPlan) -> Result<RecoverReport, Fault> {
    let allowed = tolerance::read(dir.path()).unwrap_or(TOLERANCE);
    clock_floor::check(plan.made, clock::now(), allowed).map_err(|failed| {
        let hint = "set this host's clock, then run the command again; nothing was sent";
        Fault::host(AgentCode::ClockSkew, failed.error.to_string(), hint)
    })?;
    let ballast = Ballast::new(dir.path(), config.upkeep.ballast_bytes);
    let undertaking = chance::hex_128().map_err(|error| not_kept(dir, &error))?;
    let begun = ballast.rescue(|| recovery_attempt::resume_or_begin(dir.path(), &plan.token, &undertaking));
    let begun = begun.map_err(|error| not_kept(dir, &error))?;
    let correlation_id = begun.correlation_id.clone();
    let ended = carry_out(dir, config, plan, &ballast, begun).await;
    let class = ended.as_ref().err().filter(|failed| !failed.cured).map(|failed| class(&failed.fault));
    remember(dir, class, correlation_id);
    ended.map_err(|failed| failed.fault)
}

/// Why there is no new certificate.
struct Unfinished {
    fault: Fault,
    /// Only the trust bundle was stale, and is not any more.
    cured: bool,
}

impl From<Fault> for Unfinished {
    fn from(fault: Fault) -> Self {
        Self { fault, cured: false }
    }
}

async fn carry_out(
    dir: &Dir,
    config: &AgentConfig,
    plan: RecoverPlan,
    ballast: &Ballast,
    begun: RecoveryAttempt,
) -> Result<RecoverReport, Unfinished> {
    let csr = begun.key.csr_pem().map_err(|error| issued::invalid(error.to_string()))?;
    let request = RecoverRequest {
        bundle: plan.evidence.clone(),
        ..ask::request(&plan.token, &plan.profile, csr, Some(&plan.node_id), plan.class)
    };
    let allowed = tolerance::read(dir.path()).unwrap_or(TOLERANCE);
    let answer = match ask::ask(&plan.endpoint, request, &begun.correlation_id, allowed).await {
        Ok(answer) => answer,
        Err(failed) => return Err(refused(dir, config, &plan, failed)),
    };
    let anchors = plan.endpoint.trust.anchors();
    let lists = identity::stored_lists(dir.path());
    let checked =
        ask::check(&answer, Arc::new(begun.key), plan.identity.as_ref(), anchors, lists, clock::now());
    let identity = checked.inspect_err(|fault| note_refusal(dir, fault))?;
    if !plan.node_id.is_empty() {
        issued::agrees("node_id", &plan.node_id, identity.node_id().unwrap_or_default())?;
    }
    if let Some(domain) = &plan.domain {
        issued::agrees("domain", domain, identity.spiffe.domain.as_str())?;
    }
    issued::check_tenant(&identity, config.tenant.as_ref())?;
    let generations = Generations::under(dir.path());
    let write = || {
        let number = config.files.write(&identity, &generations, None)?;
        unconfirmed::set(dir.path(), &identity.facts.serial)?;
        Ok(number)
    };
    let number = ballast.rescue(write).map_err(|error| not_kept(dir, &error))?;
    let node = identity.node_id().unwrap_or_default();
    if let Err(error) = recovery::forget_others(dir.path(), node) {
        tracing::warn!(%error, "the recovery token of another node could not be removed");
    }
    let servers = persist::merged(&plan.servers, &answer.servers);
    let confirmed = confirm(dir, &identity, &servers, &begun.correlation_id).await?;
    let switch = || generations.switch(number, None);
    ballast.rescue(switch).map_err(|error| not_kept(dir, &error))?;
    let tidy = || {
        trust_refused::clear(dir.path())?;
        // Should it end before it is shown, the same token and key lead to another.
        if let Some(confirmed) = &confirmed {
            unconfirmed::clear(dir.path())?;
            if let Some(grant) = &confirmed.recovery {
                keep_grant(dir, &config.recovery, &identity, grant)?;
            }
            recovery::forget_token(dir.path(), &begun.token_hash)?;
            recovery_attempt::remove(dir.path())?;
        }
        revoked::clear(dir.path())
    };
    if let Err(error) = ballast.rescue(tidy) {
        tracing::warn!(%error, "files of a finished recovery could not be removed");
    }
    config.files.fit(dir.path(), &identity, None)?;
    Ok(RecoverReport::new(dir.path(), &identity, &begun.correlation_id, confirmed.is_some()))
}

/// The class of the failure, as the daemon would name it; where it has none, its code.
fn class(fault: &Fault) -> String {
    let class = match (&fault.code, fault.exit) {
        (FaultCode::Agent(code), _) if let Some(class) = code.class() => class,
        (FaultCode::Agent(AgentCode::BundleNotKept), _) => Class::ServerTlsUntrusted,
        (code, _) if code.is(NODE_REVOKED) => Class::IdentityRevokedOrFenced,
        (_, Exit::Refused) if !fault.retryable => Class::RecoveryEnrollmentBlocked,
        (_, Exit::Refused | Exit::Unreachable) => Class::EndpointUnreachable,
        (code, Exit::Fault | Exit::Usage) => return code.to_string(),
    };
    class.to_string()
}

/// For `status` and for the daemon's evidence. Not written to a full disk.
fn remember(dir: &Dir, class: Option<String>, correlation_id: String) {
    if class.as_deref() == Some(Class::DiskFull.as_str()) {
        return;
    }
    let ended =
        status::LastAttempt { at: clock::now().to_string(), ok: class.is_none(), class, correlation_id };
    let known = LastAttempts { last_recovery: Some(ended), ..last_attempts::read(dir.path()) };
    if let Err(error) = last_attempts::keep(dir.path(), &known) {
        tracing::debug!(%error, "the result of the recovery could not be stored");
    }
}

/// Proves the new certificate. That nobody answers is no reason to leave it unused: the daemon says it later.
async fn confirm(
    dir: &Dir,
    identity: &HostIdentity,
    servers: &[ServerUrl],
    correlation_id: &str,
) -> Result<Option<ConfirmResponse>, Fault> {
    let request = ConfirmRequest {
        status: ConfirmStatus::Ok.into(),
        recovery_wanted: true,
        recovery_kept: recovery::kept_id(dir.path()),
        ..ConfirmRequest::default()
    };
    let agent = AgentApi::new(servers.to_vec(), &identity.trust(), Some(&identity.credentials()));
    let deadline = Instant::now().checked_add(PATIENCE);
    match agent.map_err(rpc::fault)?.confirm(request, correlation_id, deadline).await {
        Ok(reply) => Ok(Some(reply.message)),
        Err(error) => {
            let fault = rpc::fault(error);
            if fault.exit == Exit::Unreachable || fault.retryable {
                tracing::warn!(code = %fault.code, "not confirmed yet: {}", fault.message);
                return Ok(None);
            }
            Err(fault)
        }
    }
}

/// Why not; and if only the bundle was stale, it is not any more.
fn refused(dir: &Dir, config: &AgentConfig, plan: &RecoverPlan, failed: FailedCall) -> Unfinished {
    if let Error::Refused(refusal) = &failed.error
        && let Some(answer) = &refusal.not_needed
    {
        let anchors = plan.endpoint.trust.anchors();
        let refreshed = |known: &HostIdentity| refresh(dir, config, known, anchors, answer);
        let refreshed = plan.identity.as_ref().is_some_and(refreshed);
        let fault = rpc::fault(failed.error);
        let more = if refreshed { "; the trust bundle was updated" } else { "" };
        let fault = Fault { message: format!("{}{more}", fault.message), ..fault };
        return Unfinished { fault, cured: refreshed };
    }
    let trouble = failed.kind;
    let fault = match trouble {
        FailureKind::ClockSkew => Fault::host(AgentCode::ClockSkew, failed.error.to_string(), code::CLOCK),
        // The recovery CA does not verify it either, so the token is not sent.
        FailureKind::Untrusted => {
            Fault { exit: Exit::Unreachable, ..endpoint::blocked(failed.error.to_string()) }
        }
        _ => rpc::fault(failed.error),
    };
    // Another token of the same kind is not to be had by this host.
    let spent = fault.code.is_one_of(SPENT);
    let fault = if spent { Fault { hint: endpoint::BUNDLE.into(), ..fault } } else { fault };
    if fault.exit == Exit::Refused
        && !fault.retryable
        && let Err(error) = recovery_attempt::remove(dir.path())
    {
        tracing::warn!(%error, "a refused key could not be removed");
    }
    fault.into()
}

/// A CA or a bundle that nothing vouches for is logged, and noted for `status` and `doctor`.
fn note_refusal(dir: &Dir, fault: &Fault) {
    if fault.code.agent() != Some(AgentCode::BundleNotKept) {
        return;
    }
    let class = Class::ServerTlsUntrusted.as_str();
    tracing::warn!(class, code = %fault.code, "{}; remedy: {}", fault.message, fault.hint);
    if let Err(error) = trust_refused::keep(dir.path(), class, &fault.message, clock::now()) {
        tracing::warn!(%error, "a refused CA could not be noted");
    }
}

/// What brings the host back another time, unless nothing vouches for its recovery CA.
pub(crate) fn keep_grant(
    dir: &Dir,
    config: &RecoveryConfig,
    identity: &HostIdentity,
    grant: &RecoveryGrant,
) -> io::Result<()> {
    let trusted = endpoint::vouchers(config, &identity.bundle);
    match VouchedGrant::check(dir.path(), grant, &trusted, &identity.root_lists, clock::now()) {
        Ok(vouched) => recovery::keep(dir.path(), identity.node_id().unwrap_or_default(), &vouched),
        Err(reason) => {
            note_refusal(dir, &Fault::host(AgentCode::BundleNotKept, reason, trust_refused::REMEDY));
            Ok(())
        }
    }
}

fn refresh(
    dir: &Dir,
    config: &AgentConfig,
    before: &HostIdentity,
    anchors: &[CertificateDer<'static>],
    answer: &NotNeeded,
) -> bool {
    let offer = TrustOffer::from(answer);
    let bundle = match ask::next_bundle(&offer, Some(before), anchors, &before.root_lists, clock::now()) {
        Ok(bundle) => bundle,
        Err(reason) => {
            let what = format!("the trust bundle of a recovery is not kept: {reason}");
            note_refusal(dir, &Fault::host(AgentCode::BundleNotKept, what, trust_refused::REMEDY));
            return false;
        }
    };
    let mut identity = HostIdentity { bundle, ..before.clone() };
    identity.meta_mut().bundle_version = offer.bundle_version;
    offer.take_beside_bundle(&mut identity);
    if identity.bundle == before.bundle && identity.root_lists == before.root_lists {
        return false;
    }
    if client::trust::client_config(&identity.trust(), None, b"h2").is_err() {
        return false;
    }
    let generations = Generations::under(dir.path());
    let written = config.files.write(&identity, &generations, None);
    let switched = written.and_then(|number| generations.switch(number, None));
    switched.inspect_err(|error| tracing::warn!(%error, "the trust bundle could not be written")).is_ok()
}

fn not_kept(dir: &Dir, error: &io::Error) -> Fault {
    let hint = "make room in the directory, and let this user write there; then run the command again, which gives the same certificate";
    let code = if crate::space::is_full(error) { AgentCode::DiskFull } else { AgentCode::NotPersisted };
    Fault::host(code, format!("{}: {error}", dir.path().display()), hint)
}
