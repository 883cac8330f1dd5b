//! Denied certificates that came back become an alert about their node.

use super::record;
use crate::process::app::App;
use lifecycle::registry::Command;

/// What this replica's handshakes have counted: what is due, or all of it when the process ends.
pub async fn record_sightings(app: &App, all: bool) {
    for seen in app.fleet.denied.due(app.now(), all) {
        tracing::warn!(node = %seen.node, serial = %seen.serial, source = %seen.source, "a denied certificate came back");
        if record(app, Command::RecordDeniedCertificate(seen.clone())).await.is_none() {
            app.fleet.denied.not_recorded(seen);
        }
    }
}
