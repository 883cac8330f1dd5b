//! What replication messages of another replica must hold before openraft sees them.
//!
//! openraft trusts its peers: a vote in somebody else's name, entries out of order or a term at the end of the numbers end its core, and
//! some of it is on disk by then. Another replica may be broken, or in other hands; its messages end its connection instead.

use crate::raft::{Entry, LogId, Raft, TypeConfig, Vote};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{BasicNode, EntryPayload, SnapshotMeta};

/// How far a term may be ahead of the highest that is known here. A replica that is cut off stands for election every few seconds, for
/// months perhaps; nobody comes to the end of the numbers by such steps.
const TERMS: u64 = 1 << 32;
/// No log and no term gets this far.
const END: u64 = 1 << 62;

/// What this replica knows when a message arrives.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub own: u64,
    pub vote: Vote,
    pub committed: Option<LogId>,
}

impl Known {
    /// None once replication has stopped.
    pub async fn by(raft: &Raft) -> Option<Self> {
        let (own, vote) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow();
            (metrics.id, metrics.vote)
        };
        let committed = raft.with_raft_state(|state| state.committed).await.ok()?;
        Some(Self { own, vote, committed })
    }
}

type Checked = Result<(), &'static str>;

fn check(holds: bool, otherwise: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(otherwise) }
}

impl Known {
    fn term(&self, term: u64) -> Checked {
        // One that knows nothing yet comes to whatever term the others have.
        let limit =
            if self.committed.is_none() { END } else { self.vote.leader_id.term.saturating_add(TERMS) };
        check(term < END && term <= limit, "a term that nobody has come to")
    }

    /// A vote is of the one that sends it.
    fn vote(&self, vote: &Vote, caller: u64) -> Checked {
        let of = vote.leader_id.node_id;
        check(of == caller && of != self.own, "a vote of another replica")?;
        self.term(vote.leader_id.term)
    }

    /// Where an entry is: of a term that is not over the sender's, and in one order with what is committed here.
    fn place(&self, id: &LogId, vote: &Vote) -> Checked {
        check(id.index < END && id.leader_id.term <= vote.leader_id.term, "an entry of a term to come")?;
        let committed = self.committed.as_ref();
        let before = committed.is_some_and(|committed| id.index <= committed.index);
        check(before == (Some(id) <= committed), "an entry that conflicts with what is committed")
    }

    pub fn check_vote(&self, request: &VoteRequest<u64>, caller: u64) -> Checked {
        self.vote(&request.vote, caller)?;
        check(!request.vote.committed, "a vote that is granted already")?;
        // How much log it has is its own to say; it may have less than is committed here.
        let last = request.last_log_id.as_ref();
        let possible = |last: &LogId| last.index < END && last.leader_id.term <= request.vote.leader_id.term;
        check(last.is_none_or(possible), "a log of a term to come")
    }

    pub fn check_append(&self, request: &AppendEntriesRequest<TypeConfig>, caller: u64) -> Checked {
        self.vote(&request.vote, caller)?;
        check(request.vote.committed, "an append of a replica that was not elected")?;
        // Of a leader whose term is over nothing is taken: openraft tells it so.
        if request.vote < self.vote {
            return Ok(());
        }
        let mut last = request.prev_log_id;
        if let Some(prev) = &last {
            self.place(prev, &request.vote)?;
        }
        for entry in &request.entries {
            let next = last.map_or(0, |last| last.index + 1);
            check(entry.log_id.index == next && last < Some(entry.log_id), "entries out of order")?;
            self.place(&entry.log_id, &request.vote)?;
            check_payload(entry)?;
            last = Some(entry.log_id);
        }
        let commit = request.leader_commit.as_ref();
        let possible = |commit: &LogId| {
            let within = last.is_some_and(|last| commit.index <= last.index);
            commit.index < END
                && commit.leader_id.term <= request.vote.leader_id.term
                && (last.is_none() || within == (Some(*commit) <= last))
        };
        check(commit.is_none_or(possible), "a commitment that is not in its log")
    }

