//! What comes from the control plane on the standing connection, and the connection's own coming and going.

use api::agent::{Bundle, Order, OrderDone, live_down, order};
use client::{Error, Live};
use lifecycle::host::{self, Trouble};
use pki::succession::check_succession;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

use super::calls::trouble;
use super::channel::Channel;
use super::daemon::{Candidate, Daemon, Opening};
use super::{notify, start};
use crate::clock;
use crate::fault::Fault;
use crate::issued;
use crate::store::generation::Generations;
use crate::store::identity::{Identity, Meta};
use crate::store::{revoked, unconfirmed};

/// Addresses beyond these are not worth a try.
const SERVERS: usize = 16;

impl Daemon {
    pub(super) fn opened(&mut self, opened: Result<Box<Live>, Error>) -> Result<(), Fault> {
        let as_candidate = matches!(self.opening.take(), Some(Opening::AsCandidate));
        match opened {
            Ok(live) => {
                if as_candidate && !self.put_to_use() {
                    return Ok(());
                }
                self.connected(live);
                Ok(())
            }
            Err(error) if as_candidate => self.not_proven(&error),
            Err(error) => {
                match trouble(&error) {
                    // Said once, not at every check.
                    Trouble::Revoked => self.now_revoked(&error),
                    other => {
                        self.say_error(error.code(), "not connected", &error);
                        if !self.takes_up_candidate(other) {
                            self.later(other);
                            self.open_at += Self::asked_to_wait(&error);
                        }
                        Ok(())
                    }
                }
            }
        }
    }

    fn connected(&mut self, live: Box<Live>) {
        if unconfirmed::is_set(self.dir.path(), &self.identity.facts.serial)
            && let Err(error) = unconfirmed::clear(self.dir.path())
        {
            self.say("not_persisted", &format!("the mark `unconfirmed` could not be removed: {error}"));
        }
        if let Err(error) = revoked::clear(self.dir.path()) {
            self.say("not_persisted", &format!("the mark `revoked` could not be removed: {error}"));
        }
        if self.notices.note("connected", clock::now()).is_some() {
            tracing::info!(server = %live.server(), "connected");
        }
        let welcome = live.welcome().clone();
        self.server_time(welcome.server_time_ms);
        self.standing = welcome.standing;
        self.told = welcome.servers.into_iter().take(SERVERS).collect();
        self.revoked = false;
        self.figures.reconnects += u64::from(self.ready_told && self.channel.is_none());
        if let Some(old) = self.channel.replace(Channel::new(live)) {
            old.drain();
        }
        if !self.ready_told {
            self.ready_told = true;
            self.manager.tell(notify::READY);
        }
    }

    pub(super) fn lost(&mut self, error: &Error) -> Result<(), Fault> {
        let trouble = trouble(error);
        if trouble == Trouble::Revoked {
            self.channel = None;
            return self.now_revoked(error);
        }
        self.gone(error.code(), &error.to_string());
        if !self.takes_up_candidate(trouble) {
            self.open_at += Self::asked_to_wait(error);
        }
        Ok(())
    }

    /// The certificate in use has had its day. If a renewed one lies here, that is the one to use: it is proven at
    /// once. False if there is none.
    pub(super) fn takes_up_candidate(&mut self, trouble: Trouble) -> bool {
        if !host::takes_up_candidate(trouble) {
            return false;
        }
        if self.candidate.is_none() {
            match start::candidate(self.dir.path(), &self.identity) {
                Ok(found) => {
                    self.candidate = found.map(|(number, identity)| Candidate { number, identity });
                }
                Err(fault) => self.say(&fault.code, &fault.message),
            }
        }
        if self.candidate.is_some() {
            self.open_at = Instant::now();
        }
        self.candidate.is_some()
    }

    /// The connection is no more. One that stood for a while is no sign of trouble.
    pub(super) fn gone(&mut self, class: &str, what: &str) {
        if self.channel.take().is_some_and(|channel| channel.is_steady()) {
            self.open_backoff.reset();
        }
        self.turn = self.turn.wrapping_add(1);
        self.say(class, &format!("connection lost: {what}"));
        if self.candidate.is_none() {
            self.later(Trouble::Passing);
        }
    }

