//! A recovery, from the key to the certificate that waits to be proven; and the token that it takes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::agent::{EnrollRequest, Evidence, NotNeeded, RecoverRequest, RecoverResponse, RecoveryGrant};
use api::code;
use client::{Error, ServerUrl};
use lifecycle::host::{self, CandidateOrigin, Class, FailureKind, Input, RecoveryResult};
use lifecycle::names::{Span, Timestamp};
use pki::agent_key::HostKey;
use rustls_pki_types::CertificateDer;

use super::call::{Call, CallPanicked};
use super::core::{AgentCore, Candidate, kept_kind};
use crate::code::AgentCode;
use crate::config::RecoveryConfig;
use crate::failed_call::FailedCall;
use crate::fault_code::FaultCode;
use crate::recover::endpoint::{RecoveryEndpoint, RuntimeEndpoint, choose};
use crate::recover::{ask, clock_floor, endpoint};
use crate::status::Status;
use crate::store::identity::HostIdentity;
use crate::store::recovery::{self, StoredRecoveryToken, VouchedGrant};
use crate::store::recovery_attempt::{self, RecoveryAttempt};
use crate::store::{trust_refused, unconfirmed};
use crate::trust_offer::TrustOffer;
use crate::{clock, hardware, space};

/// How the call ended.
pub type RecoverResult = Result<Box<RecoverResponse>, FailedCall>;

/// What a recovery sends.
enum RecoveryCall {
    Token(RecoverRequest),
    /// With the idempotency key.
    Hardware(EnrollRequest, String),
}

pub struct IdentityRecovery {
    config: RecoveryConfig,
    /// Where the hardware identity is read, if this machine may be let in by it.
    sysfs_root: Option<PathBuf>,
    /// The recovery token was refused since it was kept.
    token_refused: bool,
    /// Whether the call under way was made with it.
    with_token: bool,
    call: Call<RecoverResult>,
    key: Option<Arc<HostKey>>,
    /// The CAs that verify the endpoint of the call.
    anchors: Vec<CertificateDer<'static>>,
    ready: bool,
    /// The recovery token that is on disk now, and of which that has yet to be acknowledged; empty asks for one.
    pub acknowledgement: Option<String>,
}

impl IdentityRecovery {
    pub fn new(config: RecoveryConfig, sysfs_root: Option<PathBuf>) -> Self {
        Self {
            config,
            sysfs_root,
            token_refused: false,
            with_token: false,
            call: Call::default(),
            key: None,
            anchors: Vec::new(),
            ready: false,
            acknowledgement: None,
        }
    }

    /// Whether there is what a recovery takes, now.
    pub fn check_ready(&mut self, core: &mut AgentCore, servers: &[ServerUrl]) {
        let material = self.material(core, servers);
        core.learn(Input::RecoveryReady(material.is_ok()));
        core.learn(Input::HardwareReady(self.sysfs_root.is_some()));
        // A token of unknown origin is tried all the same, since only the control plane can tell; but it is not counted
        // upon.
        let ready =
            material.and_then(|(token, _)| token.id.map(drop).ok_or_else(|| recovery::UNKNOWN.to_owned()));
        self.ready = ready.is_ok();
        if let (Err(reason), Some(condition)) = (ready, core.machine.condition())
            && condition.class == Class::RecoveryEnrollmentBlocked
        {
            core.failed(condition.class, &reason);
        }
    }

    /// While connected, this host asks for the token that it should have and has not.
    pub fn request_token(&mut self, core: &mut AgentCore, connected: bool) {
        if !connected || !recovery::kept_id(core.path()).is_empty() || recovery::is_ineligible(core.path()) {
            return;
        }
        // One that was refused for its recovery CA would be refused again; the next connection asks by itself.
        if trust_refused::read(core.path()).is_some() {
            return;
        }
        if core.reporting.is_new("no recovery token") {
            tracing::info!("there is no valid recovery token; requesting one");
        }
        self.acknowledgement = Some(String::new());
    }

