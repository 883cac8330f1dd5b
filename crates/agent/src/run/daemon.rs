//! The daemon: what it knows, and the loop in which it learns more. What follows from that is decided by
//! [`lifecycle::host::Host`]; here it is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::agent::{Hello, OrderDone, Standing};
use client::{AgentApi, Error, ServerUrl};
use lifecycle::host::{self, Act, Chance, Host, Input, Life, Now, Origin, Then, Trouble};
use lifecycle::names::{Span, Timestamp};
use pki::agent_key::HostKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::calls::{self, Line, Outcome};
use super::hook::Hook;
use super::live_channel::Channel;
use super::metrics::Figures;
use super::metrics_listener::{self, Page};
use super::signals::Stop;
use super::socket;
use super::start::Found;
use super::upkeep::Care;
use crate::config::AgentConfig;
use crate::fault::Fault;
use crate::service_manager::{self, Manager};
use crate::status::Status;
use crate::store::dir::Dir;
use crate::store::generation::Number;
use crate::store::identity::Identity;
use crate::store::last_attempts::{self, Attempts};
use crate::store::{recovery, recovery_attempt, revoked, tolerance, unconfirmed};
use crate::{chance, clock};

/// A new certificate on disk that has yet to be proven.
#[derive(Debug)]
pub(super) struct Candidate {
    pub number: Number,
    pub identity: Identity,
    pub origin: Origin,
}

/// A call under way, and as whom it was begun.
#[derive(Debug)]
pub(super) enum Opening {
    AsNow,
    AsCandidate,
}

pub(super) struct Daemon {
    pub(super) dir: Dir,
    pub(super) config: AgentConfig,
    pub(super) named: Vec<ServerUrl>,
    pub(super) told: Vec<String>,
    /// Where the round over the servers begins.
    pub(super) turn: usize,
    pub(super) instance: String,
    pub(super) identity: Identity,
    pub(super) candidate: Option<Candidate>,
    pub(super) host: Host,
    started: Instant,
    pub(super) calls: JoinSet<Outcome>,
    pub(super) opening: Option<Opening>,
    pub(super) renewing: Option<Arc<HostKey>>,
    pub(super) recovering: Option<Arc<HostKey>>,
    pub(super) channel: Option<Channel>,
    pub(super) standing: Option<Standing>,
    pub(super) orders: Vec<String>,
    pub(super) answers: Vec<OrderDone>,
    /// The last orders that were answered, in case one comes again.
    pub(super) answered: VecDeque<OrderDone>,
    /// The recovery token that is on disk now, and of which that has yet to be said.
    pub(super) kept: Option<String>,
    pub(super) attempts: Attempts,
    /// What shows the trouble at hand, in a sentence.
    pub(super) detail: String,
    pub(super) recovery_ready: bool,
    pub(super) figures: Figures,
    pub(super) notices: host::Notices,
    pub(super) care: Care,
    pub(super) hook: Hook,
    pub(super) manager: Manager,
    pub(super) ready_told: bool,
    watchdog_at: Option<Instant>,
    pub(super) status: watch::Sender<Status>,
    pub(super) page: Page,
}

