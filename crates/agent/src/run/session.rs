//! The session with the control plane: where it is, the standing connection, and what is exchanged on it.

use api::agent::{
    ConfirmRequest, ConfirmResponse, ConfirmStatus, Evidence, Hello, OverlayClaim, RecoveryKept, Standing,
    Welcome, live_down, live_up,
};
use client::unreachable::Unreachable;
use client::{Error, LiveConnection, ServerUrl};
use lifecycle::host::{FailureKind, after_loss};
use tokio::time::Instant;

use super::call::{Call, CallPanicked, CallTarget};
use super::core::{AgentCore, Candidate};
use super::host_sessions::HostSessions;
use super::live_channel::{DrainedChannel, LiveChannel};
use super::orders::Orders;
use crate::enroll::persist::SERVERS;
use crate::failed_call::FailedCall;
use crate::status::{AgentState, CHANNEL_DOWN, ChannelState, Status};
use crate::store::generation::Generations;
use crate::store::{recovery, stored_trust, unconfirmed};

/// How opening the connection ended.
pub type OpenResult = Result<Box<Opened>, FailedCall>;

#[derive(Debug)]
pub enum SessionEvent {
    Opened {
        result: OpenResult,
        /// Whether it was as the certificate to be proven.
        proving: bool,
    },
    OpenPanicked,
    Received(live_down::Message),
    Lost(Error),
}

#[derive(Debug)]
pub struct Opened {
    live: Box<LiveConnection>,
    /// Of a host whose identity was not confirmed before.
    pub confirmed: Option<ConfirmResponse>,
}

pub struct LiveSession {
    /// As the operator named them.
    configured: Vec<ServerUrl>,
    /// As the control plane said.
    announced: Vec<String>,
    /// The server whose connection was lost last, and the number that says which of the others is asked first instead.
    lost: Option<(ServerUrl, u32)>,
    call: Call<OpenResult>,
    /// Whether the call is made as the certificate to be proven.
    proving: bool,
    channel: Option<LiveChannel>,
    /// The connection before, one at most: whoever has many replaced must not fill the table of open files.
    drained: Option<DrainedChannel>,
    standing: Option<Standing>,
    pub orders: Orders,
}

impl LiveSession {
    pub fn new(configured: Vec<ServerUrl>, announced: Vec<String>) -> Self {
        Self {
            configured,
            announced,
            lost: None,
            call: Call::default(),
            proving: false,
            channel: None,
            drained: None,
            standing: None,
            orders: Orders::default(),
        }
    }

