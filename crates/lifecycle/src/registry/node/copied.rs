//! What counts as a copied identity: an earlier start of an agent that comes back, or one certificate on two live
//! streams. The third sign is a superseded certificate whose holder proves its key: [`Verdict::shows_a_copy`].

use crate::names::{Label, Serial, Span, Timestamp};
use crate::registry::Verdict;

/// How many starts of an agent are remembered, to notice one that comes back.
const STARTS: usize = 4;
/// Two streams with one certificate that are open together for this long belong to two hosts: a dead connection is
/// noticed earlier.
pub const OVERLAP: Span = Span::from_secs(60);

/// Whether this start of an agent was followed by another: an agent that is started again has a new one.
pub fn is_earlier_start(known: &[Label], start: &Label) -> bool {
    known.split_last().is_some_and(|(_, earlier)| earlier.contains(start))
}

/// Puts a start of an agent last among those that are remembered.
pub fn remember_start(known: &mut Vec<Label>, start: &Label) {
    known.retain(|earlier| earlier != start);
    known.push(start.clone());
    if known.len() > STARTS {
        known.remove(0);
    }
}

/// The starts of an agent, the newest last, by the registry and by what one replica has heard itself: its own are newer where they
/// follow one that the registry knows too. Whatever else it has is older than what the registry remembers.
pub fn remembered_starts(registry: &[Label], heard: &[Label]) -> Vec<Label> {
    if registry.is_empty() {
        return heard.to_vec();
    }
    let known = heard.iter().rposition(|start| registry.contains(start));
    let newer = known.map_or(&[][..], |known| heard.get(known + 1..).unwrap_or_default());
    let mut starts = registry.to_vec();
    newer.iter().for_each(|start| remember_start(&mut starts, start));
    starts
}

/// Puts a start on record that was heard of when something newer was known already: the newest stays the newest.
pub fn remember_earlier_start(known: &mut Vec<Label>, start: &Label) {
    if known.contains(start) {
        return;
    }
    known.insert(known.len().saturating_sub(1), start.clone());
    if known.len() > STARTS {
        known.remove(0);
    }
}

/// Whether two live streams, each with its certificate and since when it is open, are of two hosts.
pub fn are_two_hosts(one: (&Serial, Timestamp), other: (&Serial, Timestamp), at: Timestamp) -> bool {
    one.0 == other.0 && one.1.max(other.1).plus(OVERLAP) <= at
}

impl Verdict {
    /// Whether its use says that somebody else has it: its holder has moved on, and its grace is over. Asked only
    /// once the peer has proven that it holds the key.
    pub fn shows_a_copy(self) -> bool {
        match self {
            Verdict::Superseded { .. } => true,
            Verdict::Good
            | Verdict::Grace { .. }
            | Verdict::Denied(_)
            | Verdict::Expired
            | Verdict::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(words: &str) -> Vec<Label> {
        words.split_whitespace().map(|word| Label::parse(word).expect("a label")).collect()
    }

    #[test]
    fn the_registry_and_a_replica_remember_starts_together() {
        let joined = |registry, heard| remembered_starts(&starts(registry), &starts(heard));
        assert_eq!(joined("", "a b"), starts("a b"));
        assert_eq!(joined("a b", "a"), starts("a b"), "it started again at another replica");
        assert_eq!(joined("a b", "a b c"), starts("a b c"), "not written down yet");
        assert_eq!(joined("c d e f", "a"), starts("c d e f"), "long ago");
        assert_eq!(joined("a b", "a c"), starts("a b c"));
    }

    #[test]
    fn a_start_that_is_reported_late_does_not_become_the_newest() {
        let mut known = starts("a b");
        remember_earlier_start(&mut known, &starts("a")[0]);
        assert_eq!(known, starts("a b"));
        remember_earlier_start(&mut known, &starts("x")[0]);
        assert_eq!(known, starts("a x b"));
        let mut none = Vec::new();
        remember_earlier_start(&mut none, &starts("x")[0]);
        assert_eq!(none, starts("x"));
    }
}
