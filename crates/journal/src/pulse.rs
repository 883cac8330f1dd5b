//! What a replica of a cluster does all the time: shows itself that a quorum still follows its leader, and exchanges reports.

use crate::barrier::QuorumProof;
use crate::journal::Journal;
use crate::peer::{Link, copy_missing};
use crate::round_trip::exchange_reports;
use lifecycle::names::ReplicaId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often.
const PULSE: Duration = Duration::from_millis(500);
/// Reports are exchanged at every so many pulses.
const PULSES_PER_REPORT: u64 = 2;
/// How far the others have come is kept at every so many; their starts at once.
const PULSES_PER_MARKS: u64 = 20;

/// How often it is looked whether lines of the audit trail are missing.
const TRAIL: Duration = Duration::from_secs(1);

/// Runs until the journal closes.
pub async fn run(journal: Arc<Journal>) {
    let mut closing = journal.closing();
    let mut links: BTreeMap<ReplicaId, Link> = BTreeMap::new();
    let mut count: u64 = 0;
    // The others are told at once that this process is there: they may have seen another one.
    report(&journal, &mut links).await;
    loop {
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(PULSE) => {}
        }
        count += 1;
        journal.let_stand();
        if count.is_multiple_of(PULSES_PER_MARKS) {
            journal.roster().keep_marks();
        }
        let (voters, learners) = journal.membership();
        journal.roster().follow_membership(voters.union(&learners).copied().collect());
        if !journal.is_alone() {
            // Its result is the proof; without one nothing is to be done here.
            let _ = journal.barrier().await;
        } else {
            if journal.is_fit() {
                journal.is_its_own_quorum();
            }
            if journal.roster().others().is_empty() {
                continue;
            }
        }
        journal.roster().was_complete(journal.quorum_age());
        if count.is_multiple_of(PULSES_PER_REPORT) {
            report(&journal, &mut links).await;
        }
    }
}

/// Tells the others, and hears from them.
async fn report(journal: &Arc<Journal>, links: &mut BTreeMap<ReplicaId, Link>) {
    let others = journal.roster().others();
    links.retain(|replica, _| others.contains(replica));
    for replica in others {
        let link =
            links.entry(replica).or_insert_with(|| Link::new(replica, journal.roster().clone())).clone();
        let journal = Arc::clone(journal);
        tokio::spawn(async move { exchange_reports(&journal, replica, &link).await });
    }
}

/// Copies lines of the audit trail that a snapshot has passed over. Beside the pulse: millions of them take longer than a proof of a
/// quorum may be old.
pub async fn keep_trail(journal: Arc<Journal>) {
    let mut closing = journal.closing();
    let copying = async {
        loop {
            copy_trail(&journal).await;
            tokio::time::sleep(TRAIL).await;
        }
    };
    tokio::select! {
        _ = closing.wait_for(|closing| *closing) => {}
        () = copying => {}
    }
}

async fn copy_trail(journal: &Journal) {
    let Some(leader) = journal.leader().filter(|leader| *leader != journal.replica()) else { return };
    let copied = copy_missing(&journal.machine, journal.board(), journal.roster(), leader, || {
        journal.lines_missing.store(true, Ordering::Release);
    });
    match copied.await {
        Ok(_) => journal.lines_missing.store(false, Ordering::Release),
        Err(error) => tracing::warn!(%error, "lines of the audit trail are missing here"),
    }
}

/// Ends when no quorum was heard of for so long.
pub async fn lost(proof: &QuorumProof, limit: Duration) {
    loop {
        match limit.checked_sub(proof.missing_for()).filter(|left| !left.is_zero()) {
            Some(left) => tokio::time::sleep(left).await,
            None => return,
        }
    }
}
