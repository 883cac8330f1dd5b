//! The daemon: its parts, and the loop that drives them. What follows from what it learns is decided by
//! [`lifecycle::host::HostMachine`]; here it is done. Another part is another field here, another branch of the loop, and its
//! lines of evidence and status.

mod cascade;
mod events;

use std::io;
use std::time::Duration;

use api::agent::Evidence;
use client::{Error, ServerUrl};
use lifecycle::host::{Class, FailureKind, HostAction, HostMachine, Input};
use lifecycle::names::Span;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::call::CallTarget;
use super::configuration::HostConfiguration;
use super::core::{AgentCore, Candidate, life};
use super::host_sessions::HostSessions;
use super::identity_cascade::SpireIdentity;
use super::metrics_listener::{self, MetricsPage};
use super::overlay::OverlayPart;
use super::paced_offers::{self, PacedOffers};
use super::recovery::IdentityRecovery;
use super::renewal::CertificateRenewal;
use super::reporting::{Outlets, Reporting};
use super::session::LiveSession;
use super::signals::Stop;
use super::socket;
use super::start::StartIdentity;
use super::upkeep::HostUpkeep;
use crate::code::AgentCode;
use crate::config::AgentConfig;
use crate::diagnostics::Ring;
use crate::failed_call::failure_kind;
use crate::fault::Fault;
use crate::service_manager::ServiceManager;
use crate::space::Ballast;
use crate::spire::Svids;
use crate::status::{AgentState, Disk, ISSUER_UNKNOWN, Status};
use crate::store::dir::Dir;
use crate::store::stored_trust::StoredTrust;
use crate::store::{grace, last_attempts, recovery_attempt, revoked, tolerance, unconfirmed};
use crate::{chance, clock};

pub struct Daemon {
    core: AgentCore,
    session: LiveSession,
    renewal: CertificateRenewal,
    recovery: IdentityRecovery,
    upkeep: HostUpkeep,
    configuration: HostConfiguration,
    sessions: HostSessions,
    overlay: OverlayPart,
    spire: SpireIdentity,
    offers: PacedOffers,
    /// A renewal was ordered, and waits for its time.
    renewal_ordered: bool,
}

impl Daemon {
    pub async fn new(
        dir: Dir,
        config: AgentConfig,
        found: StartIdentity,
        upkeep: HostUpkeep,
        (manager, svids): (ServiceManager, Option<Svids>),
    ) -> Result<Self, Fault> {
        let no_chance = |error: io::Error| {
            Fault::host(AgentCode::RuntimeFailed, error.to_string(), "run the command again")
        };
        let mut status = Status::of(dir.path(), &found.identity, clock::now());
        status.is_kept_by(&dir);
        let (status, reader) = watch::channel(status);
        let sessions = HostSessions::new();
        if let Err(error) = socket::serve(dir.socket(), reader, Some(sessions.clone())) {
            tracing::warn!(%error, "{} cannot be served; `status` shows only what is on disk", dir.socket().display());
        }
        let page = MetricsPage::default();
        if let Some(address) = config.daemon.metrics_listen {
            metrics_listener::listen(address, page.clone()).await?;
        }
        let ring = Ring::open(&config.upkeep.diagnostic_path, config.upkeep.diagnostic_bytes);
        let (prefix, textfile) = (config.daemon.metrics_prefix, config.daemon.metrics_textfile);
        let outlets = Outlets { ring, status, page, prefix, textfile, manager };
        // A recovery that a restart interrupted goes on under its id.
        let begun = recovery_attempt::read(dir.path()).map(|attempt| attempt.correlation_id);
        let correlation_id = begun.map_or_else(chance::hex_128, Ok).map_err(no_chance)?;
        // Those that came with a certificate that waits to be proven are newer.
        let newest = found.candidate.as_ref().map_or(&found.identity, |candidate| &candidate.identity);
        let announced = newest.meta.as_ref().map(|meta| meta.servers.clone()).unwrap_or_default();
        // What is in memory ends with the process.
        let kept_in = dir.memory().is_none().then(|| dir.path().to_owned());
        let mut core = AgentCore {
            reporting: Reporting::new(outlets, last_attempts::read(dir.path())),
            // Memory has no end that could be kept free.
            ballast: Ballast::new(dir.path(), dir.memory().map_or(config.upkeep.ballast_bytes, |_| 0)),
            dir,
            files: config.files,
            exit_on_revoked: config.daemon.exit_on_revoked,
            machine: HostMachine::new(life(&found.identity), correlation_id),
            identity: found.identity,
            candidate: None,
            stored_trust: StoredTrust::default(),
            renewals: paced_offers::pace(Instant::now()),
            instance: chance::hex_128().map_err(no_chance)?,
            started: Instant::now(),
        };
        let mut daemon = Self {
            session: LiveSession::new(found.servers, announced),
            renewal: CertificateRenewal::default(),
            recovery: IdentityRecovery::new(config.recovery, config.sysfs_root),
            upkeep,
            configuration: HostConfiguration::new(&mut core, config.daemon.on_config),
            core,
            sessions,
            overlay: OverlayPart::new(config.overlay, kept_in),
            spire: SpireIdentity::new(svids),
            offers: PacedOffers::new(Instant::now()),
            renewal_ordered: false,
        };
        daemon.begin(found.candidate);
        Ok(daemon)
    }

