//! What comes from the control plane on the standing connection, and the connection's own coming and going.

use api::agent::{Bundle, Order, OrderDone, live_down, order};
use client::Error;
use client::unreachable::Unreachable;
use lifecycle::host::{Class, Failure, Input, Then, Trouble};
use lifecycle::names::{Span, Timestamp};
use pki::succession::check_succession;
use rustls_pki_types::CertificateDer;

use super::calls::Opened;
use super::daemon::{Daemon, Opening};
use super::live_channel::Channel;
use super::start;
use crate::clock;
use crate::code::REVOKED;
use crate::failed_call::{Failed, ahead_of};
use crate::fault::{Exit, Fault};
use crate::issued;
use crate::service_manager;
use crate::store::generation::Generations;
use crate::store::identity::{Identity, Meta};
use crate::store::{revoked, tolerance, unconfirmed};

/// Addresses beyond these are not worth a try.
const SERVERS: usize = 16;

impl Daemon {
    pub(super) fn opened(&mut self, opened: Result<Box<Opened>, Failed>) -> Result<(), Fault> {
        let as_candidate = matches!(self.opening.take(), Some(Opening::AsCandidate));
        match opened {
            Ok(opened) => {
                if !as_candidate || self.put_to_use() {
                    self.connected(*opened);
                }
                Ok(())
            }
            Err(failed) if as_candidate => {
                let then = self.learn(Input::Opened(Err(failed.failure())));
                self.trouble("the new certificate is not in use yet", &failed);
                if then == Then::DropCandidate {
                    self.drop_candidate(failed.error.code(), failed.trouble);
                }
                Ok(())
            }
            Err(failed) => {
                let failed = self.of_an_ended_certificate(failed);
                let then = self.learn(Input::Opened(Err(failed.failure())));
                // Said once, not at every check.
                if failed.trouble == Trouble::Revoked {
                    return self.now_revoked(&failed.error);
                }
                self.trouble("not connected", &failed);
                self.follow(then);
                Ok(())
            }
        }
    }

    /// Some drop the connection without a word where the certificate has ended.
    fn of_an_ended_certificate(&self, failed: Failed) -> Failed {
        let closed = matches!(failed.error, Error::Unreachable { cause: Unreachable::Closed, .. });
        let expired = self.identity.is_expired(clock::now());
        if closed && expired { Failed { trouble: Trouble::Expired, ..failed } } else { failed }
    }

    fn connected(&mut self, opened: Opened) {
        let live = opened.live;
        if unconfirmed::is_set(self.dir.path(), &self.identity.facts.serial)
            && let Err(error) = unconfirmed::clear(self.dir.path())
        {
            self.not_written("the marker `unconfirmed` could not be removed", &error);
        }
        if let Err(error) = revoked::clear(self.dir.path()) {
            self.not_written("the marker `revoked` could not be removed", &error);
        }
        if self.notices.note("connected", clock::now()).is_some() {
            tracing::info!(server = %live.server(), "connected");
        }
        let welcome = live.welcome().clone();
        self.allowed(welcome.clock_tolerance_ms);
        self.server_time(welcome.server_time_ms);
        self.standing = welcome.standing;
        self.told = welcome.servers.into_iter().take(SERVERS).collect();
        self.figures.reconnects += u64::from(self.ready_told && self.channel.is_none());
        if let Some(old) = self.channel.replace(Channel::new(live)) {
            old.drain();
        }
        self.learn(Input::Opened(Ok(())));
        if let Some(confirmed) = opened.confirmed {
            self.granted(confirmed.recovery.as_ref());
            if let Some(profile) = &confirmed.endpoint_profile {
                self.adopt_profile(profile);
            }
        }
        self.look_for_recovery();
        if !self.ready_told {
            self.ready_told = true;
            self.manager.tell(service_manager::READY);
        }
    }

    pub(super) fn lost(&mut self, error: Error) -> Result<(), Fault> {
        let failed = Failed::from(error);
        if failed.trouble == Trouble::Revoked {
            self.channel = None;
            self.learn(Input::Lost(failed.failure()));
            return self.now_revoked(&failed.error);
        }
        self.gone(failed.failure(), &failed.error.to_string());
        Ok(())
    }

    /// The connection is no more.
    pub(super) fn gone(&mut self, failure: Failure, what: &str) {
        self.channel = None;
        self.turn = self.turn.wrapping_add(1);
        let then = self.learn(Input::Lost(failure));
        self.trouble_of(self.class(failure.trouble), &format!("connection lost: {what}"));
        self.follow(then);
    }

