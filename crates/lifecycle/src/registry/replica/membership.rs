//! How Raft's membership follows the registry's members: what the leader changes next, one step at a time.

use std::collections::BTreeSet;

/// One change of Raft's membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipChange {
    /// It is sent the log and has no vote.
    AddLearner(u64),
    /// These vote from now on, and no others.
    SetVoters(BTreeSet<u64>),
    /// It is sent nothing any more.
    DropLearner(u64),
}

/// What to change next, if anything. Who was removed goes before anybody comes, one voter at a time, and only where the others
/// that can be reached are a majority without it: two removals that were judged at the same moment must not lose the majority
/// together. `forced` are those whose removal does not wait for that. Voters become more only to an odd number, which survives
/// as many failures as the even one above it, with one process less; a removal may leave an even number.
pub fn next_change(
    members: &BTreeSet<u64>,
    voters: &BTreeSet<u64>,
    learners: &BTreeSet<u64>,
    caught_up: &BTreeSet<u64>,
    reachable: &BTreeSet<u64>,
    forced: &BTreeSet<u64>,
) -> Option<MembershipChange> {
    let staying: BTreeSet<u64> = voters & members;
    if staying.len() < voters.len() && !staying.is_empty() {
        return without_one(voters, members, reachable, forced).map(MembershipChange::SetVoters);
    }
    if let Some(removed) = learners.iter().find(|id| !members.contains(id) && !voters.contains(id)) {
        return Some(MembershipChange::DropLearner(*removed));
    }
    let is_new = |id: &&u64| !voters.contains(id) && !learners.contains(id) && reachable.contains(id);
    if let Some(new) = members.iter().find(is_new) {
        return Some(MembershipChange::AddLearner(*new));
    }
    // One that has everything and has gone since would be a vote that is missing.
    let is_ready = |id: &&u64| members.contains(id) && caught_up.contains(id) && reachable.contains(id);
    let ready: Vec<u64> =
        learners.iter().filter(is_ready).filter(|id| !voters.contains(id)).copied().collect();
    let wanted = if staying.len().is_multiple_of(2) { 1 } else { 2 };
    let promoted = ready.get(..wanted)?;
    Some(MembershipChange::SetVoters(staying.into_iter().chain(promoted.iter().copied()).collect()))
}

/// The voters without one that was removed. One that cannot be reached goes first: it is missed least.
fn without_one(
    voters: &BTreeSet<u64>,
    members: &BTreeSet<u64>,
    reachable: &BTreeSet<u64>,
    forced: &BTreeSet<u64>,
) -> Option<BTreeSet<u64>> {
    let mut removed: Vec<u64> = voters.difference(members).copied().collect();
    removed.sort_by_key(|id| reachable.contains(id));
    removed.into_iter().find_map(|id| {
        let left: BTreeSet<u64> = voters.iter().copied().filter(|voter| *voter != id).collect();
        let has_majority = left.intersection(reachable).count() > left.len() / 2;
        (has_majority || forced.contains(&id)).then_some(left)
    })
}

#[cfg(test)]
mod tests {
    use super::MembershipChange::{AddLearner, DropLearner, SetVoters};
    use super::*;

