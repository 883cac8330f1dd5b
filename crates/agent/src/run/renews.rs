//! A renewal, from the new key to the switch.

use std::sync::Arc;

use api::agent::{OrderDone, RenewResponse};
use client::Error;
use lifecycle::host::{self, Trouble};
use lifecycle::names::Timestamp;
use tokio::time::Instant;

use super::calls::{self, trouble};
use super::daemon::{Candidate, Daemon, pause};
use crate::fault::Fault;
use crate::issued::{Issued, agrees};
use crate::status::Attempt;
use crate::store::generation::{Generations, Number};
use crate::store::identity::{Identity, Meta};
use crate::store::renewal_key;
use crate::{chance, clock};

/// How many answered orders are remembered.
const ANSWERED: usize = 16;

impl Daemon {
    /// When the certificate in use is to be renewed.
    pub(super) fn schedule(&mut self) {
        let facts = &self.identity.facts;
        let named = self.identity.renew_at().and_then(|text| Timestamp::parse(text).ok());
        self.renew_due = host::due(named, facts.not_before, facts.not_after, chance::number());
    }

    /// The key is on disk before the request leaves.
    pub(super) fn begin_renewal(&mut self) {
        let key = match renewal_key::resume_or_begin(self.dir.path()) {
            Ok(key) => Arc::new(key),
            Err(error) => {
                let what = format!("a new key could not be written: {error}");
                return self.renewal_failed("not_persisted", &what, Trouble::Passing);
            }
        };
        let csr = key.csr_pem().map_err(|error| error.to_string());
        let ready =
            csr.and_then(|csr| Ok((csr, self.agent(&self.identity).map_err(|error| error.to_string())?)));
        match ready {
            Ok((csr, agent)) => {
                self.renewing = Some(key);
                self.calls.spawn(calls::renew(agent, csr, self.renewal_id.clone()));
            }
            Err(what) => self.renewal_failed("fault", &what, Trouble::Refused),
        }
    }

    pub(super) fn renewed(&mut self, renewed: Result<Box<RenewResponse>, Error>) -> Result<(), Fault> {
        let Some(key) = self.renewing.take() else { return Ok(()) };
        let answer = match renewed {
            Ok(answer) => answer,
            Err(error) => {
                let trouble = trouble(&error);
                let class = self.class(error.code()).to_owned();
                self.say_error(&class, "not renewed", &error);
                self.renewal_ended(&class, trouble);
                self.renew_at += Self::asked_to_wait(&error);
                self.takes_up_candidate(trouble);
                return if trouble == Trouble::Revoked { self.now_revoked(&error) } else { Ok(()) };
            }
        };
        match self.keep(&answer, key) {
            Ok((number, identity)) => {
                self.candidate = Some(Candidate { number, identity });
                self.open_at = Instant::now();
            }
            Err(fault) => {
                // The same key would get the same answer. One that could not be written is asked for again.
                let trouble = if fault.code == "not_persisted" { Trouble::Passing } else { Trouble::Refused };
                self.renewal_failed(&fault.code, &fault.message, trouble);
            }
        }
        Ok(())
    }

    /// The answer, checked and on disk as a generation that is not in use.
    fn keep(
        &mut self,
        answer: &RenewResponse,
        key: Arc<pki::agent_key::HostKey>,
    ) -> Result<(Number, Identity), Fault> {
        let mut identity = Issued::from(answer).check(key, clock::now())?;
        agrees("the node", &self.identity.spiffe.to_string(), &identity.spiffe.to_string())?;
        if let Err(reason) = self.may_follow(answer.bundle_version, &identity.bundle) {
            self.say("bundle_not_kept", &format!("the trust bundle of a renewal is not kept: {reason}"));
            identity.bundle.clone_from(&self.identity.bundle);
            let version = self.identity.bundle_version();
            identity.meta = identity.meta.map(|meta| Meta { bundle_version: version, ..meta });
        }
        let written = self.files.write(&identity, &Generations::under(self.dir.path()), None);
        let number = written.map_err(|error| {
            let hint = "make room in the directory";
            Fault::host("not_persisted", format!("the renewed identity could not be written: {error}"), hint)
        })?;
        Ok((number, identity))
    }

    /// The candidate was welcomed: from here on it is this host's identity. False if the disk would not have it;
    /// then it is proven again later.
    pub(super) fn put_to_use(&mut self) -> bool {
        let Some(candidate) = self.candidate.take() else { return true };
        let generations = Generations::under(self.dir.path());
        if let Err(error) = generations.switch(candidate.number, None) {
            self.say("not_persisted", &format!("the renewed identity could not be put to use: {error}"));
            self.candidate = Some(candidate);
            self.later(Trouble::Passing);
            return false;
        }
        if let Err(error) = renewal_key::remove(self.dir.path()) {
            self.say(
                "not_persisted",
                &format!("the key of a finished renewal could not be removed: {error}"),
            );
        }
        self.identity = candidate.identity;
        self.fit();
        self.renew_backoff.reset();
        self.figures.renewals_ok += 1;
        self.note_attempt(None);
        self.schedule();
        self.answer_orders(true, "");
        self.hook.ring();
        // Every one of them: a profile's point bounds their number.
        tracing::info!(serial = %self.identity.facts.serial, not_after = %self.identity.facts.not_after, "renewed");
        true
    }

    /// The candidate is of no use; the certificate in use stays, and another is asked for later.
    pub(super) fn drop_candidate(&mut self, code: &str) {
        self.candidate = None;
        self.renewal_failed(code, "the renewed certificate was refused", Trouble::Refused);
        if let Err(error) = Generations::under(self.dir.path()).tidy(None) {
            self.say("not_persisted", &format!("a refused certificate could not be removed: {error}"));
        }
    }

    fn renewal_failed(&mut self, class: &str, what: &str, trouble: Trouble) {
        let class = self.class(class).to_owned();
        self.say(&class, &format!("not renewed: {what}"));
        self.renewal_ended(&class, trouble);
    }

    /// What a failure is called: of an expired certificate nothing else is worth saying.
    fn class<'a>(&self, class: &'a str) -> &'a str {
        if self.identity.is_expired(clock::now()) { "cert_expired" } else { class }
    }

    fn renewal_ended(&mut self, class: &str, trouble: Trouble) {
        if host::gives_up_key(trouble)
            && let Err(error) = renewal_key::remove(self.dir.path())
        {
            self.say("not_persisted", &format!("a refused key could not be removed: {error}"));
        }
        self.figures.renewals_failed += 1;
        self.note_attempt(Some(class));
        self.answer_orders(false, class);
        let within = host::retry_within(clock::now(), self.identity.facts.not_after);
        self.renew_at = Instant::now() + pause(self.renew_backoff.next(chance::number(), within));
    }

    /// The end of one undertaking; the next has an id of its own.
    fn note_attempt(&mut self, class: Option<&str>) {
        let next = chance::hex_128().unwrap_or_else(|_| self.renewal_id.clone());
        self.last_renewal = Some(Attempt {
            at: clock::now().to_string(),
            ok: class.is_none(),
            class: class.map(str::to_owned),
            correlation_id: std::mem::replace(&mut self.renewal_id, next),
        });
    }

    fn answer_orders(&mut self, ok: bool, detail: &str) {
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