    /// What the operator named first, then those of the endpoint profile, then what the control plane said of itself;
    /// beginning with another one, by chance, after a connection was lost.
    pub fn servers<'a>(&'a self, profile: impl Iterator<Item = &'a String>) -> Vec<ServerUrl> {
        let mut servers = self.configured.clone();
        for url in profile.chain(&self.announced).filter_map(|text| ServerUrl::parse(text).ok()) {
            if !servers.contains(&url) {
                servers.push(url);
            }
        }
        match &self.lost {
            Some((lost, chance)) => after_loss(servers, lost, *chance),
            None => servers,
        }
    }

    pub fn announced(&mut self, servers: &[String]) {
        self.announced = servers.iter().take(SERVERS).cloned().collect();
    }

    /// Takes the addresses in place of those that were announced before. Whether one of them was not known.
    pub fn moved(&mut self, servers: &[String], known: &[ServerUrl]) -> bool {
        let mut named = servers.iter().take(SERVERS).filter_map(|text| ServerUrl::parse(text).ok());
        let moved = named.any(|url| !known.contains(&url));
        if moved {
            self.announced(servers);
        }
        moved
    }

    pub fn is_connected(&self) -> bool {
        self.channel.is_some()
    }

    /// As the candidate, if there is one: the control plane may have seen it already, and then the certificate in use
    /// would soon be refused.
    /// `config_sequence` is the change up to which this host knows its configuration.
    pub fn begin(
        &mut self,
        core: &AgentCore,
        servers: Vec<ServerUrl>,
        config_sequence: u64,
    ) -> Result<(), Error> {
        let identity = core.candidate.as_ref().map_or(&core.identity, |candidate| &candidate.identity);
        let target = CallTarget::new(servers, identity, core.machine.correlation_id())?;
        let hello = hello(core, core.candidate.as_ref(), config_sequence);
        let confirm = unconfirmed::is_set(core.path(), &identity.facts.serial);
        self.proving = core.candidate.is_some();
        self.call.begin(open(target, hello, confirm));
        Ok(())
    }

    /// Connects beside the connection in use, as the target says, for another identity to take over.
    pub fn switch(call: &mut Call<OpenResult>, core: &AgentCore, target: CallTarget, config_sequence: u64) {
        call.begin(open(target, hello(core, None, config_sequence), false));
    }

    /// What happens next; waits for ever while nothing is under way.
    pub async fn next(&mut self) -> SessionEvent {
        let Self { call, proving, channel, .. } = self;
        tokio::select! {
            ended = call.ended() => match ended {
                Ok(result) => SessionEvent::Opened { result, proving: std::mem::take(proving) },
                Err(CallPanicked) => SessionEvent::OpenPanicked,
            },
            received = receive(channel) => match received {
                Ok(message) => SessionEvent::Received(message),
                Err(error) => SessionEvent::Lost(error),
            },
        }
    }

    /// The new connection takes the place of the one before, which is heard out.
    pub fn connect(&mut self, opened: Opened) {
        let drain_ms = opened.live.welcome().drain_ms;
        self.hear(opened.live.welcome());
        if let Some(old) = self.channel.replace(LiveChannel::new(opened.live)) {
            // The one that was drained before is closed first.
            self.drained = None;
            self.drained = Some(old.drain(drain_ms));
        }
    }

    fn hear(&mut self, welcome: &Welcome) {
        self.standing.clone_from(&welcome.standing);
        self.announced(&welcome.servers);
    }

    /// What was said when the connection was welcomed has changed.
    pub fn welcomed_anew(&mut self, welcome: &Welcome) {
        self.hear(welcome);
        if let Some(channel) = &mut self.channel {
            channel.retime(welcome.heartbeat_ms);
        }
    }

    pub fn disconnect(&mut self) {
        self.channel = None;
    }

    /// The connection is no more; the next one begins with another server.
    pub fn lost(&mut self, chance: u32) {
        if let Some(channel) = self.channel.take() {
            self.lost = Some((channel.server().clone(), chance));
        }
    }

    pub fn standing(&mut self, standing: Standing) {
        self.standing = Some(standing);
    }

    /// Sends a heartbeat if it is time. An error if the control plane no longer answers.
    pub fn tick(&mut self) -> Result<(), String> {
        let Some(channel) = &mut self.channel else { return Ok(()) };
        match channel.tick() {
            Ok(true) => Ok(()),
            Ok(false) => Err("no heartbeat from the control plane".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub fn wake(&self) -> Option<Instant> {
        self.channel.as_ref().map(LiveChannel::wake)
    }

    /// Sends the claim to a place in the overlay, if one is due.
    pub fn claim(&mut self, claim: Option<OverlayClaim>) -> Result<(), Error> {
        match (&mut self.channel, claim) {
            (Some(channel), Some(claim)) => channel.send(live_up::Message::Overlay(claim)),
            (None, _) | (_, None) => Ok(()),
        }
    }

    /// Sends answers to orders, and what has changed about this host since it was last sent. `kept` is taken once there
    /// is a connection to send it on.
    pub fn send(
        &mut self,
        evidence: &Evidence,
        kept: &mut Option<String>,
        sessions: &HostSessions,
    ) -> Result<(), Error> {
        let Some(channel) = &mut self.channel else { return Ok(()) };
        let is_new = |before: &Evidence| news(before) != news(evidence) || room_is_another(before, evidence);
        if channel.sent.as_ref().is_none_or(is_new) {
            channel.sent = Some(evidence.clone());
            channel.send(live_up::Message::Evidence(evidence.clone()))?;
        }
        if let Some(token_id) = kept.take() {
            channel.send(live_up::Message::RecoveryKept(RecoveryKept { token_id }))?;
        }
        // Nothing of a host without sessions, where none are on record.
        let spoken = channel.sessions_sent.is_some() || channel.sessions_on_record != Some(0);
        let news = channel.sessions_sent != Some(sessions.sequence()) && (spoken || !sessions.is_blank());
        if channel.sessions_on_record.is_some() && news && channel.may_send_sessions() {
            channel.sessions_sent = Some(sessions.sequence());
            channel.send(live_up::Message::Sessions(sessions.message()))?;
        }
        while let Some(done) = self.orders.next_answer() {
            channel.send(live_up::Message::OrderDone(done))?;
            self.orders.sent();
        }
        Ok(())
    }

    pub fn status(&self, core: &AgentCore, is_switching: bool, status: &mut Status) {
        status.channel = match (&self.channel, core.candidate.is_some() || is_switching) {
            (None, _) => ChannelState::Down,
            (Some(_), true) => ChannelState::Switching,
            (Some(_), false) => ChannelState::Up,
        };
        let standing = self.standing.as_ref();
        if status.state == AgentState::Enrolled {
            status.state = match standing.map(|standing| standing.state.as_str()) {
                Some("active") => AgentState::Active,
                Some("inactive") => AgentState::Inactive,
                _ => AgentState::Enrolled,
            };
        }
        status.reason(CHANNEL_DOWN, self.channel.is_none() && !core.machine.is_revoked());
        status.reason("draining", standing.is_some_and(|standing| standing.draining));
        status.reason("quarantined", standing.is_some_and(|standing| standing.quarantined));
    }
}

/// The first word on a connection: as the candidate, if it is one that is proven.
fn hello(core: &AgentCore, candidate: Option<&Candidate>, config_sequence: u64) -> Hello {
    let identity = candidate.map_or(&core.identity, |candidate| &candidate.identity);
    let generations = Generations::under(core.path());
    let generation = match candidate {
        Some(candidate) => generations.path(candidate.number),
        None => generations.current_path(),
    };
    Hello {
        node_id: identity.node_id().unwrap_or_default().to_owned(),
        instance_id: core.instance.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        bundle_version: identity.bundle_version(),
        recovery_kept: recovery::kept_id(core.path()),
        recovery_wanted: true,
        config_sequence,
        config_wanted: true,
        node_issuers_version: Some(identity.node_issuers_version()),
        stored_trust: stored_trust::of_generation(&generation).to_vec(),
    }
}

/// Some control planes close the connection without an alert where the certificate has expired.
pub fn closed_when_expired(failed: FailedCall, expired: bool) -> FailedCall {
    let closed = matches!(failed.error, Error::Unreachable { cause: Unreachable::Closed, .. });
    if closed && expired { FailedCall { kind: FailureKind::Expired, ..failed } } else { failed }
}

async fn receive(channel: &mut Option<LiveChannel>) -> Result<live_down::Message, Error> {
    match channel {
        Some(channel) => channel.receive().await,
        None => std::future::pending().await,
    }
}

/// Opens the standing connection; a host whose identity is not confirmed yet does that first.
async fn open(target: CallTarget, hello: Hello, confirm: bool) -> OpenResult {
    let mut confirmed = None;
    if confirm {
        let request = ConfirmRequest {
            status: ConfirmStatus::Ok.into(),
            recovery_kept: hello.recovery_kept.clone(),
            recovery_wanted: hello.recovery_wanted,
            ..ConfirmRequest::default()
        };
        match target.agent.confirm(request, &target.correlation_id, None).await {
            Ok(reply) => confirmed = Some(reply.message),
            Err(error) => return Err(target.failed(error).await),
        }
    }
    match target.agent.live(hello, &target.correlation_id, None).await {
        Ok(reply) => Ok(Box::new(Opened { live: Box::new(reply.message), confirmed })),
        Err(error) => Err(target.failed(error).await),
    }
}

/// What is worth a message of its own: not the clock and every change of the room on the disks, which change all the time,
/// nor the sentence about them. A message is answered with the time, and must not lead to another by that.
fn news(evidence: &Evidence) -> Evidence {
    let mut news = Evidence { clock_offset_ms: 0, disk_free_bytes: 0, ..evidence.clone() };
    news.free_space.clear();
    if let Some(overlay) = &mut news.overlay {
        overlay.detail.clear();
    }
    news.detail.clear();
    news
}

/// Whether a place has half or twice the room that was last sent, so that what operators read is never far from the truth.
fn room_is_another(before: &Evidence, now: &Evidence) -> bool {
    let far = |one: u64, other: u64| one < other / 2 || other < one / 2;
    let same = |(sent, found): (&api::agent::FreeSpace, &api::agent::FreeSpace)| {
        sent.name == found.name && !far(sent.available_bytes, found.available_bytes)
    };
    before.free_space.len() != now.free_space.len()
        || !before.free_space.iter().zip(&now.free_space).all(same)
}

impl Opened {
    pub fn live(&self) -> &LiveConnection {
        &self.live
    }
}
