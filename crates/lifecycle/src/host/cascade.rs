//! Which identity a host uses: an SVID from SPIRE before its own certificate, and that before the shared bootstrap certificate. A
//! better one is proven before it is used; one that is about to end is left in time. That there is no SPIRE is no failure.

use super::Backoff;
use super::task::sum;
use crate::names::{Span, Timestamp};

/// Between two tries to be let in with an SVID that was refused.
const REFUSED_CAP: Span = Span::from_minutes(1);
/// Before the next try with an SVID of which nobody said anything.
const UNANSWERED: Span = Span::from_secs(2);
/// Between two tries to fall back.
const FALLBACK_CAP: Span = Span::from_secs(2);
/// How long before its end an SVID is left, at most.
const LEAVE: Span = Span::from_secs(30);
const LEAVE_LEAST: Span = Span::from_secs(1);
/// The part of its life that is left then. SPIRE renews at the half.
const LEAVE_PART: u64 = 8;

/// Where an identity comes from, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdentityProvider {
    Spire,
    ControlPlane,
    Bootstrap,
    None,
}

impl IdentityProvider {
    pub const ALL: [IdentityProvider; 4] = [
        IdentityProvider::Spire,
        IdentityProvider::ControlPlane,
        IdentityProvider::Bootstrap,
        IdentityProvider::None,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            IdentityProvider::Spire => "spire",
            IdentityProvider::ControlPlane => "control-plane",
            IdentityProvider::Bootstrap => "bootstrap",
            IdentityProvider::None => "none",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == text)
    }
}

impl std::fmt::Display for IdentityProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An SVID, told from others by a number that rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SvidTerm {
    pub number: u64,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl SvidTerm {
    /// When another identity takes its place, if no newer SVID has.
    pub fn leave_at(&self) -> Timestamp {
        let life = self.not_after.since(self.not_before).millis();
        let before = Span::from_millis(life / LEAVE_PART).min(LEAVE).max(LEAVE_LEAST);
        self.not_after.minus(before)
    }

    pub fn is_usable(&self, at: Timestamp) -> bool {
        self.not_before <= at && at < self.leave_at()
    }
}

/// What is to be done about the identity in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CascadeStep {
    Stay,
    /// Prove this SVID on a connection of its own, and use it if it is welcomed.
    Promote(SvidTerm),
    /// Connect with the host's own certificate, and leave the SVID once that is welcomed.
    FallBack,
}

/// Between an SVID and the host's own certificate.
#[derive(Debug, Clone)]
pub struct IdentityCascade {
    /// The newest that SPIRE has given.
    offered: Option<SvidTerm>,
    in_use: Option<SvidTerm>,
    /// Whether a connection is under way by which the identity changes.
    switching: bool,
    /// When an SVID may be tried next, and the way back, on the steady clock.
    promote_at: Span,
    fall_back_at: Span,
    refused: Backoff,
    fallback: Backoff,
}

impl Default for IdentityCascade {
    fn default() -> Self {
        Self {
            offered: None,
            in_use: None,
            switching: false,
            promote_at: Span::from_millis(0),
            fall_back_at: Span::from_millis(0),
            refused: Backoff::new(REFUSED_CAP),
            fallback: Backoff::new(FALLBACK_CAP),
        }
    }
}

impl IdentityCascade {
    pub fn in_use(&self) -> Option<SvidTerm> {
        self.in_use
    }

    pub fn is_switching(&self) -> bool {
        self.switching
    }

    /// SPIRE has given an SVID.
    pub fn offered(&mut self, svid: SvidTerm) {
        self.offered = Some(svid);
    }

    /// What to do now. A step that is not [`CascadeStep::Stay`] is under way until its end is said.
    pub fn step(&mut self, wall: Timestamp, steady: Span) -> CascadeStep {
        if self.switching {
            return CascadeStep::Stay;
        }
        let step = self.due(wall, steady);
        self.switching = step != CascadeStep::Stay;
        step
    }

    fn due(&self, wall: Timestamp, steady: Span) -> CascadeStep {
        match (self.better(wall), self.in_use) {
            (Some(svid), _) if steady >= self.promote_at => CascadeStep::Promote(svid),
            (_, Some(used)) if wall >= used.leave_at() && steady >= self.fall_back_at => {
                CascadeStep::FallBack
            }
            _ => CascadeStep::Stay,
        }
    }

    /// An SVID that is good and not in use.
    fn better(&self, wall: Timestamp) -> Option<SvidTerm> {
        let is_used = |svid: &SvidTerm| self.in_use.is_some_and(|used| used.number == svid.number);
        self.offered.filter(|svid| svid.is_usable(wall) && !is_used(svid))
    }

