//! The issuer in this replica's memory is replaced when half of its life is over, at once when it was revoked, and until it could be
//! published.

use crate::ca::ephemeral;
use crate::process::app::App;
use std::sync::Arc;
use std::time::Duration;

const TICK: Duration = Duration::from_secs(1);

/// Runs until the process stops.
pub async fn run(app: Arc<App>) {
    tokio::select! {
        () = app.stopped() => {}
        () = replace(&app) => {}
    }
}

async fn replace(app: &App) {
    let mut changes = app.journal.changes();
    // The code of the last failure: one that stays the same has one line in the log.
    let mut failing = None;
    loop {
        match ephemeral::ensure(app).await {
            Ok(()) => {
                failing = None;
                let revoked =
                    async { while ephemeral::is_published(app) && changes.changed().await.is_ok() {} };
                let _ = tokio::time::timeout(TICK, revoked).await;
            }
            Err(failure) => {
                if failing.replace(failure.code.word) != Some(failure.code.word) {
                    let code = failure.code.word;
                    tracing::error!(code, "the ephemeral issuer was not published: {}", failure.message);
                }
                tokio::time::sleep(TICK).await;
            }
        }
    }
}