impl Daemon {
    pub async fn new(
        dir: Dir,
        config: AgentConfig,
        found: Found,
        care: Care,
        manager: Manager,
    ) -> Result<Self, Fault> {
        let no_chance =
            |error: std::io::Error| Fault::host("runtime_failed", error.to_string(), "run the command again");
        let now = Instant::now();
        let (status, reader) = watch::channel(Status::of(dir.path(), &found.identity, clock::now()));
        if let Err(error) = socket::serve(dir.path(), reader) {
            tracing::warn!(%error, "{} cannot be served; `status` shows only what is on disk", socket::path(dir.path()).display());
        }
        let page = Page::default();
        if let Some(address) = config.daemon.metrics_listen {
            metrics_listener::listen(address, page.clone()).await?;
        }
        // A recovery that a restart interrupted goes on under its id.
        let begun = recovery_attempt::read(dir.path()).map(|attempt| attempt.correlation_id);
        let undertaking = begun.map_or_else(chance::hex_128, Ok).map_err(no_chance)?;
        let host = Host::new(life(&found.identity), undertaking);
        let attempts = last_attempts::read(dir.path());
        let mut daemon = Self {
            hook: Hook::start(config.daemon.on_renew.clone()),
            dir,
            config,
            named: found.servers,
            told: found.identity.meta.as_ref().map(|meta| meta.servers.clone()).unwrap_or_default(),
            turn: 0,
            instance: chance::hex_128().map_err(no_chance)?,
            identity: found.identity,
            candidate: None,
            host,
            started: now,
            calls: JoinSet::new(),
            opening: None,
            renewing: None,
            recovering: None,
            channel: None,
            standing: None,
            orders: Vec::new(),
            answers: Vec::new(),
            answered: VecDeque::new(),
            kept: None,
            attempts,
            detail: String::new(),
            recovery_ready: false,
            figures: Figures::default(),
            notices: host::Notices::default(),
            care,
            watchdog_at: manager.watchdog.map(|_| now),
            manager,
            ready_told: false,
            status,
            page,
        };
        daemon.begin(found.candidate);
        Ok(daemon)
    }

    /// What the disk tells of before.
    fn begin(&mut self, candidate: Option<Candidate>) {
        if let Some(span) = tolerance::read(self.dir.path()) {
            self.learn(Input::Tolerance(span));
        }
        if revoked::is_set(self.dir.path(), &self.identity.facts.serial) {
            self.learn(Input::Revoked);
        }
        if let Some(candidate) = candidate {
            self.prove(candidate);
        }
        self.fit();
    }

    /// Sees that the links to the identity are there. That one is not is no reason to stop.
    pub(super) fn fit(&mut self) {
        let spare = self.candidate.as_ref().map(|candidate| candidate.number);
        if let Err(fault) = self.config.files.fit(self.dir.path(), &self.identity, spare) {
            self.say(&fault.code, &fault.message);
        }
    }

    pub(super) fn prove(&mut self, candidate: Candidate) {
        let origin = candidate.origin;
        self.candidate = Some(candidate);
        self.learn(Input::Found(origin));
    }

    pub async fn run(mut self, mut stop: Stop) -> Result<(), Fault> {
        let ended = loop {
            self.tick();
            for act in self.host.due(self.now()) {
                match act {
                    Act::Open => self.begin_opening(),
                    Act::Renew => self.begin_renewal(),
                    Act::Recover(class) => self.begin_recovery(class),
                }
            }
            self.publish();
            let wake = self.wake();
            let learned = tokio::select! {
                () = stop.asked() => break Ok(()),
                Some(outcome) = self.calls.join_next() => match outcome {
                    Ok(Outcome::Opened(opened)) => self.opened(opened),
                    Ok(Outcome::Renewed(renewed)) => self.renewed(renewed),
                    Ok(Outcome::Recovered(recovered)) => self.recovered(recovered),
                    Err(_) => self.call_broke(),
                },
                word = hear(&mut self.channel) => match word {
                    Ok(word) => self.heard(word),
                    Err(error) => self.lost(error),
                },
                () = sleep_until(wake) => Ok(()),
            };
            if let Err(fault) = learned {
                break Err(fault);
            }
        };
        self.manager.tell(service_manager::STOPPING);
        tracing::info!("stopping");
        _ = std::fs::remove_file(socket::path(self.dir.path()));
        ended
    }

    /// Both clocks.
    pub(super) fn now(&self) -> Now {
        let steady = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Now { wall: clock::now(), steady: Span::from_millis(steady) }
    }

    pub(super) fn learn(&mut self, input: Input) -> Then {
        // Without chance there would be no new id, which is no reason to stop.
        let id = chance::hex_128().unwrap_or_else(|_| self.instance.clone());
        self.host.learn(input, self.now(), Chance { number: chance::number(), id })
    }

