//! A renewal, from the new key to the switch.

use std::sync::Arc;

use api::agent::{OrderDone, RenewResponse};
use lifecycle::host::{self, Input, Origin, Trouble};
use pki::agent_key::HostKey;

use super::calls;
use super::daemon::{Candidate, Daemon, life};
use crate::clock;
use crate::failed_call::Failed;
use crate::fault::Fault;
use crate::issued::{Issued, agrees};
use crate::space;
use crate::status::Attempt;
use crate::store::generation::{Generations, Number};
use crate::store::identity::{Identity, Meta};
use crate::store::{recovery, renewal_key};

/// How many answered orders are remembered.
const ANSWERED: usize = 16;

impl Daemon {
    /// The key is on disk before the request leaves.
    pub(super) fn begin_renewal(&mut self) {
        self.figures.renewal_attempted();
        let key = match self.care.ballast.rescue(|| renewal_key::resume_or_begin(self.dir.path())) {
            Ok(key) => Arc::new(key),
            Err(error) => {
                let (code, trouble) = match space::is_full(&error) {
                    true => ("disk_full", Trouble::Full),
                    false => ("not_persisted", Trouble::Passing),
                };
                self.not_written("a new key could not be written", &error);
                return self.renewal_failed(code, &format!("no new key: {error}"), trouble);
            }
        };
        let csr = key.csr_pem().map_err(|error| error.to_string());
        let ready =
            csr.and_then(|csr| Ok((csr, self.line(&self.identity).map_err(|error| error.to_string())?)));
        match ready {
            Ok((csr, line)) => {
                self.renewing = Some(key);
                self.calls.spawn(calls::renew(line, csr, recovery::kept_id(self.dir.path())));
            }
            Err(what) => self.renewal_failed("fault", &what, Trouble::Refused),
        }
    }

    pub(super) fn renewed(&mut self, renewed: Result<Box<RenewResponse>, Failed>) -> Result<(), Fault> {
        let Some(key) = self.renewing.take() else { return Ok(()) };
        let answer = match renewed {
            Ok(answer) => answer,
            Err(failed) => return self.not_renewed(&failed),
        };
        self.granted(answer.recovery.as_ref());
        match self.keep(&answer, key) {
            Ok((number, identity)) => {
                self.candidate = Some(Candidate { number, identity, origin: Origin::Renewal });
                self.learn(Input::Renewed(Ok(())));
            }
            Err(fault) => {
                // The same key would get the same answer. One that could not be written is asked for again.
                let trouble = match fault.code.as_ref() {
                    "disk_full" => Trouble::Full,
                    "not_persisted" => Trouble::Passing,
                    "clock_skew" => Trouble::Skewed,
                    _ => Trouble::Refused,
                };
                self.renewal_failed(&fault.code, &fault.message, trouble);
            }
        }
        Ok(())
    }

    fn not_renewed(&mut self, failed: &Failed) -> Result<(), Fault> {
        let word = self.word(failed.trouble, failed.error.code());
        let then = self.learn(Input::Renewed(Err(failed.failure())));
        self.renewal_ended(&word, failed.trouble);
        if failed.trouble == Trouble::Revoked {
            self.channel = None;
            return self.now_revoked(&failed.error);
        }
        self.trouble("not renewed", failed);
        self.follow(then);
        Ok(())
    }

    /// The answer, checked and on disk as a generation that is not in use.
    fn keep(&mut self, answer: &RenewResponse, key: Arc<HostKey>) -> Result<(Number, Identity), Fault> {
        let mut identity = Issued::from(answer).check(key, clock::now())?;
        agrees("the node", &self.identity.spiffe.to_string(), &identity.spiffe.to_string())?;
        if let Err(reason) = self.may_follow(answer.bundle_version, &identity.bundle) {
            self.say("bundle_not_kept", &format!("the trust bundle of a renewal is not kept: {reason}"));
            identity.bundle.clone_from(&self.identity.bundle);
            let version = self.identity.bundle_version();
            identity.meta = identity.meta.map(|meta| Meta { bundle_version: version, ..meta });
        }
        Ok((self.write(&identity)?, identity))
    }

