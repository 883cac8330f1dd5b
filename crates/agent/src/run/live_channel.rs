//! A standing connection in use: when to speak next, and when silence means that it is dead.

use std::time::Duration;

use api::agent::{Evidence, Heartbeat, live_down, live_up};
use client::{Error, LiveConnection};
use tokio::time::{Instant, timeout};

/// How long a connection that was replaced is heard out.
const DRAIN: Duration = Duration::from_secs(30);
const USUAL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Channel {
    live: Box<LiveConnection>,
    pub heartbeat: Duration,
    beat_at: Instant,
    heard_at: Instant,
    /// What was last said about this host.
    pub said: Option<Evidence>,
}

impl Channel {
    pub fn new(live: Box<LiveConnection>) -> Self {
        let heartbeat = match live.welcome().heartbeat_ms {
            0 => USUAL,
            asked => Duration::from_millis(asked.clamp(100, 600_000)),
        };
        let now = Instant::now();
        Self { live, heartbeat, beat_at: now + heartbeat, heard_at: now, said: None }
    }

    pub async fn hear(&mut self) -> Result<live_down::Message, Error> {
        let word = self.live.receive().await?;
        self.heard_at = Instant::now();
        Ok(word)
    }

    pub fn say(&mut self, word: live_up::Message) -> Result<(), Error> {
        self.live.send(word)?;
        self.beat_at = Instant::now() + self.heartbeat;
        Ok(())
    }

    /// When there will be something to do.
    pub fn wake(&self) -> Instant {
        self.beat_at.min(self.dead_at())
    }

    /// Every heartbeat is answered, so three without an answer are too many.
    fn dead_at(&self) -> Instant {
        self.heard_at + (self.heartbeat * 3).max(USUAL)
    }

    /// Beats if it is time. False if nobody has answered for too long.
    pub fn tick(&mut self) -> Result<bool, Error> {
        if Instant::now() >= self.beat_at {
            self.say(live_up::Message::Heartbeat(Heartbeat {}))?;
        }
        Ok(Instant::now() < self.dead_at())
    }

    /// Replaced by another: what is under way still arrives, for a limited time.
    pub fn drain(self) {
        tokio::spawn(timeout(DRAIN, self.live.finish()));
    }
}
