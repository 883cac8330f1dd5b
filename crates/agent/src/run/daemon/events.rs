//! What the daemon does with what a part learned: the part keeps its own, and what concerns others goes to them.

use api::agent::{Bundle, Order, Welcome, live_down, order};
use api::code;
use client::Error;
use lifecycle::host::{CallFailure, CandidateOrigin, Class, FailureKind, FollowUp, Input};
use lifecycle::names::{Span, Timestamp};
use tokio::time::Instant;

use super::Daemon;
use crate::code::AgentCode;
use crate::failed_call::{FailedCall, ahead_of};
use crate::fault::Fault;
use crate::run::call::CallPanicked;
use crate::run::overlay::OverlayEvent;
use crate::run::recovery::{self, RecoverResult};
use crate::run::renewal::RenewResult;
use crate::run::session::{OpenResult, Opened, SessionEvent, closed_when_expired};
use crate::store::identity::HostIdentity;
use crate::store::{grace, revoked, tolerance, unconfirmed};
use crate::trust_offer::TrustOffer;
use crate::{chance, clock};

/// The state of a node that is no more by its operator's wish.
const DECOMMISSIONED: &str = "decommissioned";

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
        self.renewal_ordered |= self.session.orders.renewal_done();
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

    /// With the host's own certificate.
    fn connected(&mut self, opened: Opened) {
        let core = &mut self.core;
        if unconfirmed::is_set(core.path(), &core.identity.facts.serial)
            && let Err(error) = unconfirmed::clear(core.path())
        {
            core.not_written("the marker `unconfirmed` could not be removed", &error);
        }
        self.spire.not_in_use();
        self.welcomed(opened);
    }

    /// The connection is the one in use from here on.
    pub(super) fn welcomed(&mut self, opened: Opened) {
        let core = &mut self.core;
        if let Err(error) = revoked::clear(core.path()) {
            core.not_written("the marker `revoked` could not be removed", &error);
        }
        // Each replica by itself: a host that has moved says where it is.
        let server = opened.live().server().to_string();
        if core.reporting.is_new(&format!("connected {server}")) {
            tracing::info!(server, "connected");
        }
        let again = core.reporting.has_connected() && !self.session.is_connected();
        core.reporting.metrics.reconnects += u64::from(again);
        let welcome = opened.live().welcome();
        let welcome = welcome.clone();
        let confirmed = opened.confirmed.clone();
        self.terms(&welcome);
        self.overlay.reconnected();
        self.overlay.welcomed(&mut self.core, &welcome);
        self.session.connect(opened);
        self.offers.forget();
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
        self.spire.not_in_use();
        if failed.kind == FailureKind::Revoked {
            self.session.disconnect();
            self.core.learn(Input::Disconnected(failed.failure()));
            return self.core.revoked(&failed.error);
        }
        self.disconnected(failed.failure(), &failed.error.to_string());
        Ok(())
    }

    pub(super) fn disconnected(&mut self, failure: CallFailure, what: &str) {
        self.spire.not_in_use();
        self.session.lost(chance::number());
        let follow_up = self.core.learn(Input::Disconnected(failure));
        let class = self.core.class(failure.kind);
        self.core.failed(class, &format!("connection lost: {what}"));
        if let Some(pause) = self.core.machine.opens_in(self.core.now()) {
            tracing::debug!(pause_ms = pause.millis(), "connects again after a pause");
        }
        self.core.follow(follow_up);
    }

    pub(super) fn overlay_event(&mut self, event: &OverlayEvent) {
        match event {
            OverlayEvent::Nothing => {}
            OverlayEvent::Moved if self.session.is_connected() => {
                let what =
                    "this host has another address, so the connection from the one before leads nowhere";
                self.disconnected(FailureKind::Transient.into(), what);
            }
            OverlayEvent::Moved => {}
        }
    }

    fn received(&mut self, message: live_down::Message) {
        match message {
            live_down::Message::Ack(ack) => {
                self.server_time(ack.server_time_ms);
                self.core.reporting.metrics.polled(clock::now());
            }
            live_down::Message::Bundle(bundle) => self.offers.bundle.offered(bundle),
            live_down::Message::Standing(standing) => {
                if standing.state == DECOMMISSIONED {
                    self.overlay.decommissioned(&mut self.core);
                }
                self.spire.own_certificate(&standing.certificate_refused);
                self.session.standing(standing);
            }
            live_down::Message::Order(order) => self.ordered(order),
            live_down::Message::Recovery(grant) => self.offers.grant.offered(grant),
            live_down::Message::EndpointProfile(profile) => self.offers.profile.offered(profile),
            live_down::Message::Config(config) => self.offers.config.offered(config),
            live_down::Message::SessionsRecorded(recorded) => self.sessions.recorded(recorded.sequence),
            live_down::Message::OverlayAnswer(answer) => self.overlay.answered(&mut self.core, &answer),
            live_down::Message::OverlayPeers(peers) => self.overlay.told(&mut self.core, peers),
            live_down::Message::Welcome(welcome) => {
                self.overlay.welcomed(&mut self.core, &welcome);
                if let Some(standing) = &welcome.standing {
                    self.spire.own_certificate(&standing.certificate_refused);
                }
                self.session.welcomed_anew(&welcome);
                self.server_time(welcome.server_time_ms);
                self.offers.welcome.offered(welcome);
            }
        }
    }

    /// What was offered on this connection and is due.
    pub(super) fn take_up_offers(&mut self) {
        let now = Instant::now();
        if let Some(bundle) = self.offers.bundle.due(now) {
            self.trust_bundle(&bundle);
        }
        if let Some(grant) = self.offers.grant.due(now) {
            let servers = self.servers();
            self.recovery.granted(&mut self.core, Some(&grant), &servers);
        }
        if let Some(profile) = self.offers.profile.due(now) {
            self.upkeep.adopt_profile(&mut self.core, &profile);
        }
        if let Some(config) = self.offers.config.due(now) {
            self.configuration.adopt(&mut self.core, &config);
        }
        if let Some(welcome) = self.offers.welcome.due(now) {
            self.stored_terms(&welcome);
        }
        if self.offers.has_passed_over() && self.core.reporting.is_new("offers passed over") {
            for (kind, count) in self.offers.take_passed_over() {
                tracing::warn!(
                    kind,
                    count,
                    "the control plane sent more than is taken up; the newest counts"
                );
            }
        }
    }

    /// What a welcome holds, and the time.
    fn terms(&mut self, welcome: &Welcome) {
        self.stored_terms(welcome);
        self.server_time(welcome.server_time_ms);
    }

    /// What of a welcome is stored for the next start.
    fn stored_terms(&mut self, welcome: &Welcome) {
        self.core.keep_servers(&welcome.servers);
        self.clock_tolerance(welcome.clock_tolerance_ms);
        self.grace(welcome.grace_ms);
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
        let span = Span::from_millis(millis).min(grace::MOST);
        self.core.learn(Input::Grace(span));
        if let Err(error) = grace::keep(self.core.path(), span) {
            self.core.not_written("the grace period could not be stored", &error);
        }
    }

    /// The same identity with another bundle, other lists or other issuers of nodes: all of them as one generation.
    pub(super) fn trust_bundle(&mut self, bundle: &Bundle) {
        let (core, offer) = (&mut self.core, TrustOffer::from(bundle));
        let mut identity = core.identity.clone();
        // Also of the version that is here: it says nothing of the contents.
        match core.succeeding(&offer) {
            Ok(succeeding) => {
                identity.bundle = succeeding;
                identity.meta_mut().bundle_version = offer.bundle_version;
                core.take_beside_bundle(&offer, &mut identity);
            }
            Err(reason) => {
                core.trust_refused(&format!("the new trust bundle is not kept: {reason}"));
                core.take_lists(&offer, &mut identity);
            }
        }
        let is_stored = core.stored_trust() == core.identity.trust_digest();
        let roots = |of: &HostIdentity| (of.bundle_version(), of.bundle.clone());
        let taken = roots(&identity) != roots(&core.identity);
        if is_stored && identity.trusts_like(&core.identity) {
            // The numbers alone are not worth a generation on the disk: after a restart the same is offered again.
            core.identity.meta = identity.meta;
            if taken {
                core.trust_accepted();
            }
            return;
        }
        match core.keep_trust(identity) {
            Ok(()) => {
                if taken {
                    core.trust_accepted();
                }
                let identity = &core.identity;
                let (roots, version) = (identity.bundle.len(), identity.bundle_version());
                let node_issuers_version = identity.node_issuers_version();
                tracing::info!(version, roots, node_issuers_version, "trust bundle updated");
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
                let order_id = order.order_id.clone();
                if orders.renewal(order.order_id) && self.core.reporting.is_new("renewal ordered") {
                    tracing::info!(order_id, "renewal ordered by the control plane");
                }
                self.renewal_ordered = true;
                if self.core.machine.is_skewed() {
                    orders.renewal_failed(Class::ClockSkew.as_str());
                }
            }
            Some(order::Order::RekeyOverlay(_)) => self.overlay.rekey(&mut self.core, order.order_id),
            None => {
                orders.refuse(order.order_id, "this agent does not support the order");
            }
        }
    }

    pub(super) fn renewed(&mut self, renewed: Result<RenewResult, CallPanicked>) -> Result<(), Fault> {
        let failed = match renewed {
            Ok(Ok(answer)) => {
                let servers = self.servers();
                self.recovery.granted(&mut self.core, answer.recovery.as_ref(), &servers);
                match self.renewal.keep(&mut self.core, &answer) {
                    Ok(()) => self.core.renewals.count(Instant::now()),
                    Err(reason) => self.session.orders.renewal_failed(reason.as_str()),
                }
                return Ok(());
            }
            Ok(Err(failed)) => failed,
            Err(CallPanicked) => return self.panicked(Input::Renewed(Err(FailureKind::Transient.into()))),
        };
        if failed.code().is(code::SVID_RENEWAL_OFF) {
            self.session.orders.renewal_failed(code::SVID_RENEWAL_OFF.word);
            self.renewal.not_allowed(&mut self.core);
            return Ok(());
        }
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
