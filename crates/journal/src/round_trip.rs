//! One question to another replica and its answer: what it says of itself now.

use crate::journal::Journal;
use crate::peer::{Link, PeerReply, PeerRequest, ReplicaReport};
use lifecycle::names::{ReplicaId, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What a replica answered, and when.
#[derive(Debug, Clone)]
pub struct RoundTrip {
    pub report: ReplicaReport,
    /// What this machine's clock said halfway between the question and the answer.
    pub halfway: Timestamp,
    pub took: Duration,
}

impl Journal {
    /// Asks these replicas at the same time, each over a connection made for this question: it waits behind no other one, and none that
    /// was open before makes a process that has ended look alive. Who is missing in the result did not answer within `limit`.
    pub async fn ask_now(
        self: &Arc<Self>,
        replicas: impl IntoIterator<Item = ReplicaId>,
        limit: Duration,
    ) -> BTreeMap<ReplicaId, RoundTrip> {
        let mut asking = JoinSet::new();
        for replica in replicas {
            let journal = Arc::clone(self);
            asking.spawn(async move {
                let link = Link::new(replica, journal.roster().clone());
                let asked = tokio::time::timeout(limit, exchange_reports(&journal, replica, &link));
                Some((replica, asked.await.ok()??))
            });
        }
        let mut answered = BTreeMap::new();
        while let Some(asked) = asking.join_next().await {
            answered.extend(asked.ok().flatten());
        }
        answered
    }
}

/// Tells another replica what this one says of itself, and hears the same of that one.
pub(crate) async fn exchange_reports(
    journal: &Journal,
    replica: ReplicaId,
    link: &Link,
) -> Option<RoundTrip> {
    let own = journal.served().report();
    let began = Instant::now();
    let Ok(PeerReply::Report { report, audit_differs }) = link.ask(PeerRequest::Report(own)).await else {
        return None;
    };
    let took = began.elapsed();
    // Of the machines' clocks: the time that a replica goes by may be right although its clock is not.
    let shown = |report: &ReplicaReport| report.wall.unwrap_or(report.now);
    let half = u64::try_from(took.as_millis() / 2).unwrap_or(u64::MAX);
    let halfway = Timestamp::from_millis(shown(&journal.served().report()).millis().saturating_sub(half));
    let offset = shown(&report).ahead_of(halfway);
    journal.roster().heard(replica, report.clone(), offset);
    // The leader has the trail of the log; who differs from it stops.
    if audit_differs && journal.leader() == Some(replica) {
        journal.trail_differs.store(true, Ordering::Release);
    }
    Some(RoundTrip { report, halfway, took })
}
