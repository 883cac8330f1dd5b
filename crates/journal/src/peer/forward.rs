//! How a follower reaches the leader: its commands, and its reads that must be fresh.

use super::link::Link;
use super::roster::Roster;
use super::wire::{PeerReply, PeerRequest, ProposalFate};
use lifecycle::names::ReplicaId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections to the leader for commands: as many groups of them may be under way.
const LINKS: usize = 4;

/// Links to the replica that leads now.
pub struct LeaderLinks {
    roster: Arc<Roster>,
    current: Mutex<Option<(ReplicaId, Arc<Vec<Link>>)>>,
    next: AtomicUsize,
}

impl LeaderLinks {
    pub fn new(roster: Arc<Roster>) -> Self {
        Self { roster, current: Mutex::new(None), next: AtomicUsize::new(0) }
    }

    fn links(&self, leader: ReplicaId) -> Arc<Vec<Link>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((known, links)) if *known == leader => Arc::clone(links),
            _ => {
                let links: Vec<Link> = (0..=LINKS).map(|_| Link::new(leader, self.roster.clone())).collect();
                let links = Arc::new(links);
                *current = Some((leader, Arc::clone(&links)));
                links
            }
        }
    }

    /// The index at which these commands are applied, and what became of each; none if the leader could not be asked, and
    /// whether it may have taken them all the same.
    pub async fn propose(
        &self,
        leader: ReplicaId,
        commands: Vec<serde_bytes::ByteBuf>,
    ) -> Result<(u64, Vec<ProposalFate>), ProposalFate> {
        let links = self.links(leader);
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % LINKS;
        let Some(link) = links.get(turn) else { return Err(ProposalFate::NotTaken) };
        match link.ask(PeerRequest::Propose { commands }).await {
            Ok(PeerReply::Proposed { index, fates }) => Ok((index, fates)),
            Ok(_) => Err(ProposalFate::NotTaken),
            Err(error) if error.sent => Err(ProposalFate::Unknown),
            Err(_) => Err(ProposalFate::NotTaken),
        }
    }

    /// How far a view must have come to hold everything acknowledged until now.
    pub async fn read_index(&self, leader: ReplicaId) -> Option<u64> {
        let links = self.links(leader);
        // One of its own: it does not wait behind commands.
        match links.last()?.ask(PeerRequest::ReadIndex).await {
            Ok(PeerReply::ReadIndex { index }) => Some(index),
            Ok(_) | Err(_) => None,
        }
    }
}
