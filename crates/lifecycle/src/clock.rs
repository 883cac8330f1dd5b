//! How far a wall clock is believed: as far as the time that has passed since it was last taken to be right allows.
//!
//! Both clocks are read elsewhere and are arguments here.

use crate::names::{Span, Timestamp};

/// How far the wall clock may part from the time that has passed, in all, before it is not believed.
pub const TOLERANCE: Span = Span::from_secs(60);
/// A clock this far behind the last entry of the log, or ahead of it, is more likely wrong than right.
pub const BEHIND: Span = Span::from_minutes(5);
pub const AHEAD: Span = Span::from_days(30);

/// Whether a wall clock may be right, as far as the last entry of the log can tell.
pub fn is_plausible(wall: Timestamp, last: Timestamp) -> bool {
    !is_behind(wall, last) && wall <= last.plus(AHEAD)
}

/// Whether a wall clock is earlier than what has surely been.
pub fn is_behind(wall: Timestamp, last: Timestamp) -> bool {
    wall.plus(BEHIND) < last
}

/// A moment at which the wall clock was taken to be right: at a start, or by an operator's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAnchor {
    wall: Timestamp,
    /// A clock that does not jump, at that moment.
    steady: Span,
    /// Effective time at that moment, if it was far ahead of the wall clock: it goes on from there. If it stood still
    /// until the wall clock has caught up, a token would live for as long as that takes.
    ahead: Option<Timestamp>,
}

/// What two clocks say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    pub wall: Timestamp,
    /// The clock that does not jump.
    pub steady: Span,
    /// The time to go by.
    pub time: Timestamp,
    /// How far the wall clock is ahead of the time that has passed, in milliseconds; negative if it is behind.
    pub offset_ms: i64,
}

impl ClockReading {
    /// Whether the wall clock is believed.
    pub fn is_believed(&self) -> bool {
        self.offset_ms.unsigned_abs() <= TOLERANCE.millis()
    }
}

impl ClockAnchor {
    /// `last` is the moment of the last entry.
    pub fn new(wall: Timestamp, steady: Span, last: Timestamp) -> Self {
        Self { wall, steady, ahead: is_behind(wall, last).then_some(last) }
    }

    /// The wall clock as long as it keeps pace; else the anchor and what has passed since. The tolerance is counted from
    /// the anchor and not from the last look, so that many small jumps are one large one.
    pub fn read(&self, wall: Timestamp, steady: Span) -> ClockReading {
        let passed = Span::from_millis(steady.millis().saturating_sub(self.steady.millis()));
        let expected = self.wall.plus(passed);
        let millis = |at: Timestamp| i64::try_from(at.millis()).unwrap_or(i64::MAX);
        let offset_ms = millis(wall).saturating_sub(millis(expected));
        let reading = ClockReading { wall, steady, time: wall, offset_ms };
        let time = if reading.is_believed() { wall } else { expected };
        let ahead = self.ahead.map(|at| at.plus(passed));
        ClockReading { time: ahead.map_or(time, |ahead| ahead.max(time)), ..reading }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Timestamp = Timestamp::from_secs(1_000_000);

    fn read(wall_s: u64, passed_s: u64) -> ClockReading {
        let anchor = ClockAnchor::new(WALL, Span::from_secs(7), WALL);
        anchor.read(Timestamp::from_secs(wall_s), Span::from_secs(7 + passed_s))
    }

    #[test]
    fn a_clock_that_keeps_pace_is_believed() {
        for (wall, passed) in [(1_000_000, 0), (1_000_100, 100), (1_000_160, 100), (1_000_040, 100)] {
            let reading = read(wall, passed);
            assert!(reading.is_believed(), "{reading:?}");
            assert_eq!(reading.time, Timestamp::from_secs(wall));
        }
    }

    #[test]
    fn a_clock_that_jumps_is_not_and_time_goes_on() {
        for wall in [1_000_161, 1_000_039, 0, 1_000_100 + 400 * 86_400] {
            let reading = read(wall, 100);
            assert!(!reading.is_believed(), "{reading:?}");
            assert_eq!(reading.time, Timestamp::from_secs(1_000_100));
        }
        assert_eq!(read(1_000_161, 100).offset_ms, 61_000);
        assert_eq!(read(1_000_039, 100).offset_ms, -61_000);
    }

    #[test]
    fn small_jumps_add_up() {
        let believed: Vec<bool> = (0..4).map(|jumps| read(1_000_000 + 50 * jumps, 0).is_believed()).collect();
        assert_eq!(believed, [true, true, false, false]);
    }

    #[test]
    fn time_that_was_ahead_at_the_anchor_does_not_stand_still() {
        let last = WALL.plus(Span::from_days(20));
        let anchor = ClockAnchor::new(WALL, Span::from_secs(0), last);
        let hour = Span::from_secs(3600);
        let reading = anchor.read(WALL.plus(hour), hour);
        assert!(reading.is_believed());
        assert_eq!(reading.time, last.plus(hour));
    }
}
