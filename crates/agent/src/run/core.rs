//! What every part of the daemon works with: the directory, the identity in it, the state machine, and reporting. A part
//! never sees another part; what one has for another goes through the daemon.

use std::io;
use std::path::Path;

use client::unreachable::{Distrust, Unreachable};
use client::{Error, ServerUrl};
use lifecycle::host::{
    self, CandidateOrigin, Chance, Class, Condition, FailureKind, FollowUp, HostMachine, Input, Life, Now,
};
use lifecycle::names::{Span, Timestamp};
use pki::digest::TrustDigest;
use pki::succession::left_out;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

use super::rate_limit::RateLimit;
use super::reporting::Reporting;
use super::start;
use crate::code::{self, AgentCode};
use crate::failed_call::FailedCall;
use crate::fault::{Exit, Fault};
use crate::fault_code::FaultCode;
use crate::issued;
use crate::layout::Files;
use crate::space::{self, Ballast};
use crate::status::LastAttempt;
use crate::store::dir::Dir;
use crate::store::generation::{Generations, Number};
use crate::store::identity::{self, HostIdentity};
use crate::store::stored_trust::StoredTrust;
use crate::store::{revoked, trust_refused};
use crate::trust_offer::TrustOffer;
use crate::{chance, clock};

/// A new certificate on disk that has yet to be proven.
#[derive(Debug)]
pub struct Candidate {
    pub number: Number,
    pub identity: HostIdentity,
    pub origin: CandidateOrigin,
}

pub struct AgentCore {
    pub dir: Dir,
    pub files: Files,
    pub ballast: Ballast,
    pub exit_on_revoked: bool,
    pub identity: HostIdentity,
    pub candidate: Option<Candidate>,
    pub stored_trust: StoredTrust,
    /// How often a renewal may begin that is not one after a failure, whoever names its time: each is a generation on the disk.
    pub renewals: RateLimit,
    pub machine: HostMachine,
    /// Of this process, for the control plane to tell it from a copy of the identity.
    pub instance: String,
    pub started: Instant,
    pub reporting: Reporting,
}