    /// On disk before it is acknowledged, because the acknowledgement ends the token before it.
    pub fn granted(&mut self, core: &mut AgentCore, grant: Option<&RecoveryGrant>, servers: &[ServerUrl]) {
        let Some(grant) = grant else { return };
        let trusted = endpoint::vouchers(&self.config, &core.identity.bundle);
        let lists = &core.identity.root_lists;
        let vouched = match VouchedGrant::check(core.path(), grant, &trusted, lists, clock::now()) {
            Ok(vouched) => vouched,
            Err(reason) => {
                core.trust_refused(&reason);
                return self.check_ready(core, servers);
            }
        };
        let node = core.identity.node_id().unwrap_or_default();
        match core.ballast.rescue(|| recovery::keep(core.path(), node, &vouched)) {
            Ok(()) => {
                core.trust_accepted();
                if !grant.token.is_empty() {
                    self.token_refused = false;
                    self.acknowledgement = Some(grant.token_id.clone());
                }
                self.check_ready(core, servers);
            }
            Err(error) => core.not_written("a recovery token could not be stored", &error),
        }
    }

    fn material(
        &self,
        core: &AgentCore,
        servers: &[ServerUrl],
    ) -> Result<(StoredRecoveryToken, RecoveryEndpoint), String> {
        let found = recovery::read(core.path());
        if let Some(path) = found.exposed {
            return Err(format!("other users may read or replace {}, so it is not used", path.display()));
        }
        let Some(token) = found.token else {
            let why = if found.ineligible { recovery::WITHOUT } else { "there is no recovery token" };
            return Err(why.to_owned());
        };
        if token.expires_at.is_some_and(|at| clock::now() > at) {
            return Err("the recovery token has expired".to_owned());
        }
        let runtime = RuntimeEndpoint { servers: servers.to_vec(), trust: Some(core.identity.trust()) };
        let endpoint = choose(&self.config, found.profile.as_ref(), &runtime);
        let denied = core.identity.root_lists.denied();
        endpoint.map(|endpoint| (token, endpoint.denying(denied))).map_err(|fault| fault.message)
    }

    /// The recovery token comes first; where there is none that is good for anything, the hardware, if that may.
    pub fn begin(&mut self, core: &mut AgentCore, class: Class, servers: &[ServerUrl]) {
        core.reporting.metrics.recovery_attempted(class);
        let material = self.material(core, servers);
        let by_hardware = match class {
            Class::IdentityRevokedOrFenced => true,
            Class::CertExpired => self.token_refused || material.is_err(),
            Class::EndpointUnreachable
            | Class::ServerTlsUntrusted
            | Class::EndpointProfileDrift
            | Class::RecoveryEnrollmentBlocked
            | Class::DiskFull
            | Class::ClockSkew => false,
        };
        let root = self.sysfs_root.clone().filter(|_| by_hardware);
        match (root, material) {
            (Some(root), _) => self.begin_by_hardware(core, class, &root, servers),
            (None, Ok((token, endpoint))) => self.begin_with_token(core, class, &token, endpoint),
            (None, Err(what)) => {
                let code = AgentCode::RecoveryEnrollmentBlocked;
                not_recovered(core, code.into(), &what, FailureKind::Refused);
            }
        }
    }

    fn begin_with_token(
        &mut self,
        core: &mut AgentCore,
        class: Class,
        token: &StoredRecoveryToken,
        endpoint: RecoveryEndpoint,
    ) {
        let correlation_id = core.machine.correlation_id().to_owned();
        let begun = || recovery_attempt::resume_or_begin(core.path(), &token.value, &correlation_id);
        let attempt = core.ballast.rescue(begun);
        let node = core.identity.node_id().map(str::to_owned);
        self.send(core, class, attempt, endpoint, |csr, _| {
            RecoveryCall::Token(ask::request(&token.value, &token.profile, csr, node.as_deref(), class))
        });
    }

    /// Asks the control plane itself, by what is trusted now: hardware is no secret that could go to a wrong one, and brings
    /// no other trust.
    fn begin_by_hardware(&mut self, core: &mut AgentCore, class: Class, root: &Path, servers: &[ServerUrl]) {
        let found = hardware::read(root);
        if found.is_empty() {
            let what = format!("looked at {}", found.looked_at());
            return not_recovered(core, AgentCode::HardwareMissing.into(), &what, FailureKind::Refused);
        }
        let endpoint = RecoveryEndpoint { servers: servers.to_vec(), trust: core.identity.trust() };
        let correlation_id = core.machine.correlation_id().to_owned();
        let begun = || recovery_attempt::resume_or_begin_by_hardware(core.path(), &correlation_id);
        let attempt = core.ballast.rescue(begun);
        let in_memory = core.dir.memory().is_some();
        self.send(core, class, attempt, endpoint, |csr, key| {
            let idempotency_key = pki::digest::key_hash(&key.spki()).hex();
            RecoveryCall::Hardware(ask::by_hardware(&found, csr, in_memory), idempotency_key)
        });
    }

