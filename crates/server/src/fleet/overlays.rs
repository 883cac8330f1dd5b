//! The overlay on this replica: who is told of its changes, who waits for news of it, and how many answers with peers are on
//! their way. What the news is, the registry says.

pub mod claim;
pub mod feed;
pub mod feeds;
pub mod frames;
pub mod rendered;
pub mod tap;

use crate::fleet::live::until;
use crate::process::app::App;
use crate::process::views::Views;
use feeds::Feeds;
use imbl::ordmap::DiffItem;
use lifecycle::names::{NodeId, TenantId};
use pki::overlay_proof::ClaimKey;
use rendered::RenderedOverlays;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Answers of one host that may be on their way at once: more than one, because a host that asks again may do so
/// before it is known that its old connection is dead.
pub const UNFINISHED: usize = 16;
/// How many of them may wait for news: others still find a turn.
pub const WAITING: usize = 4;
/// Enrollments that may be in progress or on their way out, of all hosts. Each holds a few dozen KiB at most.
const ENROLLMENTS: usize = 4096;
/// How long an enrollment waits for its place.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether hosts read what they are sent.
const LOOK: Duration = Duration::from_secs(5);

pub struct Overlays {
    tenants: Mutex<HashMap<TenantId, Arc<Notify>>>,
    turns: Arc<Mutex<HashMap<NodeId, usize>>>,
    enrollments: Arc<Semaphore>,
    pub feeds: Feeds,
    pub rendered: RenderedOverlays,
    /// By which hosts prove that they have a WireGuard key.
    pub key: ClaimKey,
}

/// Held from the moment a host is told of its peers, or waits for that, until the last byte has left.
pub struct AnswerPermit {
    turns: Arc<Mutex<HashMap<NodeId, usize>>>,
    node: NodeId,
    enrollment: Option<OwnedSemaphorePermit>,
}

impl Overlays {
    pub fn new(key: ClaimKey) -> Self {
        let enrollments = Arc::new(Semaphore::new(ENROLLMENTS));
        let (tenants, turns) = (Mutex::default(), Arc::default());
        let (feeds, rendered) = (Feeds::default(), RenderedOverlays::default());
        Self { tenants, turns, enrollments, feeds, rendered, key }
    }

    /// Told when the overlay of a tenant that exists has changed.
    pub fn news(&self, tenant: &TenantId) -> Arc<Notify> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.entry(tenant.clone()).or_default().clone()
    }

    /// A turn, unless the host has as many already as it may.
    pub fn turn(&self, node: &NodeId, limit: usize) -> Option<AnswerPermit> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = turns.get(node).copied().unwrap_or_default();
        if taken >= limit {
            return None;
        }
        turns.insert(node.clone(), taken + 1);
        Some(AnswerPermit { turns: self.turns.clone(), node: node.clone(), enrollment: None })
    }

    /// A place for an enrollment, or none in time.
    pub async fn enrollment(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(PATIENCE, self.enrollments.clone().acquire_owned()).await.ok()?.ok()
    }
}

impl AnswerPermit {
    /// Keeps the enrollment's place as long as the turn.
    pub fn of_enrollment(self, place: OwnedSemaphorePermit) -> Self {
        let mut turn = self;
        turn.enrollment = Some(place);
        turn
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = turns.get_mut(&self.node) {
            *taken -= 1;
            if *taken == 0 {
                turns.remove(&self.node);
            }
        }
    }
}

/// Tells connected hosts what has changed, and wakes those who wait for it, until the process stops.
pub async fn follow(app: Arc<App>) {
    let mut views = Views::new(&app);
    let mut held_back = None;
    let mut look = tokio::time::interval(LOOK);
    let overlays = &app.fleet.overlays;
    loop {
        tokio::select! {
            change = views.next() => match change {
                Some((before, now)) => {
                    for item in before.state.overlays.diff(&now.state.overlays) {
                        if let DiffItem::Add(tenant, _) | DiffItem::Update { new: (tenant, _), .. } = item {
                            overlays.news(tenant).notify_waiters();
                        }
                    }
                    if before.state.overlays.ptr_eq(&now.state.overlays) {
                        continue;
                    }
                }
                None => return,
            },
            () = until(held_back) => {}
            now = look.tick() => {
                overlays.feeds.look(now);
                continue;
            }
        }
        held_back = overlays.feeds.advance(&views.seen().state, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_so_many_turns_and_gives_them_back() {
        let Ok(overlays) = ClaimKey::generate().map(Overlays::new) else { return };
        let Ok(node) = NodeId::parse("n1") else { return };
        let waiting: Vec<_> = (0..6).filter_map(|_| overlays.turn(&node, WAITING)).collect();
        assert_eq!(waiting.len(), WAITING);
        let others: Vec<_> = (0..20).filter_map(|_| overlays.turn(&node, UNFINISHED)).collect();
        assert_eq!(others.len(), UNFINISHED - WAITING);
        drop((waiting, others));
        assert!(overlays.turn(&node, WAITING).is_some());
        assert!(overlays.turns.lock().is_ok_and(|turns| turns.is_empty()));
    }
}
