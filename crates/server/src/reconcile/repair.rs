//! Repaired nodes that have been well for long enough are let go, by the replica that they are connected to.

use super::record;
use crate::process::app::App;
use lifecycle::names::{NodeId, Span};
use lifecycle::registry::{Command, Node};
use std::sync::Arc;

pub async fn tick(app: &App) {
    let (view, now) = (app.view(), app.now());
    let policy = &view.state.policy;
    // Two heartbeats may be lost.
    let heartbeats = policy.liveness_interval.millis().saturating_mul(2);
    let silence = Span::from_millis(policy.liveness_grace.millis().saturating_add(heartbeats));
    let proven = |node: &&Arc<Node>| {
        let since = app.fleet.presence.well_since(&node.id, silence, now);
        since.is_some_and(|since| since.plus(policy.quarantine_observe) <= now)
    };
    let repaired = view.state.nodes.values().filter(|node| node.quarantined && node.recovery.is_repaired());
    let proven: Vec<NodeId> = repaired.filter(proven).map(|node| node.id.clone()).collect();
    for node in proven {
        record(app, Command::EndRepair { node }).await;
    }
}
