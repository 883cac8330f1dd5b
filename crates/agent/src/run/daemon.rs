//! The daemon: what it knows, and the loop in which it learns more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::agent::{Hello, OrderDone, Standing};
use client::{Agent, Error, ServerUrl};
use lifecycle::host::{self, Backoff, Notices, Trouble};
use lifecycle::names::{Span, Timestamp};
use pki::agent_key::HostKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::calls::{self, Outcome};
use super::channel::Channel;
use super::hook::Hook;
use super::metrics::{self, Figures, Page};
use super::notify::{self, Manager};
use super::signals::Stop;
use super::socket;
use super::start::Found;
use crate::config;
use crate::fault::{Exit, Fault};
use crate::layout::Files;
use crate::status::{Attempt, Status};
use crate::store::dir::Dir;
use crate::store::generation::Number;
use crate::store::identity::Identity;
use crate::store::{revoked, unconfirmed};
use crate::{chance, clock, code};

const OPEN_CAP: Span = Span::from_minutes(1);
const RENEW_CAP: Span = Span::from_minutes(5);
/// The clock may be set while we sleep: look at it at least this often.
const NAP: Duration = Duration::from_secs(60);

const REVOKED: &str = "ask an operator why";

/// A renewed certificate on disk that has yet to be proven.
#[derive(Debug)]
pub(super) struct Candidate {
    pub number: Number,
    pub identity: Identity,
}

/// A call under way, and as whom it was begun.
#[derive(Debug)]
pub(super) enum Opening {
    AsNow,
    AsCandidate,
}

