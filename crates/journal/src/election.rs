//! Stands for election where openraft would wait for too long.
//!
//! openraft 0.9 holds back a replica that has once lost an election to a longer log, by twice the longest election time-out, and
//! forgets that only when it stands by its own timer: long afterwards, and with the longest log of all, it would still wait. And of two
//! that stand in the same term the one with the higher id wins or nobody does, although only the longer log can win.

use crate::journal::Journal;
use lifecycle::names::ReplicaId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(250);
/// After so many looks without a word of a leader, at the least. By then every replica that is not held back has stood: after the lease
/// and the longest time-out (2.6 s) and openraft's own tick (0.3 s).
const SILENT: u64 = 12;
/// And so many more at the most, so that two rarely stand at once.
const SPREAD: u64 = 3;
/// Between two attempts.
const AGAIN: u64 = 3;
/// What another replica said of its log counts for so long: what the leader said before it died does not.
const HEARD: Duration = Duration::from_millis(2500);

/// Runs until the journal closes.
pub async fn run(journal: Arc<Journal>) {
    let mut closing = journal.closing();
    let patience = SILENT + journal.roster().identity().starts.mark().incarnation % SPREAD;
    // Counted, not read from a clock: a process that stood still has missed nothing.
    let (mut heard, mut silent) = (0, 0);
    loop {
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(TICK) => {}
        }
        let appends = journal.served().appends.load(Ordering::Acquire);
        silent = if appends == heard { silent + 1 } else { 0 };
        heard = appends;
        if silent >= patience && should_stand(&journal) {
            silent = patience - AGAIN;
            tracing::debug!("nothing was heard of a leader: standing for election");
            // Where the journal is closing, nobody needs to lead.
            let _ = journal.raft.trigger().elect().await;
        }
    }
}

/// One that votes and does not lead, if none of the others that can be reached has a longer log: that one would refuse its vote.
fn should_stand(journal: &Journal) -> bool {
    let (voters, _) = journal.membership();
    let own = journal.served().report().last_log;
    let others: Vec<ReplicaId> =
        voters.iter().copied().filter(|id| *id != journal.replica().0).map(ReplicaId).collect();
    let is_behind = others.iter().any(|id| {
        let standing = journal.roster().standing(*id);
        standing.is_reachable(HEARD) && standing.report.is_some_and(|report| report.last_log > own)
    });
    let votes = voters.contains(&journal.replica().0) && !others.is_empty();
    votes && !is_behind && !journal.is_leader() && journal.may_stand()
}
