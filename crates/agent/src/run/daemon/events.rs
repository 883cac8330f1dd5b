//! What the daemon does with what a part learned: the part keeps its own, and what concerns others goes to them.

use api::agent::{Bundle, Order, Welcome, live_down, order};
use client::Error;
use lifecycle::host::{CallFailure, CandidateOrigin, Class, FailureKind, FollowUp, Input};
use lifecycle::names::{Span, Timestamp};

use super::Daemon;
use crate::clock;
use crate::code::AgentCode;
use crate::failed_call::{FailedCall, ahead_of};
use crate::fault::Fault;
use crate::issued;
use crate::run::call::CallPanicked;
use crate::run::recovery::{self, RecoverResult};
use crate::run::renewal::RenewResult;
use crate::run::session::{OpenResult, Opened, SessionEvent, closed_when_expired};
use crate::store::{grace, revoked, tolerance, unconfirmed};

impl Daemon {
    pub(super) fn session_event(&mut self, event: SessionEvent) -> Result<(), Fault> {
        match event {
            SessionEvent::Opened { result, proving } => self.opened(result, proving),
            SessionEvent::OpenPanicked => self.panicked(Input::Opened(Err(FailureKind::Transient.into()))),
            SessionEvent::Received(message) => {
                self.received(message);
                Ok(())
            }
            SessionEvent::Lost(error) => self.lost(error),
        }
    }

    /// A call that panicked is a call that failed.
    fn panicked(&mut self, failed: Input) -> Result<(), Fault> {
        self.core.learn(failed);
        self.core.reporting.log(AgentCode::Internal, "a call to the control plane ended unexpectedly");
        Ok(())
    }

    fn opened(&mut self, opened: OpenResult, proving: bool) -> Result<(), Fault> {
        match opened {
            Ok(opened) => {
                if !proving || self.adopt_candidate() {
                    self.connected(*opened);
                }
                Ok(())
            }
            Err(failed) if proving => {
                let follow_up = self.core.learn(Input::Opened(Err(failed.failure())));
                let servers = self.servers();
                self.core.call_failed("the new certificate is not in use yet", &failed, &servers);
                if follow_up == FollowUp::DropCandidate {
                    self.candidate_refused(&failed);
                }
                Ok(())
            }
            Err(failed) => {
                let failed = closed_when_expired(failed, self.core.is_expired());
                let follow_up = self.core.learn(Input::Opened(Err(failed.failure())));
                // Logged once, not at every check.
                if failed.kind == FailureKind::Revoked {
                    return self.core.revoked(&failed.error);
                }
                let servers = self.servers();
                self.core.call_failed("not connected", &failed, &servers);
                self.core.follow(follow_up);
                Ok(())
            }
        }
    }

    /// The certificate that was proven is in use from here on. False if it could not be switched to.
    fn adopt_candidate(&mut self) -> bool {
        let Ok(origin) = self.core.adopt_candidate() else { return false };
        match origin {
            Some(CandidateOrigin::Renewal) => self.renewal.done(&mut self.core),
            Some(CandidateOrigin::Recovery) => self.recovery.done(&mut self.core),
            None => return true,
        }
        self.upkeep.renewed(&mut self.core);
        if self.session.orders.renewal_done() {
            self.core.learn(Input::RenewalOrdered);
        }
        true
    }

    /// The certificate to be proven was refused; the one in use stays, and another is asked for later.
    fn candidate_refused(&mut self, failed: &FailedCall) {
        let code = failed.code();
        match self.core.discard_candidate() {
            Some(CandidateOrigin::Recovery) => self.recovery.refused(&mut self.core, &code, failed.kind),
            Some(CandidateOrigin::Renewal) | None => {
                self.renewal.refused(&mut self.core, &code);
                self.session.orders.renewal_failed(code.as_str());
            }
        }
        self.core.tidy();
    }

