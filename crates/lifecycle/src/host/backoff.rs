//! How long to stay away after a failure: twice as long each time, up to a cap, with full jitter.
//!
//! Full jitter spreads hosts that failed together over the whole step, so that they do not return together. For a
//! daemon a small floor stays, so that chance never makes it ask without any pause.

use super::share;
use crate::names::Span;

const FIRST: Span = Span::from_secs(1);
const FLOOR: Span = Span::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Span,
    floor: Span,
    cap: Span,
    failures: u32,
}

impl Backoff {
    /// For a daemon: from a second, and never without a pause.
    pub const fn new(cap: Span) -> Self {
        Self { first: FIRST, floor: FLOOR, cap, failures: 0 }
    }

    /// For one call that is repeated: chance may make a pause as short as nothing.
    pub const fn between(first: Span, cap: Span) -> Self {
        Self { first, floor: Span::from_millis(0), cap, failures: 0 }
    }

    /// The pause after one more failure. `within` lowers the cap for this once, but not below the first pause.
    pub fn next(&mut self, chance: u32, within: Option<Span>) -> Span {
        let cap = within.map_or(self.cap, |within| within.clamp(self.first, self.cap.max(self.first)));
        let step = self.first.millis().saturating_mul(1 << self.failures.min(30)).min(cap.millis());
        self.failures = self.failures.saturating_add(1);
        share(Span::from_millis(step), chance).max(self.floor)
    }

    /// Another longest pause from now on.
    pub fn set_cap(&mut self, cap: Span) {
        self.cap = cap;
    }

    /// After a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::new(Span::from_secs(5));
        let mut pauses = || backoff.next(u32::MAX, None).secs();
        assert_eq!([pauses(), pauses(), pauses(), pauses(), pauses()], [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.next(u32::MAX, None), FIRST);
        assert_eq!(backoff.next(0, None), FLOOR);
    }

    #[test]
    fn chance_reaches_from_nothing_to_the_whole_step() {
        let mut backoff = Backoff::between(Span::from_millis(500), Span::from_secs(30));
        assert_eq!(backoff.next(0, None), Span::from_millis(0));
        assert_eq!(backoff.next(u32::MAX, None), FIRST);
    }

    proptest! {
        #[test]
        fn no_pause_is_longer_than_allowed_or_shorter_than_the_floor(
            cap in 1_000u64..600_000, failures in 0usize..200, chance: u32, within in 0u64..10_000_000,
        ) {
            let mut backoff = Backoff::new(Span::from_millis(cap));
            for _ in 0..failures {
                backoff.next(chance, None);
            }
            let pause = backoff.next(chance, Some(Span::from_millis(within))).millis();
            prop_assert!(pause >= FLOOR.millis() && pause <= cap);
            prop_assert!(pause <= within.max(FIRST.millis()));
        }
    }
}
