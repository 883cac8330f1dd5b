//! A recovery, from the key to the certificate that waits to be proven; and what it takes.

use std::sync::Arc;

use api::agent::{NotNeeded, RecoverResponse};
use api::code;
use client::Error;
use lifecycle::host::{self, Class, Input, Origin, Recovered, Trouble};

use super::calls;
use super::daemon::{Candidate, Daemon};
use crate::failed_call::Failed;
use crate::fault::Fault;
use crate::recover::ask;
use crate::recover::endpoint::{Runtime, Way, settled};
use crate::store::recovery::{self, Kept};
use crate::store::{recovery_attempt, unconfirmed};
use crate::{clock, issued, space};

impl Daemon {
    /// Whether there is what a recovery takes, now.
    pub(super) fn look_for_recovery(&mut self) {
        let material = self.material();
        self.learn(Input::Ready(material.is_ok()));
        // With what nobody knows here it is tried all the same, since only the control plane can tell; but it is not
        // counted upon.
        let ready =
            material.and_then(|(token, _)| token.id.map(drop).ok_or_else(|| recovery::UNKNOWN.to_owned()));
        self.recovery_ready = ready.is_ok();
        if let (Err(reason), Some(ill)) = (ready, self.host.ill())
            && ill.class == Class::RecoveryEnrollmentBlocked
        {
            self.trouble_of(ill.class, &reason);
        }
    }

    /// While there is somebody to give it, this host asks for the token that it should have and has not.
    pub(super) fn ask_for_token(&mut self) {
        if self.channel.is_none() || !recovery::kept_id(self.dir.path()).is_empty() {
            return;
        }
        if self.notices.note("no recovery token", clock::now()).is_some() {
            tracing::info!("there is no valid recovery token; requesting one");
        }
        self.kept = Some(String::new());
    }

    fn material(&self) -> Result<(Kept, Way), String> {
        let found = recovery::read(self.dir.path());
        if let Some(path) = found.exposed {
            return Err(format!("other users may read or replace {}, so it is not used", path.display()));
        }
        let Some(token) = found.token else { return Err("there is no recovery token".to_owned()) };
        if token.expires_at.is_some_and(|at| clock::now() > at) {
            return Err("the recovery token has expired".to_owned());
        }
        let runtime = Runtime { servers: self.servers(), trust: Some(self.identity.trust()) };
        let way = settled(&self.config.recovery, found.profile.as_ref(), &runtime);
        way.map(|way| (token, way)).map_err(|fault| fault.message)
    }

    /// The key is on disk before the request leaves.
    pub(super) fn begin_recovery(&mut self, class: Class) {
        self.figures.recovery_attempted(class.as_str());
        let (token, way) = match self.material() {
            Ok(material) => material,
            Err(what) => return self.recovery_failed("recovery_enrollment_blocked", &what, Trouble::Refused),
        };
        let undertaking = self.host.undertaking().to_owned();
        let begun = || recovery_attempt::resume_or_begin(self.dir.path(), &token.value, &undertaking);
        let attempt = match self.care.ballast.rescue(begun) {
            Ok(attempt) => attempt,
            Err(error) => {
                let (code, trouble) = match space::is_full(&error) {
                    true => ("disk_full", Trouble::Full),
                    false => ("not_persisted", Trouble::Passing),
                };
                self.not_written("a key for the recovery could not be written", &error);
                return self.recovery_failed(code, &error.to_string(), trouble);
            }
        };
        let csr = match attempt.key.csr_pem() {
            Ok(csr) => csr,
            Err(error) => return self.recovery_failed("fault", &error.to_string(), Trouble::Refused),
        };
        if self.notices.note("recovering", clock::now()).is_some() {
            let class = class.as_str();
            tracing::warn!(class, correlation_id = undertaking, "recovering this host's identity");
        }
        let request = ask::request(&token.value, csr, self.identity.node_id(), class);
        self.recovering = Some(Arc::new(attempt.key));
        let made = Some(self.identity.facts.not_before);
        self.calls.spawn(calls::recover(way, request, undertaking, self.host.tolerance(), made));
    }