    /// A new identity on disk, not in use.
    pub(super) fn write(&mut self, identity: &Identity) -> Result<Number, Fault> {
        let generations = Generations::under(self.dir.path());
        let written = self.care.ballast.rescue(|| self.config.files.write(identity, &generations, None));
        written.map_err(|error| {
            self.not_written("a new identity could not be written", &error);
            let what = format!("the new identity could not be written: {error}");
            match space::is_full(&error) {
                true => Fault::host("disk_full", what, "make room in the directory"),
                false => Fault::host("not_persisted", what, "see that this user may write there"),
            }
        })
    }

    /// The candidate was welcomed: from here on it is this host's identity. False if the disk would not have it;
    /// then it is proven again later.
    pub(super) fn put_to_use(&mut self) -> bool {
        let Some(candidate) = self.candidate.take() else { return true };
        let generations = Generations::under(self.dir.path());
        if let Err(error) = self.care.ballast.rescue(|| generations.switch(candidate.number, None)) {
            let trouble = if space::is_full(&error) { Trouble::Full } else { Trouble::Passing };
            self.candidate = Some(candidate);
            self.learn(Input::Opened(Err(trouble.into())));
            self.not_written("the new identity could not be put to use", &error);
            return false;
        }
        self.identity = candidate.identity;
        self.learn(Input::Loaded(life(&self.identity)));
        match candidate.origin {
            Origin::Renewal => self.renewal_done(),
            Origin::Recovery => self.recovery_done(),
        }
        self.fit();
        self.answer_orders(true, "");
        self.hook.ring();
        true
    }

    fn renewal_done(&mut self) {
        if let Err(error) = renewal_key::remove(self.dir.path()) {
            self.not_written("the key of a finished renewal could not be removed", &error);
        }
        self.figures.renewals_ok += 1;
        let ended = self.attempt(None);
        self.attempts.last_renewal = Some(ended);
        self.keep_attempts();
        // Every one of them: a profile's point bounds their number.
        tracing::info!(serial = %self.identity.facts.serial, not_after = %self.identity.facts.not_after, "renewed");
    }

    /// The candidate is of no use; the certificate in use stays, and another is asked for later.
    pub(super) fn drop_candidate(&mut self, code: &str, trouble: Trouble) {
        match self.candidate.take().map(|candidate| candidate.origin) {
            // One that ended before it was shown is issued again, for the key that asked for it.
            Some(Origin::Recovery) if trouble == Trouble::Expired => self.recovery_ended(code, trouble),
            Some(Origin::Recovery) => self.recovery_ended(code, Trouble::Refused),
            _ => self.renewal_ended(code, Trouble::Refused),
        }
        if let Err(error) = Generations::under(self.dir.path()).tidy(None) {
            self.not_written("a refused certificate could not be removed", &error);
        }
    }

    /// Before the control plane was asked, or after it has answered.
    fn renewal_failed(&mut self, code: &str, what: &str, trouble: Trouble) {
        self.learn(Input::Renewed(Err(trouble.into())));
        let word = self.word(trouble, code);
        self.renewal_ended(&word, trouble);
        self.say(code, &format!("not renewed: {what}"));
    }

    fn renewal_ended(&mut self, word: &str, trouble: Trouble) {
        if host::gives_up_key(trouble)
            && let Err(error) = renewal_key::remove(self.dir.path())
        {
            self.not_written("a refused key could not be removed", &error);
        }
        self.figures.renewal_failed(word);
        let ended = self.attempt(Some(word));
        self.attempts.last_renewal = Some(ended);
        self.keep_attempts();
        self.answer_orders(false, word);
    }

    /// What a failed undertaking is called: by its class, or by the word of whoever refused it.
    pub(super) fn word(&self, trouble: Trouble, code: &str) -> String {
        let expired = self.identity.is_expired(clock::now());
        match trouble {
            Trouble::Refused if !expired => code.to_owned(),
            _ => host::classify(trouble, expired, self.host.is_skewed()).to_string(),
        }
    }

    pub(super) fn attempt(&self, class: Option<&str>) -> Attempt {
        Attempt {
            at: clock::now().to_string(),
            ok: class.is_none(),
            class: class.map(str::to_owned),
            correlation_id: self.host.undertaking().to_owned(),
        }
    }

    pub(super) fn answer_orders(&mut self, ok: bool, detail: &str) {
        for order_id in std::mem::take(&mut self.orders) {
            let done = OrderDone { order_id, ok, detail: detail.to_owned() };
            self.answered.push_back(done.clone());
            self.answers.push(done);
        }
        while self.answered.len() > ANSWERED {
            self.answered.pop_front();
        }
    }
}