    pub fn check_snapshot(&self, vote: &Vote, meta: &SnapshotMeta<u64, BasicNode>, caller: u64) -> Checked {
        self.vote(vote, caller)?;
        check(vote.committed, "a snapshot of a replica that was not elected")?;
        let last = meta.last_log_id.as_ref().ok_or("a snapshot of nothing")?;
        // Its sender learns from the answers to its appends that its term is over: it need not send a file for that.
        check(*vote >= self.vote, "a snapshot of a leader whose term is over")?;
        self.place(last, vote)
    }

    /// What a replica answered to an append that ends there.
    pub fn check_appended(
        &self,
        asked: &Vote,
        sent: (Option<LogId>, Option<LogId>),
        answer: &AppendEntriesResponse<u64>,
    ) -> Checked {
        let (first, last) = sent;
        match answer {
            AppendEntriesResponse::Success | AppendEntriesResponse::Conflict => Ok(()),
            AppendEntriesResponse::PartialSuccess(until) => {
                check(first <= *until && *until <= last, "more than it was sent")
            }
            AppendEntriesResponse::HigherVote(vote) => self.answer_vote(asked, vote),
        }
    }

    pub fn check_voted(&self, asked: &Vote, answer: &VoteResponse<u64>) -> Checked {
        let possible = answer.last_log_id.is_none_or(|last| last.index < END && last.leader_id.term < END);
        check(possible, "a log that nobody has")?;
        self.answer_vote(asked, &answer.vote)
    }

    /// The vote in an answer to a request that was made with another. Nobody has voted for this replica in a term that it does not know.
    pub fn answer_vote(&self, asked: &Vote, answered: &Vote) -> Checked {
        let later = answered.leader_id.term > asked.leader_id.term.max(self.vote.leader_id.term);
        check(
            !(later && answered.leader_id.node_id == self.own),
            "a vote for this replica that it never asked for",
        )?;
        check(
            answered.leader_id.term <= asked.leader_id.term.saturating_add(TERMS),
            "a term that nobody has come to",
        )
    }
}

/// A leader may have committed more than it has sent. openraft compares terms before indexes: what this replica does not have is not
/// committed here, whatever its term.
pub fn bound_commit(request: &mut AppendEntriesRequest<TypeConfig>, last_log: Option<u64>) {
    let sent = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
    let held = last_log.max(sent.map(|sent| sent.index));
    if request.leader_commit.is_some_and(|commit| Some(commit.index) > held) {
        request.leader_commit = sent;
    }
}