    /// The key is on disk before the request leaves.
    fn send(
        &mut self,
        core: &mut AgentCore,
        class: Class,
        attempt: io::Result<RecoveryAttempt>,
        endpoint: RecoveryEndpoint,
        request: impl FnOnce(String, &HostKey) -> RecoveryCall,
    ) {
        let attempt = match attempt {
            Ok(attempt) => attempt,
            Err(error) => {
                let (code, kind) = match space::is_full(&error) {
                    true => (AgentCode::DiskFull, FailureKind::DiskFull),
                    false => (AgentCode::NotPersisted, FailureKind::Transient),
                };
                core.not_written("a key for the recovery could not be written", &error);
                return not_recovered(core, code.into(), &error.to_string(), kind);
            }
        };
        let csr = match attempt.key.csr_pem() {
            Ok(csr) => csr,
            Err(error) => {
                let (code, what) = (AgentCode::Fault.into(), error.to_string());
                return not_recovered(core, code, &what, FailureKind::Refused);
            }
        };
        let correlation_id = core.machine.correlation_id().to_owned();
        if core.reporting.is_new("recovering") {
            let class = class.as_str();
            tracing::warn!(class, correlation_id, "recovering this host's identity");
        }
        let request = request(csr, &attempt.key);
        self.key = Some(Arc::new(attempt.key));
        self.anchors = endpoint.trust.anchors().to_vec();
        let (tolerance, issued) = (core.machine.tolerance(), core.identity.facts.not_before);
        self.with_token = matches!(request, RecoveryCall::Token(_));
        self.call.begin(recover(endpoint, request, correlation_id, tolerance, issued));
    }

    pub async fn ended(&mut self) -> Result<RecoverResult, CallPanicked> {
        self.call.ended().await
    }

    /// The answer, checked and on disk as a generation that is not in use. False if it cannot be kept.
    pub fn keep(&mut self, core: &mut AgentCore, answer: &RecoverResponse) -> bool {
        let Some(key) = self.key.take() else { return false };
        let lists = core.identity.root_lists.clone();
        let checked = ask::check(answer, key, Some(&core.identity), &self.anchors, lists, clock::now());
        match checked.and_then(|identity| Ok((core.write(&identity)?, identity))) {
            Ok((number, identity)) => {
                if let Err(error) = unconfirmed::set(core.path(), &identity.facts.serial) {
                    core.not_written("the marker `unconfirmed` could not be written", &error);
                }
                core.candidate = Some(Candidate { number, identity, origin: CandidateOrigin::Recovery });
                core.learn(Input::Recovered(Ok(RecoveryResult::Issued)));
                true
            }
            Err(fault) => {
                if fault.code.agent() == Some(AgentCode::BundleNotKept) {
                    core.trust_refused(&fault.message);
                }
                let kind = kept_kind(&fault).unwrap_or(FailureKind::WrongServer);
                not_recovered(core, fault.code, &fault.message, kind);
                false
            }
        }
    }

    /// Whether the refusal cured the host: it was no certificate that was missing, but a trust bundle or an address,
    /// which came with it. `moved` says that an address was new.
    pub fn refreshed(&mut self, core: &mut AgentCore, failed: &FailedCall, moved: bool) -> bool {
        let refreshed =
            not_needed(failed).is_some_and(|answer| refresh(core, answer, &self.anchors)) || moved;
        if refreshed {
            self.key = None;
            core.learn(Input::Recovered(Ok(RecoveryResult::Refreshed)));
            core.reporting.metrics.recovered();
            settle(core, None);
        }
        refreshed
    }

    /// The call failed.
    pub fn failed(&mut self, core: &mut AgentCore, failed: &FailedCall) {
        self.key = None;
        self.token_refused |= self.with_token
            && failed.kind == FailureKind::Refused
            && !failed.code().is(code::RECOVERY_NOT_NEEDED);
        core.learn(Input::Recovered(Err(failed.failure())));
        ended(core, &host::recovery::classify(failed.kind).into(), failed.kind);
    }

