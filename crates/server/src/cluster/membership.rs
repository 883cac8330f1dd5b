//! Who votes follows who is a member: the leader compares raft's membership with the registry, and makes one change at a time.

use super::ANSWER;
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::ReplicaId;
use lifecycle::registry::{MembershipChange, next_change};
use std::collections::BTreeSet;
use std::time::Duration;

/// One that was not heard of within this time is not asked.
const REACHABLE: Duration = Duration::from_secs(5);
/// One that lacks no more entries than this has caught up.
const BEHIND: u64 = 16;
/// How long a change may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long a leader that is to vote no more tries to give the lead away first.
const HAND_OVER: Duration = Duration::from_secs(3);

pub async fn tick(app: &App, leadership: &Leadership) {
    let view = app.view();
    if view.state.replicas.is_empty() || !app.journal.still_leads(leadership) {
        return;
    }
    let own = app.journal.replica().0;
    let heard_of = |id: &u64| *id == own || app.journal.standing(ReplicaId(*id)).is_reachable(REACHABLE);
    let everybody = view.state.members().map(|member| member.id.0).chain(app.journal.membership().0);
    let mut reachable: BTreeSet<u64> = everybody.filter(heard_of).collect();
    let Some(mut change) = next(app, &reachable) else { return };
    // Who votes decides what a majority is. One that was heard of a moment ago may have ended since: each is asked now.
    if matches!(change, MembershipChange::SetVoters(_)) {
        let others = reachable.iter().copied().filter(|id| *id != own).map(ReplicaId);
        let answered = app.journal.ask_now(others, ANSWER).await;
        reachable = answered.keys().map(|id| id.0).chain([own]).collect();
        match next(app, &reachable) {
            Some(still) => change = still,
            None => return,
        }
    }
    tracing::info!(?change, "the membership of the cluster changes");
    if let MembershipChange::SetVoters(voters) = &change
        && !voters.contains(&own)
        && app.journal.hand_over(HAND_OVER).await
    {
        tracing::info!("this replica was removed: another one leads now, and takes it out of the voters");
        return;
    }
    let changing = async {
        match change {
            MembershipChange::AddLearner(id) => app.journal.add_learner(id).await,
            MembershipChange::SetVoters(voters) => app.journal.set_voters(voters).await,
            MembershipChange::DropLearner(id) => app.journal.drop_learner(id).await,
        }
    };
    match tokio::time::timeout(LIMIT, changing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the membership of the cluster was not changed"),
        Err(_) => tracing::warn!("the membership of the cluster was not changed in time"),
    }
}

/// What to change next if these can be reached. One that was removed is needed for as long as it votes.
fn next(app: &App, reachable: &BTreeSet<u64>) -> Option<MembershipChange> {
    let (view, replication) = (app.view(), app.journal.replication());
    let members: BTreeSet<u64> = view.state.members().map(|member| member.id.0).collect();
    let (voters, learners) = app.journal.membership();
    let caught_up =
        replication.matched.iter().filter(|(_, at)| at.saturating_add(BEHIND) >= replication.last_log);
    let caught_up: BTreeSet<u64> = caught_up.map(|(id, _)| *id).collect();
    let forced = view.state.replicas.values().filter(|replica| replica.removed_by_force);
    let forced: BTreeSet<u64> = forced.map(|replica| replica.id.0).collect();
    next_change(&members, &voters, &learners, &caught_up, reachable, &forced)
}
