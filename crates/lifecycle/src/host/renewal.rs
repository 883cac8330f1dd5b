//! When to renew, and how much of the time that is left a failed attempt may let pass.

use super::share;
use crate::names::{Span, Timestamp};

/// One part in this many of the lifetime is the most that jitter adds.
const JITTER: u64 = 20;

/// A certificate begins this long before it is signed, for hosts whose clock is behind. That is no part of the life
/// that was asked for.
const BACKDATE: Span = Span::from_secs(60);

/// When this host renews: the point that the control plane named, or two thirds of the lifetime if that is lost,
/// and some jitter, so that hosts that enrolled together do not renew together. Never in the last half of what
/// is left after that point.
pub fn due(
    renew_at: Option<Timestamp>,
    not_before: Timestamp,
    not_after: Timestamp,
    chance: u32,
) -> Timestamp {
    let lifetime = not_after.since(not_before.plus(BACKDATE));
    let third = Span::from_millis(lifetime.millis() / 3);
    let point = renew_at.unwrap_or_else(|| not_after.minus(third)).min(not_after);
    let most = (lifetime.millis() / JITTER).min(not_after.since(point).millis() / 2);
    point.plus(share(Span::from_millis(most), chance))
}

/// The longest pause before the next attempt: a tenth of what is left of the certificate. Nothing is said of one
/// that has ended, for there is nothing left to save by hurrying.
pub fn retry_within(now: Timestamp, not_after: Timestamp) -> Option<Span> {
    (now < not_after).then(|| Span::from_millis(not_after.since(now).millis() / 10))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_point_named_counts_and_two_thirds_without_one() {
        let (begin, end) = (Timestamp::from_secs(940), Timestamp::from_secs(4000));
        assert_eq!(due(Some(Timestamp::from_secs(1500)), begin, end, 0), Timestamp::from_secs(1500));
        assert_eq!(due(None, begin, end, 0), Timestamp::from_secs(3000));
        assert_eq!(due(Some(Timestamp::from_secs(9000)), begin, end, 0), end);
    }

    #[test]
    fn a_life_of_a_minute_gets_three_seconds_of_jitter() {
        let (begin, point, end) = (940, Timestamp::from_secs(1040), Timestamp::from_secs(1060));
        let due = due(Some(point), Timestamp::from_secs(begin), end, u32::MAX);
        assert_eq!(due.since(point), Span::from_secs(3));
    }

    #[test]
    fn an_ended_certificate_sets_no_limit() {
        let (now, end) = (Timestamp::from_secs(100), Timestamp::from_secs(200));
        assert_eq!(retry_within(now, end), Some(Span::from_secs(10)));
        assert_eq!(retry_within(end, end), None);
    }

    proptest! {
        #[test]
        fn jitter_is_at_most_a_twentieth_and_never_past_the_end(
            begin in 0u64..1_000_000, life in 1u64..100_000_000, point in 0u64..100_000_000, chance: u32,
        ) {
            let signed = begin + BACKDATE.millis();
            let (begin, end) = (Timestamp::from_millis(begin), Timestamp::from_millis(signed + life));
            let point = Timestamp::from_millis((begin.millis() + point).min(end.millis()));
            let due = due(Some(point), begin, end, chance);
            prop_assert!(due >= point && due <= end);
            prop_assert!(due.since(point).millis() <= life / 20);
        }
    }
}
