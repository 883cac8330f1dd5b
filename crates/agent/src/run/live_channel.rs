//! A standing connection in use: when the next heartbeat is due, and when unanswered ones mean that it is lost.

use std::time::Duration;

use api::agent::{Evidence, Heartbeat, live_down, live_up};
use client::{Error, LiveConnection, ServerUrl};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::rate_limit::RateLimit;

/// How long messages of a connection that was replaced are still received, where the control plane does not say.
const DRAIN: Duration = Duration::from_secs(30);
/// The longest, whatever it says.
const MOST_DRAIN: Duration = Duration::from_secs(600);
/// Between two messages about sessions.
const TOGETHER: Duration = Duration::from_millis(500);
const USUAL: Duration = Duration::from_secs(30);
/// How many messages are received at once, and how often one more. What comes faster waits in the network, where flow control
/// stops the sender.
const BURST: u32 = 200;
const EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct LiveChannel {
    live: Box<LiveConnection>,
    heartbeat: Duration,
    /// The interval as the control plane said it, which the heartbeats say back.
    told_ms: u64,
    heartbeat_at: Instant,
    received_at: Instant,
    rate: RateLimit,
    /// What was last sent about this host.
    pub sent: Option<Evidence>,
    /// How many sessions were on record when the connection was welcomed; nothing where sessions are not known.
    pub sessions_on_record: Option<u32>,
    /// The change of sessions up to which this connection has said them.
    pub sessions_sent: Option<u64>,
    /// When sessions may be said next, and whether that is waited for.
    sessions_at: Instant,
    sessions_due: bool,
}

impl LiveChannel {
    pub fn new(live: Box<LiveConnection>) -> Self {
        let told_ms = live.welcome().heartbeat_ms;
        let (now, heartbeat) = (Instant::now(), interval(told_ms));
        let sessions_on_record = live.welcome().sessions;
        Self {
            live,
            heartbeat,
            told_ms,
            heartbeat_at: now + heartbeat,
            received_at: now,
            rate: RateLimit::new(BURST, EVERY, now),
            sent: None,
            sessions_on_record,
            sessions_sent: None,
            sessions_at: now,
            sessions_due: false,
        }
    }

    pub fn server(&self) -> &ServerUrl {
        self.live.server()
    }

    /// The control plane wants heartbeats at another interval: the first at once, so that it knows that this is heard.
    pub fn retime(&mut self, told_ms: u64) {
        if self.told_ms != told_ms {
            (self.told_ms, self.heartbeat, self.heartbeat_at) = (told_ms, interval(told_ms), Instant::now());
        }
    }

    /// Nothing is lost if this is dropped while it waits. A message of a kind that this version does not know is passed over, and
    /// counts as one.
    pub async fn receive(&mut self) -> Result<live_down::Message, Error> {
        loop {
            let wait = self.rate.wait(Instant::now());
            if !wait.is_zero() {
                sleep(wait).await;
            }
            let message = self.live.receive().await?;
            self.received_at = Instant::now();
            self.rate.count(self.received_at);
            if let Some(message) = message {
                return Ok(message);
            }
        }
    }

    pub fn send(&mut self, message: live_up::Message) -> Result<(), Error> {
        self.live.send(message)?;
        self.heartbeat_at = Instant::now() + self.heartbeat;
        Ok(())
    }

    /// When there will be something to do.
    pub fn wake(&self) -> Instant {
        let wake = self.heartbeat_at.min(self.dead_at());
        if self.sessions_due { wake.min(self.sessions_at) } else { wake }
    }

    /// Whether sessions may be said now. Those of a short while are said together: a control plane hears only so many messages of a
    /// host.
    pub fn may_send_sessions(&mut self) -> bool {
        let now = Instant::now();
        self.sessions_due = now < self.sessions_at;
        if !self.sessions_due {
            self.sessions_at = now + TOGETHER;
        }
        !self.sessions_due
    }

    /// Every heartbeat is answered, so three without an answer are too many.
    fn dead_at(&self) -> Instant {
        self.received_at + (self.heartbeat * 3).max(USUAL)
    }

    /// Sends a heartbeat if it is time. False if none was answered for too long.
    pub fn tick(&mut self) -> Result<bool, Error> {
        if Instant::now() >= self.heartbeat_at {
            self.send(live_up::Message::Heartbeat(Heartbeat { interval_ms: self.told_ms }))?;
        }
        Ok(Instant::now() < self.dead_at())
    }

    /// Replaced by another: what is under way still arrives, for as long as the control plane lets it, and no faster than before.
    pub fn drain(mut self, drain_ms: u64) -> DrainedChannel {
        let within = if drain_ms == 0 { DRAIN } else { Duration::from_millis(drain_ms).min(MOST_DRAIN) };
        self.live.half_close();
        let drained = async move { while self.receive().await.is_ok() {} };
        DrainedChannel(tokio::spawn(async move { _ = timeout(within, drained).await }))
    }
}

/// A connection that was replaced. Dropping it closes the connection.
#[derive(Debug)]
pub struct DrainedChannel(JoinHandle<()>);

impl Drop for DrainedChannel {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn interval(told_ms: u64) -> Duration {
    match told_ms {
        0 => USUAL,
        asked => Duration::from_millis(asked.clamp(100, 600_000)),
    }
}
