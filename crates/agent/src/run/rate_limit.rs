//! How often something may happen, whoever asks for it: a number of times at once, then once in a while.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub struct RateLimit {
    every: Duration,
    /// How far ahead of `every` it may be.
    ahead: Duration,
    /// When what happened so far would have been due, once each `every`.
    at: Instant,
}

impl RateLimit {
    /// `burst` times at once, and once more each `every`.
    pub fn new(burst: u32, every: Duration, now: Instant) -> Self {
        Self { every, ahead: every * burst.saturating_sub(1), at: now }
    }

    /// How long to wait for the next time.
    pub fn wait(&self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now + self.ahead)
    }

    pub fn count(&mut self, now: Instant) {
        self.at = self.at.max(now) + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_at_once_and_then_one_at_a_time() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let mut rate = RateLimit::new(3, second, start);
        for _ in 0..3 {
            assert_eq!(rate.wait(start), Duration::ZERO);
            rate.count(start);
        }
        assert_eq!(rate.wait(start), second);
        assert_eq!(rate.wait(start + second), Duration::ZERO);
        rate.count(start + second);
        assert_eq!(rate.wait(start + second), second);
        let later = start + second * 100;
        for _ in 0..3 {
            assert_eq!(rate.wait(later), Duration::ZERO, "what was not used is a burst again, and no more");
            rate.count(later);
        }
        assert_eq!(rate.wait(later), second);
    }
}
