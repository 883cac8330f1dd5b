//! What is worth a line in the log: the same thing at most once a minute, and then how often it happened.

use std::collections::BTreeMap;

use crate::names::{Span, Timestamp};

const QUIET: Span = Span::from_minutes(1);
/// Whoever answers chooses the words, so their number is limited; those beyond it share one place.
const KINDS: usize = 32;

#[derive(Debug, Default)]
pub struct Notices(BTreeMap<String, Notice>);

#[derive(Debug)]
struct Notice {
    at: Timestamp,
    /// Since then, unsaid.
    again: u64,
}

impl Notices {
    /// Something of this kind happened. To be said now with how often it happened since the last time, or not.
    pub fn note(&mut self, kind: &str, at: Timestamp) -> Option<u64> {
        let known = self.0.contains_key(kind);
        let kind = if known || self.0.len() < KINDS { kind } else { "" };
        let Some(said) = self.0.get_mut(kind) else {
            self.0.insert(kind.to_owned(), Notice { at, again: 0 });
            return Some(1);
        };
        said.again = said.again.saturating_add(1);
        // A clock that was set back must not silence the log for longer.
        if at >= said.at && at.since(said.at) < QUIET {
            return None;
        }
        said.at = at;
        Some(std::mem::take(&mut said.again))
    }

    /// The same while room is short: what was said before is counted and not said again, for however long that is.
    pub fn note_once(&mut self, kind: &str, at: Timestamp) -> Option<u64> {
        let Some(said) = self.0.get_mut(kind) else { return self.note(kind, at) };
        said.again = said.again.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_repeated_failure_is_said_once_a_minute_with_its_count() {
        let mut notices = Notices::default();
        let at = Timestamp::from_secs;
        assert_eq!(notices.note("a", at(100)), Some(1));
        assert_eq!(notices.note("a", at(101)), None);
        assert_eq!(notices.note("b", at(102)), Some(1));
        assert_eq!(notices.note("a", at(159)), None);
        assert_eq!(notices.note("a", at(160)), Some(3));
        assert_eq!(notices.note("a", at(1)), Some(1), "the clock was set back");
    }

    #[test]
    fn while_room_is_short_nothing_is_said_twice_and_nothing_is_forgotten() {
        let mut notices = Notices::default();
        let at = Timestamp::from_secs;
        assert_eq!(notices.note_once("a", at(100)), Some(1));
        assert_eq!(notices.note_once("a", at(200)), None);
        assert_eq!(notices.note_once("a", at(300)), None);
        assert_eq!(notices.note("a", at(301)), Some(3));
    }

    proptest! {
        #[test]
        fn an_hour_of_anything_stays_within_its_lines(kinds in proptest::collection::vec("[a-z]{1,3}", 3600)) {
            let mut notices = Notices::default();
            let said = kinds.iter().zip(0..).filter(|(kind, second)| {
                notices.note(kind, Timestamp::from_secs(*second)).is_some()
            });
            prop_assert!(said.count() <= (KINDS + 1) * 60);
        }
    }
}