    /// Members, voters, learners, caught up, reachable; what comes next.
    type Row = (&'static [u64], &'static [u64], &'static [u64], &'static [u64], &'static [u64], Next);
    type Next = Option<MembershipChange>;

    fn set(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    fn voters(ids: &[u64]) -> Next {
        Some(SetVoters(set(ids)))
    }

    #[test]
    fn membership_follows_the_registry_one_change_at_a_time() {
        let rows: &[Row] = &[
            // Alone, and as it should be.
            (&[1], &[1], &[], &[], &[1], None),
            (&[1, 2, 3], &[1, 2, 3], &[], &[1, 2, 3], &[1, 2, 3], None),
            // Who has joined learns first, the lowest id first, once it is reachable.
            (&[1, 2, 3], &[1], &[], &[], &[1, 2, 3], Some(AddLearner(2))),
            (&[1, 2, 3], &[1], &[], &[], &[1, 3], Some(AddLearner(3))),
            (&[1, 2, 3], &[1], &[2], &[], &[1, 2, 3], Some(AddLearner(3))),
            (&[1, 2], &[1], &[], &[], &[1], None),
            // One learner does not vote beside one voter; two do, when both have caught up and are reachable.
            (&[1, 2], &[1], &[2], &[2], &[1, 2], None),
            (&[1, 2, 3], &[1], &[2, 3], &[2], &[1, 2, 3], None),
            (&[1, 2, 3], &[1], &[2, 3], &[2, 3], &[1, 2], None),
            (&[1, 2, 3], &[1], &[2, 3], &[2, 3], &[1, 2, 3], voters(&[1, 2, 3])),
            // Three become five, and no four.
            (&[1, 2, 3, 4], &[1, 2, 3], &[4], &[4], &[1, 2, 3, 4], None),
            (&[1, 2, 3, 4, 5], &[1, 2, 3], &[4, 5], &[4, 5], &[1, 2, 3, 4, 5], voters(&[1, 2, 3, 4, 5])),
            // One to five goes by three.
            (&[1, 2, 3, 4, 5], &[1], &[2, 3, 4, 5], &[2, 3, 4, 5], &[1, 2, 3, 4, 5], voters(&[1, 2, 3])),
            // Whoever was removed loses its vote, and then the log, before anybody comes.
            (&[1, 2], &[1, 2, 3], &[], &[], &[1, 2, 3], voters(&[1, 2])),
            (&[1, 2], &[1, 2], &[3], &[3], &[1, 2, 3], Some(DropLearner(3))),
            (&[1, 2, 4], &[1, 2, 3], &[], &[], &[1, 2, 3, 4], voters(&[1, 2])),
            (&[1, 2, 4], &[1, 2, 3], &[4], &[4], &[1, 2, 4], voters(&[1, 2])),
            // A removal leaves an even number, which one learner makes odd again.
            (&[1, 2], &[1, 2], &[], &[], &[1, 2], None),
            (&[1, 2, 4], &[1, 2], &[4], &[4], &[1, 2, 4], voters(&[1, 2, 4])),
            (&[1, 2, 4, 5], &[1, 2], &[4, 5], &[4, 5], &[1, 2, 4, 5], voters(&[1, 2, 4])),
            // The only voter was removed: it votes until another can.
            (&[2], &[1], &[2], &[], &[1, 2], None),
            (&[2], &[1], &[], &[], &[1, 2], Some(AddLearner(2))),
            (&[2], &[1], &[2], &[2], &[1, 2], voters(&[2])),
            (&[2, 3], &[1], &[2, 3], &[2, 3], &[1, 2, 3], voters(&[2])),
            // Of two that were removed one goes after the other.
            (&[1, 2, 3], &[1, 2, 3, 4, 5], &[], &[], &[1, 2, 3, 4, 5], voters(&[1, 2, 3, 5])),
            (&[1, 2, 3], &[1, 2, 3, 5], &[], &[], &[1, 2, 3, 5], voters(&[1, 2, 3])),
            // Nothing is known of anybody: nothing is changed.
            (&[], &[1], &[], &[], &[1], None),
            (&[], &[1], &[2], &[2], &[1, 2], Some(DropLearner(2))),
        ];
        for (members, voters, learners, caught_up, reachable, expected) in rows {
            let found = next_change(
                &set(members),
                &set(voters),
                &set(learners),
                &set(caught_up),
                &set(reachable),
                &set(&[]),
            );
            assert_eq!(found, *expected, "members {members:?}, voters {voters:?}, learners {learners:?}");
        }
    }

    #[test]
    fn removals_together_do_not_lose_the_majority() {
        let next = |members: &[u64], voters: &[u64], reachable: &[u64], forced: &[u64]| {
            let none = BTreeSet::new();
            next_change(&set(members), &set(voters), &none, &none, &set(reachable), &set(forced))
        };
        // 4 is dead; 2 and 3 were removed at the same moment. The first goes, and the second waits.
        assert_eq!(next(&[1, 4], &[1, 2, 3, 4], &[1, 2, 3], &[]), voters(&[1, 3, 4]));
        assert_eq!(next(&[1, 4], &[1, 3, 4], &[1, 3], &[]), None);
        // Until 4 is back, or was removed too: then it goes first.
        assert_eq!(next(&[1, 4], &[1, 3, 4], &[1, 3, 4], &[]), voters(&[1, 4]));
        assert_eq!(next(&[1], &[1, 3, 4], &[1, 3], &[]), voters(&[1, 3]));
        assert_eq!(next(&[1], &[1, 3], &[1, 3], &[]), voters(&[1]));
        // By force it goes at once.
        assert_eq!(next(&[1, 4], &[1, 3, 4], &[1, 3], &[3]), voters(&[1, 4]));
    }

    /// From wherever it begins, it comes to rest, never without voters, and with nobody in it that is no member.
    #[test]
    fn membership_comes_to_rest_with_the_members_and_never_without_voters() {
        let all: Vec<BTreeSet<u64>> = (0..32u64)
            .map(|bits| (0..5).filter(|id| bits >> id & 1 == 1).map(|id| id + 1).collect())
            .collect();
        for members in all.iter().filter(|members| !members.is_empty()) {
            for start in all.iter().filter(|voters| !voters.is_empty()) {
                let everyone = set(&[1, 2, 3, 4, 5]);
                let (mut voters, mut learners) = (start.clone(), BTreeSet::new());
                let mut steps = 0;
                while let Some(change) =
                    next_change(members, &voters, &learners, &learners, &everyone, &BTreeSet::new())
                {
                    match change {
                        AddLearner(id) => assert!(learners.insert(id) && !voters.contains(&id)),
                        DropLearner(id) => assert!(learners.remove(&id)),
                        SetVoters(next) => {
                            assert!(!next.is_empty());
                            learners.retain(|id| !next.contains(id));
                            voters = next;
                        }
                    }
                    steps += 1;
                    assert!(steps < 20, "{members:?} from {start:?}");
                }
                assert!(voters.is_subset(members), "{voters:?} of {members:?} from {start:?}");
                assert_eq!(&(&voters | &learners), members, "from {start:?}");
            }
        }
    }
}