    /// What an earlier process left on disk.
    fn begin(&mut self, candidate: Option<Candidate>) {
        let Self { core, upkeep, spire, overlay, .. } = self;
        spire.take_offer(core);
        if let Some(span) = tolerance::read(core.path()) {
            core.learn(Input::Tolerance(span));
        }
        if let Some(span) = grace::read(core.path()) {
            core.learn(Input::Grace(span));
        }
        if revoked::is_set(core.path(), &core.identity.facts.serial) {
            core.learn(Input::Revoked);
        }
        if let Some(candidate) = candidate {
            core.prove(candidate);
        }
        upkeep.link_files(core);
        overlay.resume(core);
    }

    pub async fn run(mut self, mut stop: Stop) -> Result<(), Fault> {
        self.core.reporting.begun();
        let ended = loop {
            self.tick();
            for action in self.core.machine.due(self.core.now()) {
                self.perform(action);
            }
            self.publish();
            let wake = self.wake();
            let learned = tokio::select! {
                () = stop.asked() => break Ok(()),
                event = self.session.next() => self.session_event(event),
                renewed = self.renewal.ended() => self.renewed(renewed),
                recovered = self.recovery.ended() => self.recovered(recovered),
                event = self.spire.next() => self.cascade_event(event),
                () = self.sessions.changed() => Ok(()),
                event = self.overlay.next(&mut self.core) => {
                    self.overlay_event(&event);
                    Ok(())
                }
                () = sleep_until(wake) => Ok(()),
            };
            if let Err(fault) = learned {
                break Err(fault);
            }
            // A server that never stops talking must not keep signals and `status` waiting.
            tokio::task::yield_now().await;
        };
        self.core.reporting.stopping();
        if self.core.machine.is_revoked() {
            // They end with the identity, also where this process does.
            self.sessions.identity_gone(true);
            self.sessions.ended().await;
        }
        tracing::info!("stopping");
        self.overlay.stopping(&self.core).await;
        drop(self.overlay);
        _ = std::fs::remove_file(self.core.dir.socket());
        ended
    }

    fn tick(&mut self) {
        self.core.reporting.tick();
        self.sessions.tick();
        self.sessions.identity_gone(self.core.machine.is_revoked());
        self.overlay.identity_gone(self.core.machine.is_revoked());
        if let Err(what) = self.session.tick() {
            self.disconnected(FailureKind::Transient.into(), &what);
        }
        if !self.session.is_connected() {
            self.offers.forget();
        }
        self.take_up_offers();
        self.ask_for_own();
        if self.renewal_ordered && self.core.renewals.wait(Instant::now()).is_zero() {
            self.renewal_ordered = false;
            self.core.learn(Input::RenewalOrdered);
        }
        if self.upkeep.look(&mut self.core) {
            let servers = self.servers();
            self.recovery.check_ready(&mut self.core, &servers);
            self.recovery.request_token(&mut self.core, self.session.is_connected());
            self.configuration.save(&mut self.core);
        }
        let servers = self.servers();
        self.overlay.tick(&mut self.core, &servers);
        for ended in self.overlay.ended_orders() {
            self.session.orders.ended(ended.order_id, ended.result);
        }
        self.step_cascade();
        let evidence = self.evidence();
        let node_id = self.core.identity.node_id().unwrap_or_default();
        let claim = self.session.is_connected().then(|| self.overlay.due_claim(node_id)).flatten();
        if let Err(error) = self.session.claim(claim) {
            return self.disconnected(failure_kind(&error).into(), &error.to_string());
        }
        if let Err(error) = self.session.send(&evidence, &mut self.recovery.acknowledgement, &self.sessions) {
            self.disconnected(failure_kind(&error).into(), &error.to_string());
        }
    }

    fn wake(&self) -> Instant {
        let now = Instant::now();
        let machine = self.core.started + pause(self.core.machine.wake(self.core.now()));
        let parts = [
            self.session.wake(),
            self.core.reporting.wake(),
            Some(self.upkeep.wake()),
            self.sessions.wake(),
            self.overlay.wake(self.session.is_connected()),
            self.offers.wake(),
            self.spire.wake(&self.core),
            self.renewal_ordered.then(|| now + self.core.renewals.wait(now)),
        ];
        parts.into_iter().flatten().fold(machine, Instant::min)
    }

