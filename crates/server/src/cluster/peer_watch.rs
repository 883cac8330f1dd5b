//! What the log says of the other replicas: which one leads, which one is gone, and which one is back.

use super::QUORUM_LOST;
use super::status::UNREACHABLE;
use crate::process::app::App;
use lifecycle::names::ReplicaId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const TICK: Duration = Duration::from_secs(1);
/// A replica that has just joined is started for the first time by then.
const FIRST_START: Duration = Duration::from_secs(30);
const NEVER: &str = "see that it runs, and that this machine reaches its address; if the address is wrong, set names, listen or peer_listen in the enlist.toml of \
                     that replica and start it again";
const GONE: &str = "see that it runs, and that TCP is open between the two machines at its address";

/// Apart from the housekeeping, which waits for a leader. Runs until the process stops.
pub async fn run(app: Arc<App>) {
    let mut watch = PeerWatch::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => watch.tick(&app),
            () = app.stopped() => return,
        }
    }
}

#[derive(Default)]
struct PeerWatch {
    /// With its term.
    leader: Option<(ReplicaId, u64)>,
    others: BTreeMap<ReplicaId, PeerContact>,
}

struct PeerContact {
    /// Since when it is looked for.
    began: Instant,
    was_reached: bool,
    is_gone: bool,
}

/// What is to be said of a replica.
#[derive(Debug, PartialEq, Eq)]
enum PeerChange {
    NeverReached,
    Gone,
    Back,
}

impl PeerContact {
    fn new() -> Self {
        Self { began: Instant::now(), was_reached: false, is_gone: false }
    }

    /// One that was never reached is for the leader to tell: it is the one that sends the log.
    fn change(&mut self, is_reached: bool, leads: bool, waited: Duration) -> Option<PeerChange> {
        let change = match (is_reached, self.is_gone) {
            (true, true) => PeerChange::Back,
            (false, false) if self.was_reached => PeerChange::Gone,
            (false, false) if leads && waited >= FIRST_START => PeerChange::NeverReached,
            (true, false) | (false, false | true) => {
                self.was_reached |= is_reached;
                return None;
            }
        };
        self.was_reached |= is_reached;
        self.is_gone = !is_reached;
        Some(change)
    }
}

impl PeerWatch {
    fn tick(&mut self, app: &App) {
        let (view, own) = (app.view(), app.journal.replica());
        let others: BTreeMap<ReplicaId, &str> = view
            .state
            .members()
            .filter(|member| member.id != own)
            .map(|member| (member.id, member.peer.as_str()))
            .collect();
        self.others.retain(|replica, _| others.contains_key(replica));
        // One that the others do not talk to is told so by itself, once.
        if others.is_empty() || super::exclusions(app).next().is_some() {
            return;
        }
        let leader = app.journal.leader().filter(|_| app.journal.quorum_age() <= QUORUM_LOST);
        let leads = leader == Some(own);
        let now = leader.map(|leader| (leader, app.journal.replication().term));
        if let Some((replica, term)) = now.filter(|_| now != self.leader) {
            tracing::info!(%replica, term, "{} leads", if leads { "this replica" } else { "another replica" });
            self.leader = now;
        }
        for (replica, address) in others {
            let is_reached = app.journal.standing(replica).is_reachable(UNREACHABLE);
            let contact = self.others.entry(replica).or_insert_with(PeerContact::new);
            match contact.change(is_reached, leads, contact.began.elapsed()) {
                Some(PeerChange::NeverReached) => {
                    tracing::warn!(%replica, address, remedy = NEVER, "this replica has never reached another one");
                }
                Some(PeerChange::Gone) => {
                    tracing::warn!(%replica, address, remedy = GONE, "another replica has not been heard of for 5 seconds");
                }
                Some(PeerChange::Back) => {
                    tracing::info!(%replica, address, "another replica is reached")
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_another_replica_is_told_once() {
        let mut contact = PeerContact::new();
        let told =
            [true, false, false, true, true].map(|reached| contact.change(reached, false, FIRST_START));
        assert_eq!(told, [None, Some(PeerChange::Gone), None, Some(PeerChange::Back), None]);
    }

    #[test]
    fn the_leader_tells_of_one_that_was_never_reached() {
        let (mut leading, mut following) = (PeerContact::new(), PeerContact::new());
        assert_eq!(leading.change(false, true, Duration::ZERO), None, "it may still be started");
        assert_eq!(leading.change(false, true, FIRST_START), Some(PeerChange::NeverReached));
        assert_eq!(leading.change(false, true, FIRST_START), None);
        assert_eq!(leading.change(true, true, FIRST_START), Some(PeerChange::Back));
        assert_eq!(following.change(false, false, FIRST_START), None);
    }
}
