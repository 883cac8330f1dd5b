//! One view after the other, for whoever acts on what lies between two.

use crate::process::app::App;
use journal::View;
use std::sync::Arc;
use tokio::sync::watch;

pub struct Views {
    app: Arc<App>,
    changes: watch::Receiver<u64>,
    seen: Arc<View>,
}

impl Views {
    pub fn new(app: &Arc<App>) -> Self {
        // Subscribed before the first look, so that nothing falls in between.
        let changes = app.journal.changes();
        Self { app: app.clone(), changes, seen: app.view() }
    }

    /// The view that was given last.
    pub fn seen(&self) -> &Arc<View> {
        &self.seen
    }

    /// The view before and the next one, which may be several entries later; none once the process stops. Nothing is
    /// lost when this is cancelled.
    pub async fn next(&mut self) -> Option<(Arc<View>, Arc<View>)> {
        tokio::select! {
            changed = self.changes.changed() => changed.ok()?,
            () = self.app.stopped() => return None,
        }
        let now = self.app.view();
        let before = std::mem::replace(&mut self.seen, now.clone());
        Some((before, now))
    }
}