    fn connected(&mut self, opened: Opened) {
        let core = &mut self.core;
        if unconfirmed::is_set(core.path(), &core.identity.facts.serial)
            && let Err(error) = unconfirmed::clear(core.path())
        {
            core.not_written("the marker `unconfirmed` could not be removed", &error);
        }
        if let Err(error) = revoked::clear(core.path()) {
            core.not_written("the marker `revoked` could not be removed", &error);
        }
        if core.reporting.is_new("connected") {
            tracing::info!(server = %opened.live().server(), "connected");
        }
        let again = core.reporting.has_connected() && !self.session.is_connected();
        core.reporting.metrics.reconnects += u64::from(again);
        let welcome = opened.live().welcome();
        let welcome = welcome.clone();
        let confirmed = opened.confirmed.clone();
        self.terms(&welcome);
        self.session.connect(opened);
        self.core.learn(Input::Opened(Ok(())));
        if let Some(confirmed) = confirmed {
            let servers = self.servers();
            self.recovery.granted(&mut self.core, confirmed.recovery.as_ref(), &servers);
            if let Some(profile) = &confirmed.endpoint_profile {
                self.upkeep.adopt_profile(&mut self.core, profile);
            }
        }
        let servers = self.servers();
        self.recovery.check_ready(&mut self.core, &servers);
        self.core.reporting.connected();
    }

    fn lost(&mut self, error: Error) -> Result<(), Fault> {
        let failed = FailedCall::from(error);
        if failed.kind == FailureKind::Revoked {
            self.session.disconnect();
            self.core.learn(Input::Disconnected(failed.failure()));
            return self.core.revoked(&failed.error);
        }
        self.disconnected(failed.failure(), &failed.error.to_string());
        Ok(())
    }

    pub(super) fn disconnected(&mut self, failure: CallFailure, what: &str) {
        self.session.lost();
        let follow_up = self.core.learn(Input::Disconnected(failure));
        let class = self.core.class(failure.kind);
        self.core.failed(class, &format!("connection lost: {what}"));
        self.core.follow(follow_up);
    }

    fn received(&mut self, message: live_down::Message) {
        match message {
            live_down::Message::Ack(ack) => {
                self.server_time(ack.server_time_ms);
                self.core.reporting.metrics.polled(clock::now());
            }
            live_down::Message::Bundle(bundle) => self.trust_bundle(&bundle),
            live_down::Message::Standing(standing) => self.session.standing(standing),
            live_down::Message::Order(order) => self.ordered(order),
            live_down::Message::Recovery(grant) => {
                let servers = self.servers();
                self.recovery.granted(&mut self.core, Some(&grant), &servers);
            }
            live_down::Message::EndpointProfile(profile) => {
                self.upkeep.adopt_profile(&mut self.core, &profile);
            }
            live_down::Message::Config(config) => self.configuration.adopt(&mut self.core, &config),
            live_down::Message::SessionsRecorded(recorded) => self.sessions.recorded(recorded.sequence),
            live_down::Message::Welcome(welcome) => {
                self.session.welcomed_anew(&welcome);
                self.terms(&welcome);
            }
        }
    }

    /// The spans that a welcome holds, and the time.
    fn terms(&mut self, welcome: &Welcome) {
        self.clock_tolerance(welcome.clock_tolerance_ms);
        self.grace(welcome.grace_ms);
        self.server_time(welcome.server_time_ms);
    }

    /// How far this clock is ahead.
    fn server_time(&mut self, millis: i64) {
        let Some(there) = u64::try_from(millis).ok().filter(|millis| *millis > 0) else { return };
        let ahead = ahead_of(Timestamp::from_millis(there));
        self.core.learn(Input::Clock(ahead));
        if self.core.machine.is_skewed() {
            let failed = FailedCall::skewed(ahead);
            self.core.failed(Class::ClockSkew, &failed.error.to_string());
        }
    }

    /// How far it may be.
    fn clock_tolerance(&mut self, millis: u64) {
        if millis == 0 {
            return;
        }
        let span = Span::from_millis(millis).min(tolerance::MOST);
        self.core.learn(Input::Tolerance(span));
        if let Err(error) = tolerance::keep(self.core.path(), span) {
            self.core.not_written("the clock tolerance could not be stored", &error);
        }
    }

