//! What readers see: the registry and the head of the audit trail at one moment.

use lifecycle::names::Fingerprint;
use lifecycle::registry::State;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// The last line of the audit trail: its number and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHead {
    pub seq: u64,
    pub head: Fingerprint,
}

impl Default for AuditHead {
    /// Before the first line.
    fn default() -> Self {
        Self { seq: 0, head: Fingerprint::new([0; 32]) }
    }
}

/// A consistent snapshot.
#[derive(Debug, Clone)]
pub struct View {
    pub state: State,
    /// The index of the last entry that is in it.
    pub applied_index: u64,
    pub audit: AuditHead,
}

/// Where the newest view hangs.
pub struct Board {
    view: RwLock<Arc<View>>,
    changes: watch::Sender<u64>,
}

impl Board {
    pub fn new(view: View) -> Self {
        let (changes, _) = watch::channel(view.applied_index);
        Self { view: RwLock::new(Arc::new(view)), changes }
    }

    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The view once the entry with this index is in it.
    pub async fn reached(&self, index: u64) -> Arc<View> {
        // The sender is a field of this board, so waiting cannot fail.
        let _ = self.changes().wait_for(|applied| *applied >= index).await;
        self.view()
    }

    pub fn publish(&self, view: View) {
        let applied = view.applied_index;
        let view = Arc::new(view);
        let old = std::mem::replace(&mut *self.view.write().unwrap_or_else(PoisonError::into_inner), view);
        self.changes.send_replace(applied);
        // Only now, outside the lock: the last holder of a view takes whole trees down with it.
        drop(old);
    }
}
