//! Stands for election where openraft would wait for too long, or not for long enough.
//!
//! openraft 0.9 holds back a replica that has once lost an election to a longer log, by twice the longest election time-out, and
//! forgets that only when it stands by its own timer: long afterwards, and with the longest log of all, it would still wait. And of two
//! that stand in the same term the one with the higher id wins or nobody does, although only the longer log can win.
//!
//! Its timer draws one time-out at the start of the process and repeats it. Where a vote takes as long as that, each attempt ends the one
//! before it, and nobody ever leads. So its timer begins the first election after a leader has fallen silent, and every other attempt
//! begins here, after a pause of chance that grows with the attempts.

use crate::journal::Journal;
use crate::raft::Vote;
use aws_lc_rs::rand;
use lifecycle::names::ReplicaId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(250);
/// After so many looks without a word of a leader, at the least. By then every replica that is not held back has stood: after the lease
/// and the longest time-out (2.6 s) and openraft's own tick (0.3 s).
const SILENT: u64 = 12;
/// At the least between two attempts, whoever makes them.
const AGAIN: u64 = 3;
/// And so many more at the most, so that two rarely stand at once; twice as many after each attempt of its own that was lost.
const SPREAD: u64 = 3;
/// The spread is doubled so often at the most: to six seconds.
const DOUBLINGS: u32 = 3;
/// So many more for one that should not lead, as long as another one may.
const HELD: u64 = 12;
/// What another replica said of its log counts for so long: what the leader said before it died does not.
const HEARD: Duration = Duration::from_millis(2500);

/// Runs until the journal closes.
pub async fn run(journal: Arc<Journal>) {
    let mut closing = journal.closing();
    let mut patience = Patience::default();
    loop {
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(TICK) => {}
        }
        journal.let_stand();
        let seen = Seen {
            appends: journal.served().appends.load(Ordering::Acquire),
            vote: journal.vote(),
            own: journal.replica().0,
            leads: journal.is_leader(),
            may_stand: may_stand(&journal),
            held: journal.was_removed() || is_behind(&journal),
        };
        if patience.look(&seen, chance) {
            tracing::debug!("nothing was heard of a leader: standing for election");
            // Where the journal is closing, nobody needs to lead.
            let _ = journal.raft.trigger().elect().await;
        }
    }
}

/// Whether openraft's timer may make a replica stand: the first time after its leader has fallen silent. One that was removed leaves
/// that to the others.
pub fn by_timer(vote: &Vote, is_alone: bool, was_removed: bool) -> bool {
    is_alone || (vote.committed && !was_removed)
}

/// Without chance the pauses are the shortest ones: the generator's failure is no reason not to stand.
fn chance() -> u64 {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_or(0, |()| u64::from_be_bytes(bytes))
}

/// One that votes and does not lead.
fn may_stand(journal: &Journal) -> bool {
    let (voters, _) = journal.membership();
    voters.len() > 1 && voters.contains(&journal.replica().0) && journal.may_stand()
}

/// Whether another voter that can be reached has a longer log: that one would refuse its vote. It is no more than a reason to wait,
/// since that one may not be able to stand.
fn is_behind(journal: &Journal) -> bool {
    let (voters, _) = journal.membership();
    let own = journal.served().report().last_log;
    let others = voters.into_iter().filter(|id| *id != journal.replica().0).map(ReplicaId);
    others.into_iter().any(|id| {
        let standing = journal.roster().standing(id);
        standing.is_reachable(HEARD) && standing.report.is_some_and(|report| report.last_log > own)
    })
}

/// What a look finds.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// How many appends of leaders were taken.
    appends: u64,
    vote: Vote,
    own: u64,
    leads: bool,
    may_stand: bool,
    /// It stands only after the others had time to: one of them has a longer log, or this replica was removed and is needed only where
    /// the others cannot win without its log.
    held: bool,
}

/// How long a replica has been waiting, and how long it waits. Looks are counted, not read from a clock: a process that stood still has
/// missed nothing.
#[derive(Debug, Default)]
struct Patience {
    appends: u64,
    vote: Vote,
    /// Looks since a leader was heard of or a vote was given.
    silent: u64,
    /// Own attempts since a leader was heard of.
    lost: u32,
    drawn: u64,
}

impl Patience {
    /// Whether to stand now.
    fn look(&mut self, seen: &Seen, chance: impl FnOnce() -> u64) -> bool {
        let is_led = seen.leads || seen.appends != self.appends;
        let is_new = seen.vote != self.vote;
        (self.appends, self.vote) = (seen.appends, seen.vote);
        if is_led {
            self.lost = 0;
        } else if is_new && !seen.vote.committed && seen.vote.leader_id.node_id == seen.own {
            self.lost = self.lost.saturating_add(1);
        }
        // Whoever stands is given the time to win, by those that voted for it and by itself.
        if is_led || is_new {
            (self.silent, self.drawn) = (0, chance());
            return false;
        }
        self.silent += 1;
        let stands = seen.may_stand && self.silent >= self.pause(seen);
        if stands {
            self.silent = 0;
        }
        stands
    }