    pub(super) fn recovered(&mut self, answer: Result<Box<RecoverResponse>, Failed>) -> Result<(), Fault> {
        let Some(key) = self.recovering.take() else { return Ok(()) };
        let answer = match answer {
            Ok(answer) => answer,
            Err(failed) => return self.not_recovered(&failed),
        };
        let kept = ask::check(&answer, key, Some(&self.identity), clock::now());
        let written = kept.and_then(|identity| Ok((self.write(&identity)?, identity)));
        match written {
            Ok((number, identity)) => {
                if let Err(error) = unconfirmed::set(self.dir.path(), &identity.facts.serial) {
                    self.not_written("the marker `unconfirmed` could not be written", &error);
                }
                self.told.clone_from(&answer.servers);
                self.candidate = Some(Candidate { number, identity, origin: Origin::Recovery });
                self.learn(Input::Recovered(Ok(Recovered::Issued)));
            }
            Err(fault) => {
                let trouble = match fault.code.as_ref() {
                    "disk_full" => Trouble::Full,
                    "clock_skew" => Trouble::Skewed,
                    "not_persisted" => Trouble::Passing,
                    _ => Trouble::Elsewhere,
                };
                self.recovery_failed(&fault.code, &fault.message, trouble);
            }
        }
        Ok(())
    }

    fn not_recovered(&mut self, failed: &Failed) -> Result<(), Fault> {
        if let Error::Refused(refusal) = &failed.error
            && refusal.detail.code == code::RECOVERY_NOT_NEEDED.word
            && let Some(bundle) = &refusal.not_needed
            && self.refreshed(bundle)
        {
            self.learn(Input::Recovered(Ok(Recovered::Refreshed)));
            // It was not a certificate that was missing, and what was is here.
            self.figures.recovered();
            self.recovery_settled(None);
            return Ok(());
        }
        self.learn(Input::Recovered(Err(failed.failure())));
        self.recovery_ended(host::recovery::classify(failed.trouble).as_str(), failed.trouble);
        if failed.trouble == Trouble::Revoked {
            return self.now_revoked(&failed.error);
        }
        self.trouble("not recovered", failed);
        Ok(())
    }

    /// The node is well, and only its bundle was stale. What vouches for the new one is the recovery bundle. False
    /// if it is the one in use, so that nothing is cured by it.
    fn refreshed(&mut self, answer: &NotNeeded) -> bool {
        let certificates = match issued::certificates("bundle", &answer.bundle) {
            Ok(certificates) if certificates != self.identity.bundle => certificates,
            _ => return false,
        };
        match self.keep_bundle(answer.bundle_version, certificates) {
            Ok(identity) => {
                self.identity = identity;
                tracing::info!(version = answer.bundle_version, "trust bundle refreshed by recovery");
                true
            }
            Err(reason) => {
                self.say("bundle_not_kept", &format!("the trust bundle of a recovery is not kept: {reason}"));
                false
            }
        }
    }

    /// The new certificate is in use: the token is spent.
    pub(super) fn recovery_done(&mut self) {
        if let Some(attempt) = recovery_attempt::read(self.dir.path()) {
            let forgotten = recovery::forget_token(self.dir.path(), &attempt.token_hash);
            if let Err(error) = forgotten.and_then(|()| recovery_attempt::remove(self.dir.path())) {
                self.not_written("files of a finished recovery could not be removed", &error);
            }
        }
        self.figures.recovered();
        self.recovery_settled(None);
        tracing::info!(serial = %self.identity.facts.serial, not_after = %self.identity.facts.not_after, "recovered");
    }

    fn recovery_failed(&mut self, code: &str, what: &str, trouble: Trouble) {
        self.learn(Input::Recovered(Err(trouble.into())));
        self.recovery_ended(host::recovery::classify(trouble).as_str(), trouble);
        self.say(code, &format!("not recovered: {what}"));
    }

    pub(super) fn recovery_ended(&mut self, word: &str, trouble: Trouble) {
        // The same token and key would get the same answer.
        if host::gives_up_key(trouble)
            && let Err(error) = recovery_attempt::remove(self.dir.path())
        {
            self.not_written("a refused key could not be removed", &error);
        }
        self.figures.recovery_failed(word);
        self.recovery_settled(Some(word));
    }

    fn recovery_settled(&mut self, class: Option<&str>) {
        let ended = self.attempt(class);
        self.attempts.last_recovery = Some(ended);
        self.keep_attempts();
    }
}