    /// How long this host may be silent.
    fn grace(&mut self, millis: u64) {
        if millis == 0 {
            return;
        }
        self.core.learn(Input::Grace(Span::from_millis(millis)));
        if let Err(error) = grace::keep(self.core.path(), Span::from_millis(millis)) {
            self.core.not_written("the grace period could not be stored", &error);
        }
    }

    /// The same identity with another bundle, as a generation of its own.
    fn trust_bundle(&mut self, bundle: &Bundle) {
        let core = &mut self.core;
        if bundle.version == core.identity.bundle_version() {
            return;
        }
        let certificates = issued::certificates("bundle", &bundle.pem).map_err(|fault| fault.message);
        let succeeding = match certificates.and_then(|found| core.succeeding(bundle.version, found)) {
            Ok(succeeding) => succeeding,
            Err(reason) => return core.trust_refused(&format!("the new trust bundle is not kept: {reason}")),
        };
        match core.keep_bundle(bundle.version, succeeding) {
            Ok(()) => {
                core.trust_accepted();
                tracing::info!(version = bundle.version, "trust bundle updated");
            }
            Err(reason) => {
                let what = format!("the new trust bundle is not kept: {reason}");
                core.reporting.log(AgentCode::BundleNotKept, &what);
            }
        }
    }

    fn ordered(&mut self, order: Order) {
        let orders = &mut self.session.orders;
        if orders.is_answered(&order.order_id) {
            return;
        }
        match order.order {
            Some(order::Order::RenewNow(_)) => {
                tracing::info!(order_id = order.order_id, "renewal ordered by the control plane");
                orders.renewal(order.order_id);
                self.core.learn(Input::RenewalOrdered);
                if self.core.machine.is_skewed() {
                    orders.renewal_failed(Class::ClockSkew.as_str());
                }
            }
            None => orders.refuse(order.order_id, "this agent does not support the order"),
        }
    }

    pub(super) fn renewed(&mut self, renewed: Result<RenewResult, CallPanicked>) -> Result<(), Fault> {
        let failed = match renewed {
            Ok(Ok(answer)) => {
                let servers = self.servers();
                self.recovery.granted(&mut self.core, answer.recovery.as_ref(), &servers);
                if let Err(reason) = self.renewal.keep(&mut self.core, &answer) {
                    self.session.orders.renewal_failed(reason.as_str());
                }
                return Ok(());
            }
            Ok(Err(failed)) => failed,
            Err(CallPanicked) => return self.panicked(Input::Renewed(Err(FailureKind::Transient.into()))),
        };
        let (reason, follow_up) = self.renewal.failed(&mut self.core, &failed);
        self.session.orders.renewal_failed(reason.as_str());
        if failed.kind == FailureKind::Revoked {
            self.session.disconnect();
            return self.core.revoked(&failed.error);
        }
        let servers = self.servers();
        self.core.call_failed("not renewed", &failed, &servers);
        self.core.follow(follow_up);
        Ok(())
    }

    pub(super) fn recovered(&mut self, recovered: Result<RecoverResult, CallPanicked>) -> Result<(), Fault> {
        let failed = match recovered {
            Ok(Ok(answer)) => {
                if self.recovery.keep(&mut self.core, &answer) {
                    self.session.announced(&answer.servers);
                }
                return Ok(());
            }
            Ok(Err(failed)) => failed,
            Err(CallPanicked) => return self.panicked(Input::Recovered(Err(FailureKind::Transient.into()))),
        };
        let servers = self.servers();
        let moved =
            recovery::not_needed(&failed).is_some_and(|answer| self.session.moved(&answer.servers, &servers));
        if self.recovery.refreshed(&mut self.core, &failed, moved) {
            return Ok(());
        }
        self.recovery.failed(&mut self.core, &failed);
        if failed.kind == FailureKind::Revoked {
            return self.core.revoked(&failed.error);
        }
        let servers = self.servers();
        self.core.call_failed("not recovered", &failed, &servers);
        Ok(())
    }
}
