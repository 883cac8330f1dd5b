//! Writes the anchor of the audit trail, the newest checkpoint each time, until it is taken; an alert says when it is not.

use super::{propose, record};
use crate::process::anchor::AnchorPlace;
use crate::process::app::App;
use client::backoff::RetryPauses;
use journal::Leadership;
use lifecycle::registry::{AlertKind, Command, RaiseAlert};
use std::sync::Arc;

/// A server that is restarted is no reason for an alert.
const FAILURES: u32 = 3;

/// Runs until the process stops, which then writes the anchor itself.
pub async fn run(app: Arc<App>, anchor: AnchorPlace) {
    tokio::select! {
        () = app.stopped() => {}
        () = write(&app, &anchor) => {}
    }
}

async fn write(app: &App, anchor: &AnchorPlace) {
    let mut queue = app.anchor_queue.follow();
    if app.journal.leadership().await.is_some() {
        // The start has written the anchor; the alert is one that an earlier run has left.
        clear(app).await;
    }
    let (mut failures, mut pauses) = (0_u32, RetryPauses::default());
    loop {
        let newest = queue.borrow_and_update().clone();
        let Some(text) = newest else {
            if queue.changed().await.is_err() {
                return;
            }
            continue;
        };
        match anchor.write(&app.config.audit, text).await {
            Ok(()) => {
                if failures > 0 {
                    tracing::info!(%anchor, failures, "the anchor of the audit trail is written again");
                }
                (failures, pauses) = (0, RetryPauses::default());
                clear(app).await;
                if queue.changed().await.is_err() {
                    return;
                }
            }
            Err(why) => {
                failures = failures.saturating_add(1);
                app.metrics.anchor_failed();
                if failures == 1 {
                    tracing::error!(%anchor, error = why, "the anchor of the audit trail was not written");
                }
                let open = app.view().state.open_alert(AlertKind::AuditAnchorFailing, None).is_some();
                if failures >= FAILURES && !open {
                    let detail = format!("the anchor {anchor} of the audit trail is not written: {why}");
                    let alert = RaiseAlert { kind: AlertKind::AuditAnchorFailing, node: None, detail };
                    record(app, Command::RaiseAlert(alert)).await;
                }
                tokio::time::sleep(pauses.next(None)).await;
            }
        }
    }
}

async fn clear(app: &App) {
    if let Some(alert) = app.view().state.open_alert(AlertKind::AuditAnchorFailing, None) {
        record(app, Command::ClearAlert { alert: alert.id }).await;
    }
}

/// Clears what an earlier run left, when there is no anchor any more.
pub async fn forget(app: &App, leadership: &Leadership) {
    if app.config.audit.anchor.is_none()
        && let Some(alert) = app.view().state.open_alert(AlertKind::AuditAnchorFailing, None)
    {
        propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
    }
}