    fn perform(&mut self, action: HostAction) {
        match action {
            HostAction::Open => {
                // What is to be proven or confirmed is the host's own certificate; otherwise an SVID comes first.
                let own = self.core.candidate.is_some()
                    || unconfirmed::is_set(self.core.path(), &self.core.identity.facts.serial);
                if own || !self.spire.takes_over(&self.core) {
                    self.open_own();
                }
            }
            HostAction::Renew => {
                // It fulfils every order that has come.
                self.renewal_ordered = false;
                let target = self.target();
                self.session.orders.renewal_begins();
                if let Err(reason) = self.renewal.begin(&mut self.core, target) {
                    self.session.orders.renewal_failed(reason.as_str());
                }
            }
            HostAction::Recover(class) => {
                let servers = self.servers();
                self.session.orders.renewal_begins();
                self.recovery.begin(&mut self.core, class, &servers);
            }
        }
    }

    pub(super) fn servers(&self) -> Vec<ServerUrl> {
        self.session.servers(self.upkeep.api_urls())
    }

    /// The control plane, as the identity in use.
    fn target(&self) -> Result<CallTarget, Error> {
        let correlation_id = self.core.machine.correlation_id();
        // With a certificate that is refused nothing can be renewed; the node that the SVID stands for gets another.
        match self.spire.instead_of_own(&self.core) {
            Some(svid) => {
                CallTarget::by(self.servers(), &self.core.identity, &svid.credentials(), correlation_id)
            }
            None => CallTarget::new(self.servers(), &self.core.identity, correlation_id),
        }
    }

    /// What this host says of itself: each part its own.
    fn evidence(&mut self) -> Evidence {
        let stored_trust = self.core.stored_trust().to_vec();
        let core = &self.core;
        let condition = core.machine.condition();
        let shown = |text: &str| if condition.is_some() { text.to_owned() } else { String::new() };
        let mut evidence = Evidence {
            cert_serial: core.identity.facts.serial.to_string(),
            cert_not_after: core.identity.facts.not_after.to_string(),
            bundle_version: core.identity.bundle_version(),
            stored_trust,
            clock_offset_ms: core.machine.offset().unwrap_or_default(),
            disk_free_bytes: Disk::of(core.path()).available_bytes.unwrap_or_default(),
            class: condition.map(|condition| condition.class.to_string()).unwrap_or_default(),
            detail: shown(&core.reporting.detail),
            correlation_id: shown(core.machine.correlation_id()),
            ..Evidence::default()
        };
        core.reporting.evidence(&mut evidence);
        self.recovery.evidence(&mut evidence);
        self.upkeep.evidence(&mut evidence);
        self.overlay.evidence(&mut evidence);
        evidence
    }

    /// The same for `status`. The class comes last among the reasons.
    fn status(&self) -> Status {
        let core = &self.core;
        let mut status = Status::of(core.path(), &core.identity, clock::now());
        status.is_kept_by(&core.dir);
        let class = core.machine.condition().map(|condition| condition.class);
        if class == Some(Class::ClockSkew) {
            status.forget_dates();
        }
        if core.machine.is_revoked() {
            status.state = AgentState::Revoked;
            status.reason("revoked", true);
        }
        status.clock_offset_ms = core.machine.offset();
        if core.machine.is_issuer_unknown() {
            let now = core.now();
            status.reason(ISSUER_UNKNOWN, true);
            let left = core.machine.recovers_in(now).filter(|left| left.millis() > 0);
            status.recovers_at = left.map(|left| now.wall.plus(left).whole_second().to_string());
        }
        self.spire.status(&mut status);
        self.session.status(core, self.spire.is_switching(), &mut status);
        self.recovery.status(&mut status);
        self.upkeep.status(&mut status);
        self.configuration.status(self.session.is_connected(), &mut status);
        self.sessions.status(&mut status);
        self.overlay.status(&mut status);
        core.reporting.status(&mut status);
        status.reason(class.map_or("", Class::as_str), class.is_some());
        status.failing = core
            .reporting
            .failing
            .as_ref()
            .filter(|(of, _)| Some(*of) == class)
            .map(|(_, told)| told.clone());
        status.ready = status.reasons.is_empty();
        status
    }

    fn publish(&mut self) {
        let status = self.status();
        let metrics = &mut self.core.reporting.metrics;
        metrics.connected = self.session.is_connected();
        (metrics.sessions_open, metrics.sessions_refused) = self.sessions.counts();
        metrics.overlay = self.overlay.metrics();
        metrics.clock_offset_ms = self.core.machine.offset();
        metrics.cert_not_after_secs = self.core.identity.facts.not_after.secs();
        self.core.reporting.publish(status);
    }
}

fn pause(span: Span) -> Duration {
    Duration::from_millis(span.millis())
}
