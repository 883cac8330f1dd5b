//! Failures are limited per source network. Valid enrollments never are: the limit stands behind the look-up
//! and only turns the answer to a failure into "slow down".

use lifecycle::names::{Source, Span, Timestamp};
use std::collections::HashMap;
use std::sync::Mutex;

/// Networks kept apart; what is beyond shares one account, so that the table cannot grow.
const NETWORKS: usize = 4096;
const MINUTE: Span = Span::from_minutes(1);

#[derive(Debug, Default)]
pub struct FailureLimits {
    accounts: Mutex<HashMap<Option<Source>, (Timestamp, u32)>>,
}

impl FailureLimits {
    /// Counts a failure; true when its network has had more than `limit` in this minute (0 means no limit).
    pub fn is_over(&self, source: Source, limit: u32, at: Timestamp) -> bool {
        if limit == 0 {
            return false;
        }
        let Ok(mut accounts) = self.accounts.lock() else { return true };
        let mut network = Some(source.prefix());
        if !accounts.contains_key(&network) && accounts.len() >= NETWORKS {
            accounts.retain(|_, (began, _)| at.since(*began) < MINUTE && at >= *began);
            if accounts.len() >= NETWORKS {
                network = None;
            }
        }
        let (began, count) = accounts.entry(network).or_insert((at, 0));
        if at.since(*began) >= MINUTE || at < *began {
            (*began, *count) = (at, 0);
        }
        *count = count.saturating_add(1);
        *count > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_over_its_limit_waits_for_the_next_minute() {
        let limits = FailureLimits::default();
        let source = Source::Address(std::net::IpAddr::from([192, 0, 2, 1]));
        let other = Source::Address(std::net::IpAddr::from([192, 0, 3, 1]));
        let at = Timestamp::from_secs(1000);
        assert_eq!((0..105).filter(|_| limits.is_over(source, 100, at)).count(), 5);
        assert!(!limits.is_over(other, 100, at));
        assert!(!limits.is_over(source, 0, at));
        assert!(!limits.is_over(source, 100, at.plus(MINUTE)));
    }

    #[test]
    fn the_table_does_not_grow() {
        let limits = FailureLimits::default();
        for i in 0..100_000u32 {
            let source = Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes()));
            limits.is_over(source, 100, Timestamp::from_secs(1000));
        }
        assert!(limits.accounts.lock().is_ok_and(|accounts| accounts.len() <= NETWORKS + 1));
    }
}
