//! A renewal, from the new key to the certificate that waits to be proven.

use std::sync::Arc;

use api::agent::{RenewRequest, RenewResponse};
use client::Error;
use lifecycle::host::{self, CandidateOrigin, FailureKind, FollowUp, Input};
use pki::agent_key::HostKey;

use super::call::{Call, CallPanicked, CallTarget};
use super::core::{AgentCore, Candidate, kept_kind};
use crate::clock;
use crate::code::AgentCode;
use crate::failed_call::FailedCall;
use crate::fault::Fault;
use crate::fault_code::FaultCode;
use crate::issued::{IssuedAnswer, agrees};
use crate::space;
use crate::store::generation::Number;
use crate::store::identity::HostIdentity;
use crate::store::{recovery, renewal_key};
use crate::trust_offer::TrustOffer;

/// How the call ended.
pub type RenewResult = Result<Box<RenewResponse>, FailedCall>;

#[derive(Debug, Default)]
pub struct CertificateRenewal {
    call: Call<RenewResult>,
    key: Option<Arc<HostKey>>,
}

impl CertificateRenewal {
    /// The key is on disk before the request leaves. If it does not leave: for which reason.
    pub fn begin(
        &mut self,
        core: &mut AgentCore,
        target: Result<CallTarget, Error>,
    ) -> Result<(), FaultCode> {
        core.reporting.metrics.renewal_attempted();
        let key = match core.ballast.rescue(|| renewal_key::resume_or_begin(core.path())) {
            Ok(key) => Arc::new(key),
            Err(error) => {
                let (code, kind) = match space::is_full(&error) {
                    true => (AgentCode::DiskFull, FailureKind::DiskFull),
                    false => (AgentCode::NotPersisted, FailureKind::Transient),
                };
                core.not_written("a new key could not be written", &error);
                return Err(not_renewed(core, code.into(), &format!("no new key: {error}"), kind));
            }
        };
        let csr = key.csr_pem().map_err(|error| error.to_string());
        match csr.and_then(|csr| Ok((csr, target.map_err(|error| error.to_string())?))) {
            Ok((csr, target)) => {
                self.key = Some(key);
                self.call.begin(renew(target, csr, recovery::kept_id(core.path())));
                Ok(())
            }
            Err(what) => Err(not_renewed(core, AgentCode::Fault.into(), &what, FailureKind::Refused)),
        }
    }

    pub async fn ended(&mut self) -> Result<RenewResult, CallPanicked> {
        self.call.ended().await
    }

    /// The answer, checked and on disk as a generation that is not in use. If it cannot be kept: for which reason.
    pub fn keep(&mut self, core: &mut AgentCore, answer: &RenewResponse) -> Result<(), FaultCode> {
        let Some(key) = self.key.take() else { return Ok(()) };
        match checked(core, answer, key) {
            Ok((number, identity)) => {
                core.candidate = Some(Candidate { number, identity, origin: CandidateOrigin::Renewal });
                core.learn(Input::Renewed(Ok(())));
                Ok(())
            }
            Err(fault) => {
                // The same key would get the same answer. One that could not be written is asked for again.
                let kind = kept_kind(&fault).unwrap_or(FailureKind::Refused);
                Err(not_renewed(core, fault.code, &fault.message, kind))
            }
        }
    }

    /// The call failed.
    pub fn failed(&mut self, core: &mut AgentCore, failed: &FailedCall) -> (FaultCode, FollowUp) {
        self.key = None;
        let reason = core.reason(failed.kind, failed.code());
        let follow_up = core.learn(Input::Renewed(Err(failed.failure())));
        ended(core, &reason, failed.kind);
        (reason, follow_up)
    }

    /// Policy gives this host no certificate while it comes by an SVID: nothing is wrong, and asking again leads nowhere.
    pub fn not_allowed(&mut self, core: &mut AgentCore) {
        self.key = None;
        if let Err(error) = renewal_key::remove(core.path()) {
            core.not_written("a key that gets no certificate could not be removed", &error);
        }
        if core.reporting.is_new("no certificate by SVID") {
            tracing::info!(
                "the control plane's policy gives no certificate of its own to a host that comes by an SVID: this host lives by SPIRE alone"
            );
        }
        core.learn(Input::RenewalNotAllowed);
    }

    /// The new certificate is in use.
    pub fn done(&mut self, core: &mut AgentCore) {
        if let Err(error) = renewal_key::remove(core.path()) {
            core.not_written("the key of a finished renewal could not be removed", &error);
        }
        core.reporting.metrics.renewals_ok += 1;
        core.reporting.attempts.last_renewal = Some(core.attempt(None));
        core.keep_attempts();
        // Every one of them: a profile's renewal point bounds their number.
        tracing::info!(serial = %core.identity.facts.serial, not_after = %core.identity.facts.not_after, "renewed");
    }

    /// The control plane refused the renewed certificate.
    pub fn refused(&mut self, core: &mut AgentCore, code: &FaultCode) {
        ended(core, code, FailureKind::Refused);
    }
}

fn checked(
    core: &mut AgentCore,
    answer: &RenewResponse,
    key: Arc<HostKey>,
) -> Result<(Number, HostIdentity), Fault> {
    let mut identity = IssuedAnswer::from(answer).check(key, clock::now())?;
    agrees("the node", &core.identity.spiffe.to_string(), &identity.spiffe.to_string())?;
    let offer = TrustOffer::from(answer);
    identity.root_lists = core.identity.root_lists.clone();
    identity.node_issuers = core.identity.node_issuers.clone();
    identity.meta_mut().node_issuers_version = core.identity.node_issuers_version();
    match core.succeeding(&offer) {
        Ok(bundle) => {
            identity.bundle = bundle;
            identity.meta_mut().bundle_version = offer.bundle_version;
            core.take_beside_bundle(&offer, &mut identity);
            core.trust_accepted();
        }
        Err(reason) => {
            core.trust_refused(&format!("the trust bundle of a renewal is not kept: {reason}"));
            identity.bundle.clone_from(&core.identity.bundle);
            identity.meta_mut().bundle_version = core.identity.bundle_version();
            core.take_lists(&offer, &mut identity);
        }
    }
    Ok((core.write(&identity)?, identity))
}

/// Before the control plane was asked, or after it has answered.
fn not_renewed(core: &mut AgentCore, code: FaultCode, what: &str, kind: FailureKind) -> FaultCode {
    core.learn(Input::Renewed(Err(kind.into())));
    let reason = core.reason(kind, code.clone());
    ended(core, &reason, kind);
    core.reporting.log(code, &format!("not renewed: {what}"));
    reason
}

fn ended(core: &mut AgentCore, reason: &FaultCode, kind: FailureKind) {
    if host::discards_key(kind)
        && let Err(error) = renewal_key::remove(core.path())
    {
        core.not_written("a refused key could not be removed", &error);
    }
    core.reporting.metrics.renewal_failed(reason);
    core.reporting.attempts.last_renewal = Some(core.attempt(Some(reason)));
    core.keep_attempts();
}

async fn renew(target: CallTarget, csr: String, recovery_kept: String) -> RenewResult {
    let request = RenewRequest {
        csr,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        recovery_kept,
        recovery_wanted: true,
    };
    match target.agent.renew(request, &target.correlation_id, None).await {
        Ok(reply) => Ok(Box::new(reply.message)),
        Err(error) => Err(target.failed(error).await),
    }
}
