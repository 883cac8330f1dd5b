//! The only room that asks for the time of day, and that says how far it is believed.

use lifecycle::clock::{ClockAnchor, ClockReading};
use lifecycle::names::{Span, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock. Before 1970 counts as 1970: the start-up check refuses such a clock anyway. A running control plane
/// goes by its [`BelievedClock`] instead.
#[expect(clippy::disallowed_methods, reason = "this is the room where the clock is read")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// CLOCK_BOOTTIME: nobody sets it, and it goes on while the machine sleeps.
fn steady() -> Span {
    let passed = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (passed.tv_sec.max(0).unsigned_abs(), passed.tv_nsec.max(0).unsigned_abs());
    Span::from_millis(secs.saturating_mul(1000).saturating_add(nanos / 1_000_000))
}

/// A start this long after the last entry may be one with a wrong clock, although it is believed.
const LONG_AWAY: Span = Span::from_days(1);

/// The time that a running control plane goes by: the wall clock as long as it keeps pace with CLOCK_BOOTTIME. One that
/// does not is not believed, in either direction, and time goes on as CLOCK_BOOTTIME says, because NTP is not
/// authenticated and a machine may resume with any clock.
pub struct BelievedClock {
    anchor: RwLock<ClockAnchor>,
    /// The latest time that was given out: it is never lowered.
    latest: AtomicU64,
    /// From when on CLOCK_BOOTTIME lets forget what has ended.
    forgets_from: Span,
}

impl BelievedClock {
    /// Takes the wall clock to be right. `last` is the moment of the last entry.
    pub fn new(last: Timestamp) -> Self {
        let (wall, steady) = (now(), steady());
        let anchor = ClockAnchor::new(wall, steady, last);
        let wait = if wall > last.plus(LONG_AWAY) { LONG_AWAY } else { Span::from_secs(0) };
        let forgets_from = Span::from_millis(steady.millis().saturating_add(wait.millis()));
        Self { anchor: RwLock::new(anchor), latest: AtomicU64::new(0), forgets_from }
    }

    /// Whether what has ended may be forgotten. Not in the first day after a start with a clock far ahead of the last
    /// entry: whoever then finds the clock to be wrong can still repair the domain with every denied certificate on record.
    pub fn lets_forget(&self) -> bool {
        steady() >= self.forgets_from
    }

    pub fn read(&self) -> ClockReading {
        let anchor = *self.anchor.read().unwrap_or_else(PoisonError::into_inner);
        let reading = anchor.read(now(), steady());
        let before = self.latest.fetch_max(reading.time.millis(), Ordering::AcqRel);
        ClockReading { time: reading.time.max(Timestamp::from_millis(before)), ..reading }
    }

    pub fn now(&self) -> Timestamp {
        self.read().time
    }

    pub fn is_believed(&self) -> bool {
        self.read().is_believed()
    }

    /// Takes the wall clock to have been right when it was read, by an operator's word that is on record.
    pub fn accept(&self, reading: &ClockReading, last: Timestamp) {
        *self.anchor.write().unwrap_or_else(PoisonError::into_inner) =
            ClockAnchor::new(reading.wall, reading.steady, last);
    }
}