/// Who votes must be somebody, and known.
fn check_payload(entry: &Entry) -> Checked {
    match &entry.payload {
        EntryPayload::Blank | EntryPayload::Normal(_) => Ok(()),
        EntryPayload::Membership(membership) => {
            let configs = membership.get_joint_config();
            let someone = !configs.is_empty() && configs.iter().all(|config| !config.is_empty());
            let known = membership.voter_ids().all(|voter| membership.get_node(&voter).is_some());
            check(someone && known, "a membership of nobody")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::{CommittedLeaderId, Membership};
    use std::collections::{BTreeMap, BTreeSet};

    const OWN: u64 = 1;
    const CALLER: u64 = 2;

    fn id(term: u64, index: u64) -> LogId {
        LogId::new(CommittedLeaderId::new(term, CALLER), index)
    }

    /// In term 5, with ten entries of terms up to 4 committed.
    fn known() -> Known {
        Known { own: OWN, vote: Vote::new_committed(5, 3), committed: Some(id(4, 10)) }
    }

    fn append(vote: Vote, prev: Option<LogId>, entries: &[LogId]) -> AppendEntriesRequest<TypeConfig> {
        let entry = |log_id: &LogId| Entry { log_id: *log_id, payload: EntryPayload::Blank };
        let entries = entries.iter().map(entry).collect();
        AppendEntriesRequest { vote, prev_log_id: prev, entries, leader_commit: None }
    }

    fn takes(request: &AppendEntriesRequest<TypeConfig>) -> bool {
        known().check_append(request, CALLER).is_ok()
    }

    #[test]
    fn what_an_elected_leader_sends_is_taken() {
        let by = Vote::new_committed(6, CALLER);
        assert!(takes(&append(by, None, &[])));
        assert!(takes(&append(by, Some(id(4, 10)), &[id(4, 11), id(6, 12)])));
        assert!(takes(&append(by, Some(id(2, 7)), &[id(3, 8), id(3, 9), id(4, 10), id(6, 11)])));
        assert!(takes(&append(by, Some(id(6, 500)), &[])), "this replica is behind");
        let mut ahead = append(by, Some(id(4, 10)), &[id(5, 11)]);
        ahead.leader_commit = Some(id(6, 90));
        assert!(takes(&ahead));
        assert!(
            takes(&append(Vote::new_committed(4, CALLER), Some(id(4, 10)), &[])),
            "it is told that its term is over"
        );
        let fresh = Known { committed: None, vote: Vote::default(), ..known() };
        let late = append(Vote::new_committed(1 << 40, CALLER), None, &[]);
        assert!(fresh.check_append(&late, CALLER).is_ok(), "a new replica knows no term");
    }

    #[test]
    fn what_no_leader_sends_is_refused() {
        let by = Vote::new_committed(6, CALLER);
        for request in [
            append(Vote::new(6, CALLER), None, &[]),
            append(Vote::new_committed(6, OWN), None, &[]),
            append(Vote::new_committed(6, 3), None, &[]),
            append(Vote::new_committed(u64::MAX, CALLER), None, &[]),
            append(by, Some(id(5, 3)), &[]),
            append(by, Some(id(3, 11)), &[]),
            append(by, Some(id(7, 11)), &[]),
            append(by, Some(id(6, u64::MAX)), &[]),
            append(by, Some(id(4, 10)), &[id(6, 12)]),
            append(by, Some(id(4, 10)), &[id(6, 11), id(5, 12)]),
            append(by, None, &[id(6, 50)]),
        ] {
            assert!(!takes(&request), "{request:?}");
        }
        let nobody = Membership::<u64, BasicNode>::new(vec![BTreeSet::new()], BTreeMap::new());
        let mut request = append(by, Some(id(4, 10)), &[id(6, 11)]);
        request.entries[0].payload = EntryPayload::Membership(nobody);
        assert!(!takes(&request));
    }

    #[test]
    fn what_is_not_held_is_not_committed() {
        let commit = |prev, at| {
            let mut request = append(Vote::new_committed(6, CALLER), prev, &[]);
            request.leader_commit = Some(at);
            bound_commit(&mut request, Some(12));
            request.leader_commit
        };
        assert_eq!(commit(Some(id(4, 10)), id(4, 12)), Some(id(4, 12)));
        assert_eq!(commit(Some(id(4, 10)), id(4, 1_000_000)), Some(id(4, 10)));
        assert_eq!(commit(None, id(4, 1_000_000)), None);
    }

    #[test]
    fn votes_and_answers_have_terms_that_somebody_may_have_come_to() {
        let request = |vote| VoteRequest { vote, last_log_id: Some(id(4, 9)) };
        assert!(
            known().check_vote(&request(Vote::new(40_000, CALLER)), CALLER).is_ok(),
            "it was cut off for a day"
        );
        for vote in
            [Vote::new(u64::MAX, CALLER), Vote::new(6, OWN), Vote::new(6, 3), Vote::new_committed(6, CALLER)]
        {
            assert!(known().check_vote(&request(vote), CALLER).is_err(), "{vote:?}");
        }
        let asked = Vote::new_committed(5, OWN);
        let answered =
            |vote| known().check_appended(&asked, (None, None), &AppendEntriesResponse::HigherVote(vote));
        assert!(answered(Vote::new(40_000, CALLER)).is_ok());
        assert!(answered(Vote::new(u64::MAX, CALLER)).is_err());
        assert!(answered(Vote::new_committed(6, OWN)).is_err(), "nobody elected this replica");
        // It has stood once more since it asked, and the other one has voted for that before it answered.
        let overlapped = Known { vote: Vote::new(7, OWN), ..known() };
        let (asked_then, answered_now) = (Vote::new(6, OWN), Vote::new(7, OWN));
        assert!(overlapped.answer_vote(&asked_then, &answered_now).is_ok());
        assert!(
            overlapped.answer_vote(&asked_then, &Vote::new(8, OWN)).is_err(),
            "it has not stood so often"
        );
        let more = AppendEntriesResponse::PartialSuccess(Some(id(6, 12)));
        assert!(known().check_appended(&asked, (Some(id(4, 10)), Some(id(6, 11))), &more).is_err());
    }
}
