//! What comes on the standing connection and is stored: how often it is taken up. Each may cost writes to the disk and lines in the
//! log, and whoever sends it is not always the control plane.

use std::time::Duration;

use api::agent::{Bundle, Config, EndpointProfile, RecoveryGrant, Welcome};
use tokio::time::Instant;

use super::rate_limit::RateLimit;

/// More than the steps of a roll that hosts hear of.
const BURST: u32 = 10;
const EVERY: Duration = Duration::from_secs(5);

/// How often something is taken up that is written to the disk.
pub fn pace(now: Instant) -> RateLimit {
    RateLimit::new(BURST, EVERY, now)
}

/// One kind. Each message of it is whole, so the newest is the only one that counts.
pub struct Paced<T> {
    newest: Option<T>,
    /// How many were not taken up, until that is logged.
    passed_over: u64,
    rate: RateLimit,
}

impl<T> Paced<T> {
    fn new(now: Instant) -> Self {
        Self { newest: None, passed_over: 0, rate: pace(now) }
    }

    pub fn offered(&mut self, one: T) {
        self.passed_over += u64::from(self.newest.replace(one).is_some());
    }

    /// The one to take up now.
    pub fn due(&mut self, now: Instant) -> Option<T> {
        if !self.rate.wait(now).is_zero() {
            return None;
        }
        let newest = self.newest.take()?;
        self.rate.count(now);
        Some(newest)
    }

    fn wake(&self, now: Instant) -> Option<Instant> {
        self.newest.as_ref().map(|_| now + self.rate.wait(now))
    }
}

pub struct PacedOffers {
    pub bundle: Paced<Bundle>,
    pub profile: Paced<EndpointProfile>,
    pub config: Paced<Config>,
    pub grant: Paced<RecoveryGrant>,
    /// For the spans in it that are stored.
    pub welcome: Paced<Welcome>,
}

impl PacedOffers {
    pub fn new(now: Instant) -> Self {
        Self {
            bundle: Paced::new(now),
            profile: Paced::new(now),
            config: Paced::new(now),
            grant: Paced::new(now),
            welcome: Paced::new(now),
        }
    }

    /// The connection is no more, or another: what was not taken up is offered again by whoever is there next.
    pub fn forget(&mut self) {
        self.bundle.newest = None;
        self.profile.newest = None;
        self.config.newest = None;
        self.grant.newest = None;
        self.welcome.newest = None;
    }

    /// How many of each kind were not taken up because others came after them; counted anew from here on.
    pub fn take_passed_over(&mut self) -> impl Iterator<Item = (&'static str, u64)> {
        let taken = [
            ("trust bundles", &mut self.bundle.passed_over),
            ("endpoint profiles", &mut self.profile.passed_over),
            ("configurations", &mut self.config.passed_over),
            ("recovery grants", &mut self.grant.passed_over),
            ("welcomes", &mut self.welcome.passed_over),
        ]
        .map(|(kind, count)| (kind, std::mem::take(count)));
        taken.into_iter().filter(|(_, count)| *count > 0)
    }

    pub fn has_passed_over(&self) -> bool {
        let counts = [
            self.bundle.passed_over,
            self.profile.passed_over,
            self.config.passed_over,
            self.grant.passed_over,
            self.welcome.passed_over,
        ];
        counts.into_iter().any(|count| count > 0)
    }

    pub fn wake(&self) -> Option<Instant> {
        let now = Instant::now();
        let moments = [
            self.bundle.wake(now),
            self.profile.wake(now),
            self.config.wake(now),
            self.grant.wake(now),
            self.welcome.wake(now),
        ];
        moments.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_offers_without_end_few_are_taken_up_and_the_newest_is_not_lost() {
        let start = Instant::now();
        let mut offers = PacedOffers::new(start);
        let mut taken = Vec::new();
        for version in 1..=1000 {
            offers.bundle.offered(Bundle { version, ..Bundle::default() });
            taken.extend(offers.bundle.due(start).map(|bundle| bundle.version));
        }
        assert_eq!(taken, (1..=u64::from(BURST)).collect::<Vec<_>>());
        assert!(offers.wake().is_some());
        assert_eq!(offers.bundle.due(start + EVERY).map(|bundle| bundle.version), Some(1000));
        assert_eq!(offers.bundle.due(start + EVERY * 100), None);
        assert!(offers.wake().is_none());
        assert!(offers.has_passed_over());
        assert_eq!(offers.take_passed_over().collect::<Vec<_>>(), [("trust bundles", 989)]);
        assert!(!offers.has_passed_over());
        offers.bundle.offered(Bundle::default());
        offers.forget();
        assert_eq!(offers.bundle.due(start + EVERY * 100), None);
    }

    #[test]
    fn one_kind_does_not_wait_for_another() {
        let start = Instant::now();
        let mut offers = PacedOffers::new(start);
        for version in 1..=100 {
            offers.bundle.offered(Bundle { version, ..Bundle::default() });
            offers.bundle.due(start);
        }
        offers.config.offered(Config::default());
        assert!(offers.config.due(start).is_some());
    }
}
