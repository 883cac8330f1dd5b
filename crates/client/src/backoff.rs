//! How long to pause between repetitions of one call: `lifecycle`'s backoff with chance drawn here.

use lifecycle::host::Backoff;
use lifecycle::names::Span;
use std::time::Duration;

const FIRST: Span = Span::from_millis(500);
const CAP: Span = Span::from_secs(30);

#[derive(Debug)]
pub struct RetryPauses(Backoff);

impl Default for RetryPauses {
    fn default() -> Self {
        Self(Backoff::between(FIRST, CAP))
    }
}

impl RetryPauses {
    /// Pauses that do not grow beyond this.
    pub fn up_to(cap: Duration) -> Self {
        let cap = Span::from_millis(u64::try_from(cap.as_millis()).unwrap_or(u64::MAX));
        Self(Backoff::between(FIRST, cap.max(FIRST)))
    }

    /// The next pause: at least what the server asked for, and then some chance on top.
    pub fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        retry_after.unwrap_or_default() + Duration::from_millis(self.0.next(chance(), None).millis())
    }
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
    fn the_server_is_left_alone_as_long_as_it_asks() {
        let pause = RetryPauses::default().next(Some(Duration::from_secs(7)));
        assert!((Duration::from_secs(7)..=Duration::from_millis(7500)).contains(&pause));
    }
}