    pub(super) fn heard(&mut self, word: live_down::Message) -> Result<(), Fault> {
        match word {
            live_down::Message::Ack(ack) => self.server_time(ack.server_time_ms),
            live_down::Message::Bundle(bundle) => self.trust(&bundle),
            live_down::Message::Standing(standing) => self.standing = Some(standing),
            live_down::Message::Order(order) => self.obey(order),
            live_down::Message::Welcome(_)
            | live_down::Message::Recovery(_)
            | live_down::Message::EndpointProfile(_) => {}
        }
        Ok(())
    }

    /// How far this clock is ahead.
    fn server_time(&mut self, millis: i64) {
        let here = i64::try_from(clock::now().millis()).unwrap_or(i64::MAX);
        if millis > 0 {
            self.figures.clock_offset_ms = Some(here.saturating_sub(millis));
        }
    }

    /// The same identity with another bundle, as a generation of its own.
    fn trust(&mut self, bundle: &Bundle) {
        if bundle.version == self.identity.bundle_version() {
            return;
        }
        match self.with_bundle(bundle) {
            Ok(identity) => {
                self.identity = identity;
                tracing::info!(version = bundle.version, "trust bundle updated");
            }
            Err(reason) => {
                self.say("bundle_not_kept", &format!("the new trust bundle is not kept: {reason}"))
            }
        }
    }

    fn with_bundle(&self, bundle: &Bundle) -> Result<Identity, String> {
        let certificates = issued::certificates("bundle", &bundle.pem).map_err(|fault| fault.message)?;
        self.may_follow(bundle.version, &certificates)?;
        let mut identity = Identity { bundle: certificates, ..self.identity.clone() };
        let lost =
            Meta { renew_at: String::new(), profile: String::new(), bundle_version: 0, servers: Vec::new() };
        let meta = identity.meta.take().unwrap_or(lost);
        identity.meta = Some(Meta { bundle_version: bundle.version, ..meta });
        // What cannot be used must not replace what can.
        self.agent(&identity).map_err(|error| error.to_string())?;
        let generations = Generations::under(self.dir.path());
        let spare = self.candidate.as_ref().map(|candidate| candidate.number);
        let number = self.files.write(&identity, &generations, spare).map_err(|error| error.to_string())?;
        generations.switch(number, spare).map_err(|error| error.to_string())?;
        Ok(identity)
    }

    /// Whether a bundle may take the place of the one in use: only what is trusted now says what is trusted next.
    pub(super) fn may_follow(&self, version: u64, bundle: &[CertificateDer<'_>]) -> Result<(), String> {
        let now = self.identity.bundle_version();
        if version < now {
            return Err(format!("version {version} is older than {now}, which is in use"));
        }
        check_succession(&self.identity.bundle, bundle, clock::now()).map_err(|error| error.to_string())
    }

    fn obey(&mut self, order: Order) {
        if let Some(done) = self.answered.iter().find(|done| done.order_id == order.order_id) {
            self.answers.push(done.clone());
            return;
        }
        match order.order {
            Some(order::Order::RenewNow(_)) => {
                tracing::info!(order_id = order.order_id, "told to renew");
                if !self.orders.contains(&order.order_id) {
                    self.orders.push(order.order_id);
                }
                self.renew_due = self.renew_due.min(clock::now());
            }
            None => self.answers.push(OrderDone {
                order_id: order.order_id,
                ok: false,
                detail: "this agent does not know the order".to_owned(),
            }),
        }
    }

    /// A renewed certificate was not welcomed.
    fn not_proven(&mut self, error: &Error) -> Result<(), Fault> {
        let trouble = trouble(error);
        self.say_error(error.code(), "the renewed certificate is not in use yet", error);
        if host::gives_up_candidate(trouble) {
            self.drop_candidate(error.code());
            self.open_at = Instant::now();
        } else {
            self.later(trouble);
            self.open_at += Self::asked_to_wait(error);
        }
        Ok(())
    }
}
