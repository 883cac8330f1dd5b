//! A standing connection in use: when the next heartbeat is due, and when unanswered ones mean that it is lost.

use std::time::Duration;

use api::agent::{Evidence, Heartbeat, live_down, live_up};
use client::{Error, LiveConnection};
use tokio::time::{Instant, timeout};

/// How long messages of a connection that was replaced are still received.
const DRAIN: Duration = Duration::from_secs(30);
const USUAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct LiveChannel {
    live: Box<LiveConnection>,
    pub heartbeat: Duration,
    heartbeat_at: Instant,
    received_at: Instant,
    /// What was last sent about this host.
    pub sent: Option<Evidence>,
}

impl LiveChannel {
    pub fn new(live: Box<LiveConnection>) -> Self {
        let heartbeat = match live.welcome().heartbeat_ms {
            0 => USUAL,
            asked => Duration::from_millis(asked.clamp(100, 600_000)),
        };
        let now = Instant::now();
        Self { live, heartbeat, heartbeat_at: now + heartbeat, received_at: now, sent: None }
    }

    pub async fn receive(&mut self) -> Result<live_down::Message, Error> {
        let message = self.live.receive().await?;
        self.received_at = Instant::now();
        Ok(message)
    }

    pub fn send(&mut self, message: live_up::Message) -> Result<(), Error> {
        self.live.send(message)?;
        self.heartbeat_at = Instant::now() + self.heartbeat;
        Ok(())
    }

    /// When there will be something to do.
    pub fn wake(&self) -> Instant {
        self.heartbeat_at.min(self.dead_at())
    }

    /// Every heartbeat is answered, so three without an answer are too many.
    fn dead_at(&self) -> Instant {
        self.received_at + (self.heartbeat * 3).max(USUAL)
    }

    /// Sends a heartbeat if it is time. False if none was answered for too long.
    pub fn tick(&mut self) -> Result<bool, Error> {
        if Instant::now() >= self.heartbeat_at {
            self.send(live_up::Message::Heartbeat(Heartbeat {}))?;
        }
        Ok(Instant::now() < self.dead_at())
    }

    /// Replaced by another: what is under way still arrives, for a limited time.
    pub fn drain(self) {
        tokio::spawn(timeout(DRAIN, self.live.finish()));
    }
}