pub(super) struct Daemon {
    pub(super) dir: Dir,
    /// Where the identity is wanted beside its own place.
    pub(super) files: Files,
    pub(super) settings: config::Daemon,
    pub(super) named: Vec<ServerUrl>,
    pub(super) told: Vec<String>,
    /// Where the round over the servers begins.
    pub(super) turn: usize,
    pub(super) instance: String,
    pub(super) identity: Identity,
    pub(super) candidate: Option<Candidate>,
    pub(super) calls: JoinSet<Outcome>,
    pub(super) opening: Option<Opening>,
    pub(super) open_at: Instant,
    pub(super) open_backoff: Backoff,
    pub(super) renewing: Option<Arc<HostKey>>,
    /// The undertaking that the next or current renewal belongs to.
    pub(super) renewal_id: String,
    pub(super) renew_due: Timestamp,
    /// Not before this, after a failure.
    pub(super) renew_at: Instant,
    pub(super) renew_backoff: Backoff,
    pub(super) channel: Option<Channel>,
    pub(super) standing: Option<Standing>,
    pub(super) revoked: bool,
    pub(super) orders: Vec<String>,
    pub(super) answers: Vec<OrderDone>,
    /// The last orders that were answered, in case one comes again.
    pub(super) answered: VecDeque<OrderDone>,
    pub(super) last_renewal: Option<Attempt>,
    pub(super) figures: Figures,
    pub(super) notices: Notices,
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
        files: Files,
        settings: config::Daemon,
        found: Found,
        manager: Manager,
    ) -> Result<Self, Fault> {
        let no_chance =
            |error: std::io::Error| Fault::host("runtime_failed", error.to_string(), "run it again");
        let now = Instant::now();
        let (status, reader) = watch::channel(Status::of(dir.path(), &found.identity, clock::now()));
        if let Err(error) = socket::serve(dir.path(), reader) {
            tracing::warn!(%error, "{} cannot be served; `status` shows only the disk", socket::path(dir.path()).display());
        }
        let page = Page::default();
        if let Some(address) = settings.metrics_listen {
            metrics::listen(address, page.clone()).await?;
        }
        let candidate = found.candidate.map(|(number, identity)| Candidate { number, identity });
        let revoked = revoked::is_set(dir.path(), &found.identity.facts.serial);
        let mut daemon = Self {
            hook: Hook::start(settings.on_renew.clone()),
            dir,
            files,
            settings,
            named: found.servers,
            told: found.identity.meta.as_ref().map(|meta| meta.servers.clone()).unwrap_or_default(),
            turn: 0,
            instance: chance::hex_128().map_err(no_chance)?,
            identity: found.identity,
            candidate,
            calls: JoinSet::new(),
            opening: None,
            open_at: now,
            open_backoff: Backoff::new(OPEN_CAP),
            renewing: None,
            renewal_id: chance::hex_128().map_err(no_chance)?,
            renew_due: Timestamp::from_millis(0),
            renew_at: now,
            renew_backoff: Backoff::new(RENEW_CAP),
            channel: None,
            standing: None,
            revoked,
            orders: Vec::new(),
            answers: Vec::new(),
            answered: VecDeque::new(),
            last_renewal: None,
            figures: Figures::default(),
            notices: Notices::default(),
            watchdog_at: manager.watchdog.map(|_| now),
            manager,
            ready_told: false,
            status,
            page,
        };
        daemon.fit();
        daemon.schedule();
        Ok(daemon)
    }

    /// Sees that the links to the identity are there. That one is not is no reason to stop.
    pub(super) fn fit(&mut self) {
        let spare = self.candidate.as_ref().map(|candidate| candidate.number);
        if let Err(fault) = self.files.fit(self.dir.path(), &self.identity, spare) {
            self.say(&fault.code, &fault.message);
        }
    }

    pub async fn run(mut self, mut stop: Stop) -> Result<(), Fault> {
        let ended = loop {
            self.tick();
            self.begin_what_is_due();
            self.publish();
            let wake = self.wake();
            let learned = tokio::select! {
                () = stop.asked() => break Ok(()),
                Some(outcome) = self.calls.join_next() => match outcome {
                    Ok(Outcome::Opened(opened)) => self.opened(opened),
                    Ok(Outcome::Renewed(renewed)) => self.renewed(renewed),
                    Err(_) => self.call_broke(),
                },
                word = hear(&mut self.channel) => match word {
                    Ok(word) => self.heard(word),
                    Err(error) => self.lost(&error),
                },
                () = sleep_until(wake) => Ok(()),
            };
            if let Err(fault) = learned {
                break Err(fault);
            }
        };
        self.manager.tell(notify::STOPPING);
        tracing::info!("stopping");
        _ = std::fs::remove_file(socket::path(self.dir.path()));
        ended
    }

    /// A call that panicked is a call that failed.
    fn call_broke(&mut self) -> Result<(), Fault> {
        (self.opening, self.renewing) = (None, None);
        self.open_at = Instant::now() + pause(self.open_backoff.next(chance::number(), None));
        self.renew_at = self.open_at;
        self.say("internal", "a call to the control plane broke off");
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
                Ok(false) => self.gone("endpoint_unreachable", "the control plane has fallen silent"),
                Err(error) => self.gone(error.code(), &error.to_string()),
            }
        }
        self.say_what_is_new();
    }

    fn wake(&self) -> Instant {
        let now = Instant::now();
        let mut wake = now + NAP;
        if self.opening.is_none() && (self.channel.is_none() || self.candidate.is_some()) {
            wake = wake.min(self.open_at);
        }
        if self.may_renew() {
            let left = self.renew_due.since(clock::now());
            wake = wake.min(self.renew_at.max(now + pause(left)));
        }
        let channel = self.channel.as_ref().map(Channel::wake);
        channel.into_iter().chain(self.watchdog_at).fold(wake, Instant::min)
    }

    /// One renewal at a time, and none while its fruit waits to be proven.
    pub(super) fn may_renew(&self) -> bool {
        self.renewing.is_none() && self.candidate.is_none() && !self.revoked
    }

    fn begin_what_is_due(&mut self) {
        let now = Instant::now();
        if self.may_renew() && now >= self.renew_at && clock::now() >= self.renew_due {
            self.begin_renewal();
        }
        let wanted = self.channel.is_none() || self.candidate.is_some();
        if wanted && self.opening.is_none() && now >= self.open_at {
            self.begin_opening();
        }
    }

    /// As the candidate, if there is one: the control plane may have seen it already, and then the certificate
    /// in use would soon be refused.
    fn begin_opening(&mut self) {
        let (identity, opening) = match &self.candidate {
            Some(candidate) => (&candidate.identity, Opening::AsCandidate),
            None => (&self.identity, Opening::AsNow),
        };
        let agent = match self.agent(identity) {
            Ok(agent) => agent,
            Err(error) => {
                self.open_at = Instant::now() + pause(self.open_backoff.next(chance::number(), None));
                return self.say("fault", &error.to_string());
            }
        };
        let hello = Hello {
            node_id: identity.node_id().unwrap_or_default().to_owned(),
            instance_id: self.instance.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            bundle_version: identity.bundle_version(),
            ..Hello::default()
        };
        let confirm = unconfirmed::is_set(self.dir.path(), &identity.facts.serial);
        let correlation_id = match opening {
            Opening::AsNow => chance::hex_128().unwrap_or_else(|_| self.instance.clone()),
            Opening::AsCandidate => self.renewal_id.clone(),
        };
        self.opening = Some(opening);
        self.calls.spawn(calls::open(agent, hello, confirm, correlation_id));
    }

    /// What the operator named first, then what the control plane said of itself; beginning with another after
    /// each connection that was lost.
    pub(super) fn agent(&self, identity: &Identity) -> Result<Agent, Error> {
        Agent::new(self.servers(), &identity.trust(), Some(&identity.credentials()))
    }

    fn servers(&self) -> Vec<ServerUrl> {
        let mut servers = self.named.clone();
        for url in self.told.iter().filter_map(|text| ServerUrl::parse(text).ok()) {
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

    /// The control plane has turned this host away for good, as far as it knows.
    pub(super) fn now_revoked(&mut self, error: &Error) -> Result<(), Fault> {
        // For `status`, `enroll` and the next start, when this daemon is no more.
        if let Err(error) = revoked::set(self.dir.path(), &self.identity.facts.serial) {
            self.say("not_persisted", &format!("the mark `revoked` could not be written: {error}"));
        }
        if !self.revoked {
            self.revoked = true;
            let remedy = if error.hint().is_empty() { REVOKED } else { error.hint() };
            tracing::error!(
                code = error.code(),
                "this host's identity is revoked: {error}; remedy: {remedy}"
            );
        }
        if self.settings.exit_on_revoked {
            return Err(Fault::new(
                Exit::Refused,
                error.code().to_owned(),
                error.to_string(),
                error.hint().to_owned(),
            ));
        }
        self.open_at = Instant::now() + pause(host::check_revoked_after(chance::number()));
        Ok(())
    }

    /// When to try again to connect.
    pub(super) fn later(&mut self, trouble: Trouble) {
        // Recovery of an expired identity would begin here.
        let cap = if trouble == Trouble::Expired { RENEW_CAP } else { OPEN_CAP };
        self.open_backoff.set_cap(cap);
        self.open_at = Instant::now() + pause(self.open_backoff.next(chance::number(), None));
    }

    /// How long the control plane asked us to stay away, within reason: its word must not outlast a certificate.
    pub(super) fn asked_to_wait(error: &Error) -> Duration {
        match error {
            Error::Refused(refusal) => refusal.retry_after.unwrap_or_default().min(pause(RENEW_CAP)),
            _ => Duration::ZERO,
        }
    }

    /// A line in the log, unless the same was said within the last minute.
    pub(super) fn say(&mut self, class: &str, what: &str) {
        self.say_with(class, what, "");
    }

    /// The same about a call: with every server that was asked, and the remedy of whoever knows the cause.
    pub(super) fn say_error(&mut self, class: &str, what: &str, error: &Error) {
        let servers: Vec<String> = self.servers().iter().map(ToString::to_string).collect();
        // A refusal is one server's word, and a message about one server names it.
        let tried = match error {
            Error::Unreachable { .. } if servers.len() > 1 => format!(" (tried {})", servers.join(", ")),
            _ => String::new(),
        };
        self.say_with(class, &format!("{what}: {error}{tried}"), error.hint());
    }

    fn say_with(&mut self, class: &str, what: &str, hint: &str) {
        if let Some(count) = self.notices.note(class, clock::now()) {
            // What comes from outside has an end.
            let short = |text: &str, most| text.chars().take(most).collect::<String>();
            let usual = code::remedy(class).unwrap_or("look the word up under docs/errors");
            let remedy = if hint.is_empty() { usual } else { hint };
            tracing::warn!(class, count, "{}; remedy: {}", short(what, 600), short(remedy, 200));
        }
    }
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
