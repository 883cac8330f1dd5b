//! Passes on to step-ca what it has yet to revoke: at once, and again until it has. The registry is the queue.

use super::record;
use crate::ca::step_ca;
use crate::process::app::App;
use futures::StreamExt as _;
use lifecycle::names::Serial;
use lifecycle::registry::{Command, UndeliveredRevocation};
use std::sync::Arc;
use std::time::Duration;

/// Calls at once, so that there is room for those that sign.
const AT_ONCE: usize = 4;
/// Revocations of one round, and of one entry.
const ROUND: usize = 64;
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs until the process stops. Every replica looks; the one that leads passes on.
pub async fn run(app: Arc<App>) {
    let mut changes = app.journal.changes();
    let mut pause = PAUSE;
    loop {
        changes.mark_unchanged();
        let failed = match app.journal.leadership().await {
            Some(leadership) => !deliver(&app, &leadership).await,
            None => false,
        };
        pause = if failed { (pause * 2).min(LONGEST_PAUSE) } else { PAUSE };
        tokio::select! {
            // After a failure new revocations wait too: step-ca does not take the old ones.
            _ = changes.changed(), if !failed => {}
            () = tokio::time::sleep(pause) => {}
            () = app.stopped() => return,
        }
    }
}

/// One round; tells whether nothing failed.
async fn deliver(app: &Arc<App>, leadership: &journal::Leadership) -> bool {
    let view = app.view();
    let owed = view.state.undelivered_revocations.iter().take(ROUND);
    let owed: Vec<_> = owed.map(|(serial, owed)| (serial.clone(), owed.clone())).collect();
    if owed.is_empty() {
        return true;
    }
    let calls = owed.into_iter().map(|(serial, owed)| delivered(app.clone(), serial, owed));
    let results: Vec<Option<Serial>> = futures::stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    let count = results.len();
    let serials: Vec<Serial> = results.into_iter().flatten().collect();
    let is_whole = serials.len() == count;
    if !serials.is_empty() && app.journal.still_leads(leadership) {
        record(app, Command::RecordDeliveredRevocations { serials }).await;
    }
    is_whole
}

/// The serial, if it is revoked now.
async fn delivered(app: Arc<App>, serial: Serial, owed: UndeliveredRevocation) -> Option<Serial> {
    // What was signed by an issuer that is no longer on record cannot be revoked there; it ends with its time.
    let issuer = app.view().state.issuers.get(&owed.issuer).cloned()?;
    let access = app.ca.step_ca.access_to(&app, &issuer).ok()?;
    match step_ca::revoke(&app, &access, &serial, &owed).await {
        Ok(()) => Some(serial),
        Err(failure) => {
            tracing::debug!(%serial, "step-ca has not revoked a certificate: {failure}");
            None
        }
    }
}