    /// A call that panicked is a call that failed.
    fn call_broke(&mut self) -> Result<(), Fault> {
        (self.opening, self.renewing, self.recovering) = (None, None, None);
        self.learn(Input::Broken);
        self.say("internal", "a call to the control plane ended unexpectedly");
        Ok(())
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if let (Some(every), Some(at)) = (self.manager.watchdog, self.watchdog_at)
            && now >= at
        {
            self.manager.all_is_well();
            self.watchdog_at = Some(now + every);
        }
        if let Some(channel) = &mut self.channel {
            match channel.tick() {
                Ok(true) => {}
                Ok(false) => self.gone(Trouble::Passing.into(), "no heartbeat from the control plane"),
                Err(error) => self.gone(Trouble::Passing.into(), &error.to_string()),
            }
        }
        self.look_after_the_host();
        self.say_what_is_new();
    }

    fn wake(&self) -> Instant {
        let host = self.started + pause(self.host.wake(self.now()));
        let channel = self.channel.as_ref().map(Channel::wake);
        channel.into_iter().chain(self.watchdog_at).chain([self.care.due()]).fold(host, Instant::min)
    }

    /// As the candidate, if there is one: the control plane may have seen it already, and then the certificate
    /// in use would soon be refused.
    fn begin_opening(&mut self) {
        let (identity, opening) = match &self.candidate {
            Some(candidate) => (&candidate.identity, Opening::AsCandidate),
            None => (&self.identity, Opening::AsNow),
        };
        let line = match self.line(identity) {
            Ok(line) => line,
            Err(error) => {
                self.learn(Input::Opened(Err(Trouble::Passing.into())));
                return self.say("fault", &error.to_string());
            }
        };
        let hello = Hello {
            node_id: identity.node_id().unwrap_or_default().to_owned(),
            instance_id: self.instance.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            bundle_version: identity.bundle_version(),
            recovery_kept: recovery::kept_id(self.dir.path()),
            recovery_wanted: true,
        };
        let confirm = unconfirmed::is_set(self.dir.path(), &identity.facts.serial);
        self.opening = Some(opening);
        self.calls.spawn(calls::open(line, hello, confirm));
    }

    /// A way to the control plane as this identity, within the undertaking at hand.
    pub(super) fn line(&self, identity: &Identity) -> Result<Line, Error> {
        let (servers, trust) = (self.servers(), identity.trust());
        let agent = AgentApi::new(servers.clone(), &trust, Some(&identity.credentials()))?;
        Ok(Line { agent, servers, trust, correlation_id: self.host.undertaking().to_owned() })
    }

    /// What the operator named first, then what the control plane said of itself; beginning with another after
    /// each connection that was lost.
    pub(super) fn servers(&self) -> Vec<ServerUrl> {
        let mut servers = self.named.clone();
        for url in self.care.api_urls().chain(&self.told).filter_map(|text| ServerUrl::parse(text).ok()) {
            if !servers.contains(&url) {
                servers.push(url);
            }
        }
        if !servers.is_empty() {
            let first = self.turn % servers.len();
            servers.rotate_left(first);
        }
        servers
    }
}

/// When the certificate ends, and when it is to be renewed.
pub(super) fn life(identity: &Identity) -> Life {
    let facts = &identity.facts;
    let named = identity.renew_at().and_then(|text| Timestamp::parse(text).ok());
    let renew_at = host::due(named, facts.not_before, facts.not_after, chance::number());
    Life { not_after: facts.not_after, renew_at }
}

pub(super) fn pause(span: Span) -> Duration {
    Duration::from_millis(span.millis())
}

async fn hear(channel: &mut Option<Channel>) -> Result<api::agent::live_down::Message, Error> {
    match channel {
        Some(channel) => channel.hear().await,
        None => std::future::pending().await,
    }
}
