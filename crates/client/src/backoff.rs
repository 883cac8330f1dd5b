//! How long to stay away before asking again: capped exponential, with full jitter.
//!
//! Full jitter (anything between nothing and the current step) spreads hosts that failed together over the
//! whole step, so that they do not return together.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Backoff {
    step: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    pub fn new() -> Self {
        Self { step: FIRST }
    }

    /// The next pause: at least what the server asked for, and then some chance on top.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let pause = retry_after.unwrap_or_default() + part(self.step, chance());
        self.step = self.step.saturating_mul(2).min(CAP);
        pause
    }
}

fn part(whole: Duration, of_max: u32) -> Duration {
    whole.mul_f64(f64::from(of_max) / f64::from(u32::MAX))
}

/// Without chance there would be no jitter, but still a pause: the generator's failure is no reason to stop.
fn chance() -> u32 {
    let mut bytes = [0; 4];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u32::from_be_bytes(bytes),
        Err(_) => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_no_further() {
        let mut backoff = Backoff::new();
        for _ in 0..40 {
            let before = backoff.step;
            assert!(backoff.next(None) <= before);
        }
        assert_eq!(backoff.step, CAP);
    }

    #[test]
    fn the_server_is_left_alone_as_long_as_it_asks() {
        let mut backoff = Backoff::new();
        let pause = backoff.next(Some(Duration::from_secs(7)));
        assert!((Duration::from_secs(7)..=Duration::from_millis(7500)).contains(&pause));
    }

    #[test]
    fn chance_reaches_from_nothing_to_the_whole_step() {
        assert_eq!(part(CAP, 0), Duration::ZERO);
        assert_eq!(part(CAP, u32::MAX), CAP);
    }
}
