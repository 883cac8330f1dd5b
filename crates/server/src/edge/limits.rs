//! Failures are limited per source network, the largest that shares of capacity are counted by: a /48 is one network here as
//! well, and not as many as it can be cut into. Valid enrollments never are limited: the limit stands behind the look-up and only
//! turns the answer to a failure into "slow down", so that it costs a neighbour in a large network nothing that it is entitled to.

use api::code::{self, Code};
use lifecycle::names::{Source, Span, Timestamp};
use std::collections::HashMap;
use std::sync::Mutex;

/// Networks kept apart; what is beyond shares one account, so that the table cannot grow.
const NETWORKS: usize = 4096;
const MINUTE: Span = Span::from_minutes(1);

/// Whether an answer is a failure of whoever asked. A machine that nobody has registered is a failed credential like the others.
pub fn counts_as_failure(code: &'static Code) -> bool {
    matches!(code.status, 400 | 401 | 403 | 409) || code == code::NODE_NOT_ENROLLED
}

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
        let mut network = source.networks().first().copied();
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
    fn a_site_has_the_failures_of_one_network_however_many_it_is_cut_into() {
        let limits = FailureLimits::default();
        let at = Timestamp::from_secs(1000);
        let over = |text: String| limits.is_over(Source::Address(text.parse().expect("an address")), 100, at);
        let refused = (0..256).filter(|i| over(format!("2001:db8:1:{i:x}00::1"))).count();
        assert_eq!(refused, 156);
        assert!(!over("2001:db8:2::1".to_owned()), "another site has its own");
        assert_eq!((0..105).filter(|i| over(format!("::ffff:192.0.2.{i}"))).count(), 5);
        assert!(over("192.0.2.200".to_owned()), "an address is the same, mapped or not");
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