    fn pause(&self, seen: &Seen) -> u64 {
        let least = if seen.vote.committed { SILENT } else { AGAIN };
        let spread = SPREAD << self.lost.min(DOUBLINGS);
        let held = if seen.held { HELD } else { 0 };
        least + self.drawn % (spread + 1) + held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 1;
    const OTHER: u64 = 2;

    /// A follower of a leader that has fallen silent in term 5.
    fn follower() -> Seen {
        Seen {
            appends: 9,
            vote: Vote::new_committed(5, OTHER),
            own: OWN,
            leads: false,
            may_stand: true,
            held: false,
        }
    }

    /// It was given to this candidate.
    fn voted(term: u64, candidate: u64) -> Seen {
        Seen { vote: Vote::new(term, candidate), ..follower() }
    }

    /// After how many looks it stands, once it has seen this for the first time.
    fn looks(patience: &mut Patience, seen: &Seen, drawn: u64) -> Option<u64> {
        assert!(!patience.look(seen, || drawn), "it has only begun to wait");
        (1..1000).find(|_| patience.look(seen, || drawn))
    }

    /// After so many attempts of its own.
    fn lost(attempts: u64) -> Patience {
        let mut patience = Patience::default();
        patience.look(&follower(), || 0);
        for attempt in 0..attempts {
            patience.look(&voted(6 + attempt, OWN), || 0);
        }
        patience
    }

    #[test]
    fn a_silent_leader_is_waited_for_longer_than_openraft_does() {
        assert_eq!(looks(&mut Patience::default(), &follower(), 0), Some(SILENT));
        assert_eq!(looks(&mut Patience::default(), &follower(), SPREAD), Some(SILENT + SPREAD));
        assert_eq!(looks(&mut Patience::default(), &follower(), SPREAD + 1), Some(SILENT), "and no longer");
    }

    #[test]
    fn pauses_are_of_chance_and_grow_up_to_a_limit() {
        let longest = |attempts: u64| {
            let spread = SPREAD << attempts.min(u64::from(DOUBLINGS));
            let shortest = looks(&mut lost(attempts), &voted(90, OTHER), 0);
            assert_eq!(shortest, Some(AGAIN), "by chance it is as short as the first one");
            looks(&mut lost(attempts), &voted(90, OTHER), spread)
        };
        let found: Vec<_> = [0, 1, 2, 3, 4, 40].into_iter().filter_map(longest).collect();
        assert_eq!(found, [6, 9, 15, 27, 27, 27]);
    }

    #[test]
    fn an_own_attempt_begins_the_next_pause_and_a_leader_ends_them() {
        let mut patience = lost(3);
        assert_eq!(patience.lost, 3);
        patience.look(&Seen { appends: 10, ..follower() }, || 0);
        assert_eq!(patience.lost, 0, "one was heard of");
        let mut patience = lost(3);
        let leads = Seen { vote: Vote::new_committed(9, OWN), leads: true, ..follower() };
        for _ in 0..100 {
            assert!(!patience.look(&leads, || 0), "it leads");
        }
        let deposed = Seen { leads: false, ..leads };
        assert_eq!((1..1000).find(|_| patience.look(&deposed, || 0)), Some(SILENT), "it waits from then on");
    }

    #[test]
    fn a_vote_for_another_gives_it_time() {
        let mut patience = Patience::default();
        for term in 6..60 {
            for _ in 0..AGAIN {
                assert!(!patience.look(&voted(term, OTHER), || 0), "it has voted a moment ago");
            }
        }
        assert!(patience.look(&voted(59, OTHER), || 0));
    }

    #[test]
    fn one_that_was_removed_or_is_behind_stands_after_the_others_and_still_stands() {
        for seen in [follower(), voted(6, OTHER)] {
            let (mut first, mut held) = (Patience::default(), Patience::default());
            let first = looks(&mut first, &seen, SPREAD);
            let held = looks(&mut held, &Seen { held: true, ..seen }, 0);
            assert!(first < held && held.is_some(), "{first:?} {held:?}");
        }
        let away = Seen { may_stand: false, ..follower() };
        assert_eq!(looks(&mut Patience::default(), &away, 0), None);
    }

    #[test]
    fn openrafts_timer_begins_only_the_first_election() {
        let (led, lost) = (Vote::new_committed(5, OTHER), Vote::new(6, OWN));
        assert!(by_timer(&led, false, false));
        assert!(!by_timer(&lost, false, false), "from now on pauses are drawn");
        assert!(!by_timer(&led, false, true), "it was removed");
        assert!(by_timer(&lost, true, false), "it has nobody to wait for");
    }

    /// Four replicas in step, none of which can win unless nobody else stands before its vote is counted, two seconds later.
    #[test]
    fn replicas_that_stand_at_once_come_apart() {
        const COUNTED: u64 = 8;
        for seed in 1..=200_u64 {
            let mut state = seed;
            let mut chance = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            let mut replicas: Vec<(Patience, Vote)> =
                (1..=4).map(|_| (Patience::default(), Vote::new(6, 4))).collect();
            // Who has stood when, in which term.
            let mut stood: Vec<(u64, Vote)> = Vec::new();
            let won = (0..2400_u64).find(|now| {
                for (own, (patience, vote)) in (1..).zip(&mut replicas) {
                    let arrived = stood.iter().filter(|(at, _)| at + COUNTED / 2 <= *now);
                    let newest = arrived
                        .map(|(_, vote)| *vote)
                        .max_by_key(|vote| (vote.leader_id.term, vote.leader_id.node_id));
                    *vote = newest.filter(|newest| newest > vote).unwrap_or(*vote);
                    let seen = Seen { own, ..voted(vote.leader_id.term, vote.leader_id.node_id) };
                    if patience.look(&seen, &mut chance) {
                        *vote = Vote::new(vote.leader_id.term + 1, own);
                        stood.push((*now, *vote));
                    }
                }
                stood.last().is_some_and(|(at, _)| {
                    at + COUNTED <= *now
                        && stood.iter().rev().nth(1).is_none_or(|(before, _)| before + COUNTED <= *at)
                })
            });
            assert!(
                won.is_some_and(|won| won < 480),
                "nobody led within two minutes with seed {seed}: {won:?}"
            );
        }
    }
}
