//! How far a wall clock is believed: as far as the time that has passed since it was last taken to be right allows.
//!
//! Both clocks are read elsewhere and are arguments here.

use crate::names::{ReplicaId, Span, Timestamp};
use std::collections::BTreeSet;

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

    /// The time by the clock that does not jump alone.
    pub fn by_steady(&self) -> Timestamp {
        let back = Span::from_millis(self.offset_ms.unsigned_abs());
        if self.offset_ms < 0 { self.wall.plus(back) } else { self.wall.minus(back) }
    }
}

/// How many other replicas must agree at least with a clock that nobody else vouches for.
pub const WITNESSES: usize = 2;

/// What another replica says of the time, measured by one question and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockWitness {
    pub replica: ReplicaId,
    /// Whether it believes its own clock: then its machine was not suspended.
    pub is_believed: bool,
    /// How far its time is ahead of the wall clock here, in milliseconds: the time that has passed there by the clock that does not
    /// jump. Its wall clock may have been moved by as much as is believed, and the next one by as much again.
    pub offset_ms: i64,
    /// How long its answer took, which is how well that is known.
    pub took: Span,
}

/// Which other replicas bear out a wall clock that is ahead of the time that has passed here: a machine that was suspended has lost
/// that time, and its wall clock was set right since. They are a majority of the voters without counting this replica, and at least two;
/// all agree with this wall clock, and with each other, within the tolerance. None if they are too few, or if the clock is behind: time
/// never runs backwards.
pub fn borne_out(
    reading: &ClockReading,
    own: ReplicaId,
    voters: &BTreeSet<ReplicaId>,
    heard: &[ClockWitness],
) -> Option<Vec<ReplicaId>> {
    if reading.is_believed() || reading.offset_ms < 0 {
        return None;
    }
    let tolerance = TOLERANCE.millis();
    let agrees = |witness: &&ClockWitness| {
        let off = witness.offset_ms.unsigned_abs().saturating_add(witness.took.millis() / 2);
        witness.is_believed && witness.replica != own && voters.contains(&witness.replica) && off <= tolerance
    };
    let agreeing: Vec<&ClockWitness> = heard.iter().filter(agrees).collect();
    let names: BTreeSet<ReplicaId> = agreeing.iter().map(|witness| witness.replica).collect();
    let offsets = || agreeing.iter().map(|witness| witness.offset_ms);
    let apart = offsets().max()?.abs_diff(offsets().min()?);
    let enough = names.len() >= WITNESSES && names.len() > voters.len() / 2;
    (enough && apart <= tolerance).then(|| names.into_iter().collect())
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
        let offset_ms = wall.ahead_of(expected);
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

    /// Offset in seconds, and whether it believes its own clock.
    fn witness(replica: u64, offset_s: i64, is_believed: bool) -> ClockWitness {
        let (replica, offset_ms, took) = (ReplicaId(replica), offset_s * 1000, Span::from_millis(10));
        ClockWitness { replica, is_believed, offset_ms, took }
    }

    fn borne_out_by(reading: &ClockReading, voters: u64, heard: &[ClockWitness]) -> Option<Vec<u64>> {
        let voters = (1..=voters).map(ReplicaId).collect();
        borne_out(reading, ReplicaId(1), &voters, heard).map(|ids| ids.into_iter().map(|id| id.0).collect())
    }

    #[test]
    fn a_clock_that_is_ahead_is_borne_out_by_a_majority_of_others_that_never_stopped() {
        // Suspended for ten minutes.
        let reading = read(1_000_700, 100);
        let check = |voters, heard: &[ClockWitness], expected: Option<&[u64]>| {
            assert_eq!(borne_out_by(&reading, voters, heard).as_deref(), expected, "{voters} {heard:?}");
        };
        let (two, three) = (witness(2, 1, true), witness(3, -2, true));
        check(3, &[two, three], Some(&[2, 3]));
        check(5, &[two, three, witness(4, 0, true)], Some(&[2, 3, 4]));
        // Too few, whatever the number of voters; one that is heard twice is one.
        check(3, &[two], None);
        check(3, &[two, two], None);
        check(2, &[two], None);
        check(1, &[], None);
        check(1, &[two, three], None);
        check(5, &[two, three], None);
        // Suspended too, or of another opinion.
        check(3, &[two, witness(3, 0, false)], None);
        check(3, &[two, witness(3, -600, true)], None);
        check(3, &[two, witness(3, 61, true)], None);
        check(5, &[two, three, witness(4, 0, true), witness(5, -600, true)], Some(&[2, 3, 4]));
        // Each agrees with this clock, and they do not agree with each other.
        check(3, &[witness(2, 50, true), witness(3, -50, true)], None);
        // A learner, one that was removed, and this replica itself say nothing.
        check(3, &[two, witness(4, 0, true)], None);
        check(3, &[two, witness(1, 0, true)], None);
        // What is not known well enough.
        check(3, &[two, ClockWitness { took: Span::from_secs(130), ..three }], None);
    }

    #[test]
    fn a_clock_that_is_behind_or_believed_is_not_borne_out() {
        let agreeing = [witness(2, 0, true), witness(3, 0, true)];
        for reading in [read(1_000_000, 100), read(1_000_100, 100), read(1_000_160, 100)] {
            assert_eq!(borne_out_by(&reading, 3, &agreeing), None, "{reading:?}");
        }
    }

    #[test]
    fn the_time_by_the_steady_clock_is_that_of_the_anchor_and_what_has_passed() {
        for wall in [1_000_100, 1_000_700, 999_000] {
            assert_eq!(read(wall, 100).by_steady(), Timestamp::from_secs(1_000_100));
        }
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
