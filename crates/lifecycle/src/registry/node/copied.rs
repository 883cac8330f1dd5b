//! What counts as a copied identity: an earlier start of an agent that comes back, or one certificate on two live
//! streams. The third sign is a superseded certificate whose holder proves its key: [`Verdict::shows_a_copy`].

use crate::names::{Label, Serial, Span, Timestamp};
use crate::registry::Verdict;

/// How many starts of an agent are remembered, to notice one that comes back.
const STARTS: usize = 4;
/// Two streams with one certificate that are open together for this long belong to two hosts: a dead connection is
/// noticed earlier.
const OVERLAP: Span = Span::from_secs(60);

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
