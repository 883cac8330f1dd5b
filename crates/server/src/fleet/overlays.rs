//! Who waits for news of an overlay, and how many answers with peers are on their way. What the news is, the
//! registry says.

use crate::process::app::App;
use crate::process::views::Views;
use imbl::ordmap::DiffItem;
use lifecycle::names::{NodeId, TenantId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Answers of one host that may be on their way at once: more than one, because a host that asks again may do so
/// before it is known that its old connection is dead.
pub const UNFINISHED: usize = 16;
/// How many of them may wait for news: others still find a turn.
pub const WAITING: usize = 4;
/// Enrollments that may be in progress or on their way out, of all hosts. Each holds a few dozen KiB at most.
const ENROLLMENTS: usize = 4096;
/// How long an enrollment waits for its place.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Overlays {
    tenants: Mutex<HashMap<TenantId, Arc<Notify>>>,
    turns: Arc<Mutex<HashMap<NodeId, usize>>>,
    enrollments: Arc<Semaphore>,
}

impl Default for Overlays {
    fn default() -> Self {
        let enrollments = Arc::new(Semaphore::new(ENROLLMENTS));
        Self { tenants: Mutex::default(), turns: Arc::default(), enrollments }
    }
}

/// Held from the moment a host is told of its peers, or waits for that, until the last byte has left.
pub struct AnswerPermit {
    turns: Arc<Mutex<HashMap<NodeId, usize>>>,
    node: NodeId,
    enrollment: Option<OwnedSemaphorePermit>,
}

impl Overlays {
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

/// Wakes those who wait for the overlays that have changed, until the process stops.
pub async fn follow(app: Arc<App>) {
    let mut views = Views::new(&app);
    while let Some((before, now)) = views.next().await {
        for item in before.state.overlays.diff(&now.state.overlays) {
            if let DiffItem::Add(tenant, _) | DiffItem::Update { new: (tenant, _), .. } = item {
                app.fleet.overlays.news(tenant).notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_so_many_turns_and_gives_them_back() {
        let overlays = Overlays::default();
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