    /// The new certificate is in use: the token is spent.
    pub fn done(&mut self, core: &mut AgentCore) {
        if let Some(attempt) = recovery_attempt::read(core.path()) {
            let forgotten = recovery::forget_token(core.path(), &attempt.token_hash);
            if let Err(error) = forgotten.and_then(|()| recovery_attempt::remove(core.path())) {
                core.not_written("files of a finished recovery could not be removed", &error);
            }
        }
        core.reporting.metrics.recovered();
        settle(core, None);
        tracing::info!(serial = %core.identity.facts.serial, not_after = %core.identity.facts.not_after, "recovered");
    }

    /// The control plane refused the certificate of the recovery. One that expired before it was shown is issued again,
    /// for the key that asked for it.
    pub fn refused(&mut self, core: &mut AgentCore, code: &FaultCode, kind: FailureKind) {
        let expired = kind == FailureKind::Expired;
        ended(core, code, if expired { FailureKind::Expired } else { FailureKind::Refused });
    }

    pub fn evidence(&self, evidence: &mut Evidence) {
        evidence.recovery_ready = self.ready;
    }

    pub fn status(&self, status: &mut Status) {
        status.recovery_ready = self.ready;
    }
}

/// What came with the refusal of a recovery that is not needed.
pub fn not_needed(failed: &FailedCall) -> Option<&NotNeeded> {
    match &failed.error {
        Error::Refused(refusal) if failed.code().is(code::RECOVERY_NOT_NEEDED) => refusal.not_needed.as_ref(),
        Error::Refused(_) | Error::Unreachable { .. } | Error::Usage(_) | Error::Fault(_) => None,
    }
}

/// The node is well, and only its bundle was stale. What vouches for the new one is the one in use, or the CA that verifies
/// the recovery endpoint. False if it is the one in use, so that nothing is cured by it.
fn refresh(core: &mut AgentCore, answer: &NotNeeded, anchors: &[CertificateDer<'static>]) -> bool {
    let offer = TrustOffer::from(answer);
    let (known, at) = (&core.identity, clock::now());
    let bundle = match ask::next_bundle(&offer, Some(known), anchors, &known.root_lists, at) {
        Ok(bundle) => bundle,
        Err(reason) => {
            core.trust_refused(&format!("the trust bundle of a recovery is not kept: {reason}"));
            return false;
        }
    };
    let mut identity = HostIdentity { bundle, ..core.identity.clone() };
    identity.meta_mut().bundle_version = offer.bundle_version;
    core.take_beside_bundle(&offer, &mut identity);
    if identity.bundle == core.identity.bundle && identity.root_lists == core.identity.root_lists {
        return false;
    }
    match core.keep_trust(identity) {
        Ok(()) => {
            core.trust_accepted();
            tracing::info!(version = answer.bundle_version, "trust bundle refreshed by recovery");
            true
        }
        Err(reason) => {
            let what = format!("the trust bundle of a recovery is not kept: {reason}");
            core.reporting.log(AgentCode::BundleNotKept, &what);
            false
        }
    }
}

fn not_recovered(core: &mut AgentCore, code: FaultCode, what: &str, kind: FailureKind) {
    core.learn(Input::Recovered(Err(kind.into())));
    ended(core, &host::recovery::classify(kind).into(), kind);
    core.reporting.log(code, &format!("not recovered: {what}"));
}

fn ended(core: &mut AgentCore, reason: &FaultCode, kind: FailureKind) {
    // The same token and key would get the same answer.
    if host::discards_key(kind)
        && let Err(error) = recovery_attempt::remove(core.path())
    {
        core.not_written("a refused key could not be removed", &error);
    }
    core.reporting.metrics.recovery_failed(reason);
    settle(core, Some(reason));
}

fn settle(core: &mut AgentCore, reason: Option<&FaultCode>) {
    core.reporting.attempts.last_recovery = Some(core.attempt(reason));
    core.keep_attempts();
}

/// Nothing is sent while the clock is behind the moment at which the certificate in use was issued.
async fn recover(
    endpoint: RecoveryEndpoint,
    request: RecoveryCall,
    correlation_id: String,
    tolerance: Span,
    issued: Timestamp,
) -> RecoverResult {
    clock_floor::check(Some(issued), clock::now(), tolerance)?;
    match request {
        RecoveryCall::Token(request) => ask::ask(&endpoint, request, &correlation_id, tolerance).await,
        RecoveryCall::Hardware(request, key) => {
            ask::enroll(&endpoint, request, &key, &correlation_id, tolerance).await
        }
    }
    .map(Box::new)
}