    /// The control plane has turned this host away for good, as far as it knows.
    pub(super) fn now_revoked(&mut self, error: &Error) -> Result<(), Fault> {
        // For `status`, `enroll` and the next start, when this daemon is no more.
        let known = revoked::is_set(self.dir.path(), &self.identity.facts.serial);
        if let Err(error) = revoked::set(self.dir.path(), &self.identity.facts.serial) {
            self.not_written("the marker `revoked` could not be written", &error);
        }
        if !known || self.detail.is_empty() {
            let (class, code) = (Class::IdentityRevokedOrFenced, error.code());
            let what = format!("this host's identity is revoked: {error}");
            tracing::error!(class = class.as_str(), code, "{what}; remedy: {REVOKED}");
            self.write_down(class, &what, REVOKED);
        }
        if self.config.daemon.exit_on_revoked {
            return Err(Fault::new(Exit::Refused, error.code().to_owned(), error.to_string(), REVOKED));
        }
        Ok(())
    }

    /// What else follows from what was learned: the certificate in use has had its day, and if a new one lies here,
    /// that is the one to use.
    pub(super) fn follow(&mut self, then: Then) {
        if then != Then::FindCandidate || self.candidate.is_some() {
            return;
        }
        match start::candidate(self.dir.path(), &self.identity) {
            Ok(Some(found)) => self.prove(found),
            Ok(None) => {}
            Err(fault) => self.say(&fault.code, &fault.message),
        }
    }

    pub(super) fn heard(&mut self, word: live_down::Message) -> Result<(), Fault> {
        match word {
            live_down::Message::Ack(ack) => {
                self.server_time(ack.server_time_ms);
                self.figures.polled(clock::now());
            }
            live_down::Message::Bundle(bundle) => self.trust(&bundle),
            live_down::Message::Standing(standing) => self.standing = Some(standing),
            live_down::Message::Order(order) => self.obey(order),
            live_down::Message::Recovery(grant) => self.granted(Some(&grant)),
            live_down::Message::EndpointProfile(profile) => self.adopt_profile(&profile),
            live_down::Message::Welcome(_) => {}
        }
        Ok(())
    }

    /// How far this clock is ahead.
    fn server_time(&mut self, millis: i64) {
        let Some(there) = u64::try_from(millis).ok().filter(|millis| *millis > 0) else { return };
        let ahead = ahead_of(Timestamp::from_millis(there));
        self.learn(Input::Clock(ahead));
        if self.host.is_skewed() {
            let failed = Failed::skewed(ahead);
            self.trouble_of(Class::ClockSkew, &failed.error.to_string());
        }
    }

    /// How far it may be.
    fn allowed(&mut self, millis: u64) {
        if millis == 0 {
            return;
        }
        self.learn(Input::Tolerance(Span::from_millis(millis)));
        if let Err(error) = tolerance::keep(self.dir.path(), Span::from_millis(millis)) {
            self.not_written("the clock tolerance could not be stored", &error);
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
        self.keep_bundle(bundle.version, certificates)
    }

    /// The same identity with other certificates to trust, in use when this returns.
    pub(super) fn keep_bundle(
        &self,
        version: u64,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Result<Identity, String> {
        let mut identity = Identity { bundle: certificates, ..self.identity.clone() };
        let lost =
            Meta { renew_at: String::new(), profile: String::new(), bundle_version: 0, servers: Vec::new() };
        let meta = identity.meta.take().unwrap_or(lost);
        identity.meta = Some(Meta { bundle_version: version, ..meta });
        // What cannot be used must not replace what can.
        self.line(&identity).map_err(|error| error.to_string())?;
        let generations = Generations::under(self.dir.path());
        let spare = self.candidate.as_ref().map(|candidate| candidate.number);
        let write = || {
            let number = self.config.files.write(&identity, &generations, spare)?;
            generations.switch(number, spare)
        };
        self.care.ballast.rescue(write).map_err(|error| error.to_string())?;
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
                tracing::info!(order_id = order.order_id, "renewal ordered by the control plane");
                if !self.orders.contains(&order.order_id) {
                    self.orders.push(order.order_id);
                }
                self.learn(Input::Ordered);
                if self.host.is_skewed() {
                    self.answer_orders(false, Class::ClockSkew.as_str());
                }
            }
            None => self.answers.push(OrderDone {
                order_id: order.order_id,
                ok: false,
                detail: "this agent does not support the order".to_owned(),
            }),
        }
    }
}
