//! Clocks of replicas: one that is far from the voters' median does not lead, and says so.

use crate::process::app::App;
use lifecycle::names::ReplicaId;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// How far a clock may be from the median, in milliseconds.
const FAR_MS: i64 = 60_000;

/// Compares this replica's clock with those of the voters; the last known one counts of a voter that cannot be reached. Whoever
/// is off, or does not believe its own clock, gives the lead away.
pub async fn tick(app: &App) {
    if app.journal.is_alone() {
        app.cluster.clock_is_off.store(false, Ordering::Release);
        return;
    }
    let own = app.journal.replica();
    let (voters, _) = app.journal.membership();
    let offset = |id: u64| match ReplicaId(id) {
        id if id == own => Some(0),
        id => app.journal.standing(id).clock_offset,
    };
    let offsets: Vec<i64> = voters.into_iter().filter_map(offset).collect();
    let off = median(offsets).is_some_and(|median| median.abs() > FAR_MS);
    if app.cluster.clock_is_off.swap(off, Ordering::AcqRel) != off {
        match off {
            true => tracing::error!(
                "the clock of this replica is more than a minute from those of the others: correct it"
            ),
            false => tracing::info!("the clock of this replica agrees with those of the others again"),
        }
    }
    let may_lead = !off && app.clock.is_believed();
    let changed = app.cluster.may_lead.swap(may_lead, Ordering::AcqRel) != may_lead;
    // Asked again until another one leads.
    if changed || (!may_lead && app.journal.is_leader()) {
        app.journal.may_lead(may_lead).await;
    }
}

/// The one in the middle; of an even number the one that is closer to zero, so that two replicas do not both give way.
fn median(mut offsets: Vec<i64>) -> Option<i64> {
    offsets.sort_unstable();
    let upper = offsets.get(offsets.len() / 2).copied()?;
    if offsets.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = offsets.get(offsets.len() / 2 - 1).copied()?;
    Some(if lower.abs() < upper.abs() { lower } else { upper })
}

/// The members whose clocks are wrong, and those that this replica has not heard of, by what it knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaClocks {
    pub off: BTreeSet<u64>,
    pub unheard: BTreeSet<u64>,
}

pub fn replica_clocks(app: &App) -> ReplicaClocks {
    let own = app.journal.replica();
    let (voters, _) = app.journal.membership();
    let mut clocks = ReplicaClocks::default();
    let mut offsets = Vec::new();
    for member in app.view().state.members().map(|member| member.id) {
        let standing = app.journal.standing(member);
        let believed = match member == own {
            true => app.clock.is_believed(),
            false => standing.report.as_ref().is_none_or(|report| report.clock_believed),
        };
        match if member == own { Some(0) } else { standing.clock_offset } {
            Some(offset) => offsets.push((member.0, offset)),
            None => drop(clocks.unheard.insert(member.0)),
        }
        if !believed {
            clocks.off.insert(member.0);
        }
    }
    clocks.off.extend(far_off(&offsets, &voters));
    clocks
}

/// Who is far from the median of the voters' clocks. Of an even number that parts in two halves nobody can say who is right: all.
fn far_off(offsets: &[(u64, i64)], voters: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut known: Vec<i64> =
        offsets.iter().filter(|(id, _)| voters.contains(id)).map(|(_, offset)| *offset).collect();
    known.sort_unstable();
    let (Some(lower), Some(upper)) =
        (known.get(known.len().saturating_sub(1) / 2).copied(), known.get(known.len() / 2).copied())
    else {
        return BTreeSet::new();
    };
    let is_far =
        |offset: i64| upper.saturating_sub(lower) > FAR_MS || offset.saturating_sub(lower).abs() > FAR_MS;
    offsets.iter().filter(|(_, offset)| is_far(*offset)).map(|(id, _)| *id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_off_is_named_and_two_that_disagree_both_are() {
        let voters = BTreeSet::from([1, 2, 3]);
        let hour = 3_600_000;
        let off = |offsets: &[(u64, i64)]| far_off(offsets, &voters).into_iter().collect::<Vec<_>>();
        assert_eq!(off(&[(1, 0), (2, 5), (3, hour)]), [3]);
        assert_eq!(off(&[(1, 0), (2, -hour), (3, -hour)]), [1], "also if it is the one that looks");
        assert_eq!(off(&[(1, 0), (2, 59_000), (3, -59_000)]), [0; 0]);
        assert_eq!(off(&[(1, 0), (2, 5), (3, 1), (4, hour)]), [4], "a learner");
        assert_eq!(off(&[(1, 0), (2, hour)]), [1, 2]);
        assert_eq!(off(&[]), [0; 0]);
    }

    #[test]
    fn one_clock_alone_moves_no_median() {
        assert_eq!(median(vec![0, 3_600_000, 5]), Some(5));
        assert_eq!(median(vec![0, 3_600_000, 3_600_005]), Some(3_600_000), "it is this one that is off");
        assert_eq!(median(vec![0, 3_600_000]), Some(0), "who of two is right, nobody can say");
        assert_eq!(median(vec![]), None);
    }
}
