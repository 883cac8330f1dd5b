//! The starts of a replica's directory: by them a copy of it is told from the directory itself.
//!
//! Each start draws a number and adds it to the list in the log's file before anybody is talked to. Whoever has seen a later start
//! than those in the list talks to a directory that was put back; whoever has seen another one in the same place, to a copy.

use serde::{Deserialize, Serialize};

/// How many starts are kept: a peer that has seen none of so many cannot judge by them.
const KEPT: usize = 128;

/// Every start of a directory, the last ones by the number that was drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    pub count: u64,
    /// The current one is the last.
    pub recent: Vec<u64>,
}

/// One start, as others remember it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartMark {
    pub count: u64,
    pub incarnation: u64,
}

/// How the process at the other end follows from the one that was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    Same,
    Later,
    /// It does not: one of the two runs on a copy.
    Other,
}

impl Starts {
    /// With one more.
    pub fn begun(mut self, incarnation: u64) -> Self {
        self.count = self.count.saturating_add(1);
        self.recent.push(incarnation);
        let over = self.recent.len().saturating_sub(KEPT);
        self.recent.drain(..over);
        self
    }

    pub fn mark(&self) -> StartMark {
        StartMark { count: self.count, incarnation: self.recent.last().copied().unwrap_or_default() }
    }

    pub fn follows(&self, seen: &StartMark) -> Lineage {
        if seen.count == 0 {
            return Lineage::Later;
        }
        let Some(since) = self.count.checked_sub(seen.count) else { return Lineage::Other };
        let since = usize::try_from(since).unwrap_or(usize::MAX);
        match self.recent.iter().rev().nth(since) {
            Some(incarnation) if *incarnation != seen.incarnation => Lineage::Other,
            Some(_) if since == 0 => Lineage::Same,
            Some(_) => Lineage::Later,
            // So long ago that nobody can tell.
            None => Lineage::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(incarnations: impl IntoIterator<Item = u64>) -> Starts {
        incarnations.into_iter().fold(Starts::default(), Starts::begun)
    }

    #[test]
    fn a_later_start_of_the_same_directory_follows_and_a_copy_does_not() {
        let seen = starts([7, 8, 9]).mark();
        assert_eq!(starts([7, 8, 9]).follows(&seen), Lineage::Same);
        assert_eq!(starts([7, 8, 9, 10, 11]).follows(&seen), Lineage::Later);
        assert_eq!(starts([7, 8]).follows(&seen), Lineage::Other, "put back");
        assert_eq!(starts([7, 8, 10]).follows(&seen), Lineage::Other, "put back and started");
        assert_eq!(starts([7, 8, 10, 11]).follows(&seen), Lineage::Other, "and again");
        assert_eq!(starts([1]).follows(&StartMark::default()), Lineage::Later, "never seen");
    }

    #[test]
    fn the_list_is_bounded() {
        let many = starts(0..1000);
        assert_eq!((many.count, many.recent.len()), (1000, KEPT));
        assert_eq!(many.follows(&starts([5]).mark()), Lineage::Later);
    }
}