impl AgentCore {
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let steady = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { wall: clock::now(), steady: Span::from_millis(steady) }
    }

    pub fn learn(&mut self, input: Input) -> FollowUp {
        // Without chance there would be no new id, which is no reason to stop.
        let id = chance::hex_128().unwrap_or_else(|_| self.instance.clone());
        self.machine.learn(input, self.now(), Chance { number: chance::number(), id })
    }

    pub fn is_expired(&self) -> bool {
        self.identity.is_expired(clock::now())
    }

    /// Tries the candidate next.
    pub fn prove(&mut self, candidate: Candidate) {
        let origin = candidate.origin;
        self.candidate = Some(candidate);
        self.learn(Input::CandidateFound(origin));
    }

    /// Where the certificate in use is no longer accepted, a renewed one that lies on disk is the one to use.
    pub fn follow(&mut self, follow_up: FollowUp) {
        if follow_up != FollowUp::FindCandidate || self.candidate.is_some() {
            return;
        }
        match start::candidate(self.dir.path(), &self.identity) {
            Ok(Some(found)) => self.prove(found),
            Ok(None) => {}
            Err(fault) => self.reporting.log(fault.code, &fault.message),
        }
    }

    /// A new identity on disk, not in use.
    pub fn write(&mut self, identity: &HostIdentity) -> Result<Number, Fault> {
        let generations = Generations::under(self.path());
        let written = self.ballast.rescue(|| self.files.write(identity, &generations, None));
        written.map_err(|error| {
            self.not_written("a new identity could not be written", &error);
            let what = format!("the new identity could not be written: {error}");
            match space::is_full(&error) {
                true => Fault::host(AgentCode::DiskFull, what, "make room in the directory"),
                false => Fault::host(AgentCode::NotPersisted, what, "see that this user may write there"),
            }
        })
    }

    /// The candidate was welcomed: from here on it is this host's identity. If the disk would not have it, it is proven
    /// again later.
    pub fn adopt_candidate(&mut self) -> io::Result<Option<CandidateOrigin>> {
        let Some(mut candidate) = self.candidate.take() else { return Ok(None) };
        let generations = Generations::under(self.path());
        // A list that came while the candidate was waiting stays.
        let lists = candidate.identity.root_lists.and(&self.identity.root_lists);
        let newer = lists != candidate.identity.root_lists;
        candidate.identity.root_lists = lists;
        let switch = || {
            let number = match newer {
                true => self.files.write(&candidate.identity, &generations, Some(candidate.number))?,
                false => candidate.number,
            };
            generations.switch(number, None)
        };
        if let Err(error) = self.ballast.rescue(switch) {
            let kind = if space::is_full(&error) { FailureKind::DiskFull } else { FailureKind::Transient };
            self.candidate = Some(candidate);
            self.learn(Input::Opened(Err(kind.into())));
            self.not_written("the new identity could not be put to use", &error);
            return Err(error);
        }
        self.identity = candidate.identity;
        let mut life = life(&self.identity);
        let wait = u64::try_from(self.renewals.wait(Instant::now()).as_millis()).unwrap_or(u64::MAX);
        life.renew_at = life.renew_at.max(clock::now().plus(Span::from_millis(wait)));
        self.learn(Input::Loaded(life));
        Ok(Some(candidate.origin))
    }

    /// The candidate is of no use; the certificate in use stays, and another is asked for later.
    pub fn discard_candidate(&mut self) -> Option<CandidateOrigin> {
        self.candidate.take().map(|candidate| candidate.origin)
    }

    /// Removes generations that are neither in use nor to be proven.
    pub fn tidy(&mut self) {
        if let Err(error) = Generations::under(self.path()).tidy(None) {
            self.not_written("a refused certificate could not be removed", &error);
        }
    }

    /// The same identity with other things to trust, in use when this returns.
    pub fn keep_trust(&mut self, identity: HostIdentity) -> Result<(), String> {
        // What cannot be used must not replace what can.
        client::trust::client_config(&identity.trust(), Some(&identity.credentials()), b"h2")
            .map_err(|error| Error::from(error).to_string())?;
        let generations = Generations::under(self.path());
        let spare = self.candidate.as_ref().map(|candidate| candidate.number);
        let write = || {
            let number = self.files.write(&identity, &generations, spare)?;
            generations.switch(number, spare)
        };
        self.ballast.rescue(write).map_err(|error| error.to_string())?;
        for (root, number, denied) in identity.root_lists.newer_than(&self.identity.root_lists) {
            tracing::info!(root, number, denied, "revocation list of a root stored");
        }
        self.identity = identity;
        Ok(())
    }

    /// Where the control plane says that it is reached, for the next start: by then the servers of the certificate's answer may be gone.
    pub fn keep_servers(&mut self, servers: &[String]) {
        let servers = issued::bounded(servers);
        let Some(mut meta) = self.identity.meta.clone().filter(|meta| meta.servers != servers) else {
            return;
        };
        if servers.is_empty() {
            return;
        }
        meta.servers = servers;
        match self.ballast.rescue(|| identity::rewrite_meta(self.dir.path(), &meta)) {
            Ok(()) => self.identity.meta = Some(meta),
            Err(error) => self.not_written("the addresses of the control plane could not be stored", &error),
        }
    }

    /// What the generation in use has on disk now: files may be lost or written over while this runs.
    pub fn stored_trust(&mut self) -> TrustDigest {
        self.stored_trust.read(self.dir.path())
    }

    /// The bundle that may take the place of the one in use: only what is trusted now says what is trusted next. The
    /// version is nobody's signature, so one that is lower only adds: whoever once sent a number out of reach would otherwise
    /// have sent the last bundle that this host takes.
    pub fn succeeding(&self, offer: &TrustOffer<'_>) -> Result<Vec<CertificateDer<'static>>, String> {
        let (current, at) = (&self.identity.bundle, clock::now());
        let mut bundle = offer.bundle(current, &self.identity.root_lists, at)?;
        if offer.bundle_version < self.identity.bundle_version() {
            let kept = left_out(current, &bundle, at);
            bundle.extend(kept);
        }
        Ok(bundle)
    }

    /// Takes the lists of the roots and the issuers of nodes that come with a bundle; what is not taken is in the log.
    pub fn take_beside_bundle(&mut self, offer: &TrustOffer<'_>, identity: &mut HostIdentity) {
        self.take_lists(offer, identity);
        if let Err(reason) = offer.take_issuers(identity) {
            self.reporting.log(AgentCode::BundleNotKept, &reason);
        }
    }

    /// The lists alone: they are signed by a root, whatever came with them.
    pub fn take_lists(&mut self, offer: &TrustOffer<'_>, identity: &mut HostIdentity) {
        for reason in offer.take_lists(identity) {
            let code = FaultCode::from(AgentCode::BundleNotKept);
            let class = Class::ServerTlsUntrusted;
            self.reporting.log_call("list refused", class, &code, &reason, trust_refused::LIST_REMEDY);
        }
    }

    /// What was offered to this host to trust is not taken: in the log, in the diagnostics, and for `status` and `doctor`.
    pub fn trust_refused(&mut self, what: &str) {
        let class = Class::ServerTlsUntrusted;
        let code = FaultCode::from(AgentCode::BundleNotKept);
        self.reporting.log_call("trust refused", class, &code, what, trust_refused::REMEDY);
        let (at, id) = (clock::now(), self.machine.correlation_id().to_owned());
        let next = "goes on with what it trusts";
        self.reporting.record(at, class, &id, what, next, trust_refused::REMEDY);
        if let Err(error) = trust_refused::keep(self.path(), class.as_str(), what, at) {
            self.not_written("a refused CA could not be noted", &error);
        }
    }

    /// What was offered since was taken.
    pub fn trust_accepted(&mut self) {
        if let Err(error) = trust_refused::clear(self.path()) {
            self.not_written("the note of a refused CA could not be removed", &error);
        }
    }

    /// The control plane has revoked this identity, as far as it knows. A fault if the daemon is to end by that.
    pub fn revoked(&mut self, error: &Error) -> Result<(), Fault> {
        // For `status`, `enroll` and the next start, when this daemon is no more.
        let known = revoked::is_set(self.path(), &self.identity.facts.serial);
        if let Err(error) = revoked::set(self.path(), &self.identity.facts.serial) {
            self.not_written("the marker `revoked` could not be written", &error);
        }
        let code = FaultCode::of_error(error);
        let remedy = code::revoked(self.dir.storage());
        if !known || self.reporting.detail.is_empty() {
            let class = Class::IdentityRevokedOrFenced;
            let what = format!("this host's identity is revoked: {error}");
            tracing::error!(class = class.as_str(), code = code.as_str(), "{what}; remedy: {remedy}");
            self.record(class, &what, remedy);
        }
        if self.exit_on_revoked {
            return Err(Fault::new(Exit::Refused, code, error.to_string(), remedy));
        }
        Ok(())
    }

    /// Something could not be written: for want of room, or for another reason.
    pub fn not_written(&mut self, what: &str, error: &io::Error) {
        let what = format!("{what}: {error}");
        let full = space::is_full(error);
        if full {
            self.learn(Input::DiskFull(true));
            self.record(Class::DiskFull, &what, "");
        }
        self.reporting.log(if full { AgentCode::DiskFull } else { AgentCode::NotPersisted }, &what);
    }

    /// A call failed: in the log, and in the diagnostics.
    pub fn call_failed(&mut self, act: &str, failed: &FailedCall, servers: &[ServerUrl]) {
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        // A refusal is one server's word, and a message about one server names it.
        let tried = match &failed.error {
            Error::Unreachable { .. } if servers.len() > 1 => format!(" (tried {})", servers.join(", ")),
            Error::Unreachable { .. } | Error::Refused(_) | Error::Usage(_) | Error::Fault(_) => {
                String::new()
            }
        };
        let what = format!("{act}: {}{tried}", failed.error);
        let (class, code) = (self.class(failed.kind), failed.code());
        let denied = matches!(
            &failed.error,
            Error::Unreachable { cause: Unreachable::Untrusted(Distrust::IssuerRevoked), .. }
        );
        let hint = match class {
            // No repair bundle makes a denied issuer good.
            Class::RecoveryEnrollmentBlocked if denied => failed.error.hint(),
            Class::RecoveryEnrollmentBlocked
                if code.is_one_of(&[
                    api::code::RECOVERY_NOT_NEEDED,
                    api::code::ALREADY_ACTIVE,
                    api::code::NODE_NOT_ENROLLED,
                ]) =>
            {
                failed.error.hint()
            }
            // It recovers, or needs what a recovery takes: the hint about the call itself is no way out.
            Class::CertExpired | Class::RecoveryEnrollmentBlocked => "",
            Class::EndpointUnreachable if failed.kind == FailureKind::UnknownIssuer => code::UNKNOWN_ISSUER,
            Class::EndpointUnreachable
            | Class::ServerTlsUntrusted
            | Class::IdentityRevokedOrFenced
            | Class::EndpointProfileDrift
            | Class::DiskFull
            | Class::ClockSkew => failed.error.hint(),
        };
        self.record(class, &what, hint);
        self.reporting.refused_with(class, &code, &failed.error, hint);
        self.reporting.log_call(act, class, &code, &what, hint);
    }

    /// The same of anything else that has a class of its own.
    pub fn failed(&mut self, class: Class, what: &str) {
        self.record(class, what, "");
        self.reporting.log(class, what);
    }

    /// The class of the whole, unless that is about something on this host that a call has nothing to do with.
    pub fn class(&self, kind: FailureKind) -> Class {
        let alone = host::classify(kind, self.is_expired(), self.machine.is_skewed());
        match self.machine.condition().map(|condition| condition.class) {
            None | Some(Class::DiskFull | Class::EndpointProfileDrift) => alone,
            Some(
                class @ (Class::EndpointUnreachable
                | Class::ServerTlsUntrusted
                | Class::CertExpired
                | Class::IdentityRevokedOrFenced
                | Class::RecoveryEnrollmentBlocked
                | Class::ClockSkew),
            ) => class,
        }
    }

    /// What a failed renewal is called: by its class, or by the code with which it was refused.
    pub fn reason(&self, kind: FailureKind, code: FaultCode) -> FaultCode {
        let expired = self.is_expired();
        if kind == FailureKind::Refused && !expired {
            return code;
        }
        host::classify(kind, expired, self.machine.is_skewed()).into()
    }

    /// A line of the diagnostics, for whoever stands before this host when nothing else can be reached.
    fn record(&mut self, class: Class, what: &str, remedy: &str) {
        let Some(condition) = self.machine.condition() else { return };
        let now = self.now();
        let left = self.machine.wake(now).secs().saturating_sub(now.steady.secs());
        let next = match class {
            Class::IdentityRevokedOrFenced => {
                "checks every few minutes whether it is still revoked".to_owned()
            }
            Class::ClockSkew => "requests no certificate until the clock is right".to_owned(),
            Class::EndpointUnreachable
            | Class::ServerTlsUntrusted
            | Class::CertExpired
            | Class::EndpointProfileDrift
            | Class::RecoveryEnrollmentBlocked
            | Class::DiskFull => format!("tries again within {} s", left.max(1)),
        };
        let correlation_id = self.machine.correlation_id().to_owned();
        if condition.class == class {
            self.reporting.describe(what);
        }
        self.reporting.record(now.wall, class, &correlation_id, what, &next, remedy);
    }

    /// How a renewal or a recovery ended.
    pub fn attempt(&self, reason: Option<&FaultCode>) -> LastAttempt {
        LastAttempt {
            at: clock::now().to_string(),
            ok: reason.is_none(),
            class: reason.map(ToString::to_string),
            correlation_id: self.machine.correlation_id().to_owned(),
        }
    }

    /// How renewals and recoveries ended, for the next start. Not worth the last room on a disk.
    pub fn keep_attempts(&self) {
        let full = |condition: Condition| condition.class == Class::DiskFull;
        if !self.machine.is_disk_full() && !self.machine.condition().is_some_and(full) {
            self.reporting.keep_attempts(self.path());
        }
    }
}

/// When the certificate ends, and when it is to be renewed.
pub fn life(identity: &HostIdentity) -> Life {
    let facts = &identity.facts;
    let named = identity.renew_at().and_then(|text| Timestamp::parse(text).ok());
    let renew_at = host::due(named, facts.not_before, facts.not_after, chance::number());
    Life { not_after: facts.not_after, renew_at }
}

/// What it means that an answer could not be kept, where it is not the answer that is at fault.
pub fn kept_kind(fault: &Fault) -> Option<FailureKind> {
    match fault.code.agent() {
        Some(AgentCode::DiskFull) => Some(FailureKind::DiskFull),
        Some(AgentCode::NotPersisted) => Some(FailureKind::Transient),
        Some(AgentCode::ClockSkew) => Some(FailureKind::ClockSkew),
        Some(AgentCode::BundleNotKept) => Some(FailureKind::Untrusted),
        _ => None,
    }
}