    /// How long until there may be something to do; nothing while there is not.
    pub fn wait(&self, wall: Timestamp, steady: Span) -> Option<Span> {
        if self.switching {
            return None;
        }
        let until = |at: Span| Span::from_millis(at.millis().saturating_sub(steady.millis()));
        let begins = self.offered.map(|svid| svid.not_before.since(wall)).filter(|left| left.millis() > 0);
        let promotes = self.better(wall).map(|_| until(self.promote_at));
        let leaves = self.in_use.map(|used| used.leave_at().since(wall).max(until(self.fall_back_at)));
        begins.into_iter().chain(promotes).chain(leaves).min()
    }

    /// The SVID was welcomed.
    pub fn promoted(&mut self, svid: SvidTerm) {
        (self.in_use, self.switching) = (Some(svid), false);
        self.refused.reset();
        self.fallback.reset();
    }

    /// The SVID was not welcomed: what is in use stays in use.
    pub fn not_promoted(&mut self, steady: Span, chance: u32) {
        self.switching = false;
        self.promote_at = sum(steady, self.refused.next(chance, None));
    }

    /// Nobody said anything about the SVID: it is tried again soon.
    pub fn promotion_unanswered(&mut self, steady: Span) {
        self.switching = false;
        self.promote_at = sum(steady, UNANSWERED);
    }

    /// The host's own certificate is in use.
    pub fn fell_back(&mut self) {
        (self.in_use, self.switching) = (None, false);
        self.fallback.reset();
    }

    pub fn not_fallen_back(&mut self, steady: Span, chance: u32) {
        self.switching = false;
        self.fall_back_at = sum(steady, self.fallback.next(chance, None));
    }

    /// The connection is no more, or is one of another identity: the next may be of any.
    pub fn lost(&mut self) {
        self.in_use = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + seconds)
    }

    fn steady(seconds: u64) -> Span {
        Span::from_secs(seconds)
    }

    fn svid(number: u64, from: u64, to: u64) -> SvidTerm {
        SvidTerm { number, not_before: at(from), not_after: at(to) }
    }

    #[test]
    fn without_spire_there_is_nothing_to_do_and_nothing_to_wait_for() {
        let mut cascade = IdentityCascade::default();
        assert_eq!(cascade.step(at(0), steady(0)), CascadeStep::Stay);
        assert_eq!(cascade.wait(at(0), steady(0)), None);
    }

    #[test]
    fn a_newer_svid_takes_over_and_one_that_ends_is_left_while_it_is_good() {
        let mut cascade = IdentityCascade::default();
        cascade.offered(svid(1, 0, 80));
        assert_eq!(cascade.step(at(1), steady(1)), CascadeStep::Promote(svid(1, 0, 80)));
        assert_eq!(cascade.step(at(1), steady(1)), CascadeStep::Stay, "one at a time");
        cascade.promoted(svid(1, 0, 80));
        assert_eq!(cascade.wait(at(1), steady(1)), Some(Span::from_secs(69)));
        cascade.offered(svid(2, 40, 120));
        assert_eq!(cascade.step(at(40), steady(40)), CascadeStep::Promote(svid(2, 40, 120)));
        cascade.promoted(svid(2, 40, 120));
        assert_eq!(cascade.step(at(109), steady(109)), CascadeStep::Stay);
        assert_eq!(cascade.step(at(110), steady(110)), CascadeStep::FallBack);
        cascade.not_fallen_back(steady(110), 0);
        assert_eq!(cascade.step(at(119), steady(119)), CascadeStep::FallBack, "again until it works");
        cascade.fell_back();
        assert_eq!(cascade.step(at(120), steady(120)), CascadeStep::Stay, "what has ended is not tried");
        cascade.offered(svid(3, 119, 200));
        assert!(matches!(cascade.step(at(121), steady(121)), CascadeStep::Promote(_)));
    }

    #[test]
    fn a_refused_svid_is_tried_again_ever_more_rarely() {
        let mut cascade = IdentityCascade::default();
        cascade.offered(svid(1, 0, 100_000));
        let (mut now, mut tries) = (0, 0);
        while now < 3_600 {
            if matches!(cascade.step(at(now), steady(now)), CascadeStep::Promote(_)) {
                tries += 1;
                cascade.not_promoted(steady(now), u32::MAX / 2);
            }
            now += 1;
        }
        assert!((30..200).contains(&tries), "{tries}");
    }

    #[test]
    fn an_svid_of_seconds_is_kept_for_most_of_its_life() {
        assert_eq!(svid(1, 0, 6).leave_at(), at(5));
        assert_eq!(svid(1, 0, 86_400).leave_at(), at(86_370));
        assert!(!svid(1, 10, 20).is_usable(at(9)));
    }

    #[test]
    fn providers_read_back_as_written() {
        for provider in IdentityProvider::ALL {
            assert_eq!(IdentityProvider::parse(provider.as_str()), Some(provider));
        }
    }
}
