//! Alerts about nodes that have been silent for long. A part of the fleet at a time.

use super::propose;
use super::walk::FleetWalk;
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::{AlertId, NodeId};
use lifecycle::registry::{AlertKind, Command, RaiseAlert};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct LongSilence {
    walk: FleetWalk,
}

impl LongSilence {
    pub async fn tick(&mut self, app: &App, leadership: &Leadership) {
        let (view, now) = (app.view(), app.now());
        let state = &view.state;
        let open = state.alerts.values().filter(|alert| alert.kind == AlertKind::NodeSilent);
        let open: BTreeMap<&NodeId, AlertId> =
            open.filter_map(|alert| Some((alert.node.as_ref()?, alert.id))).collect();
        let silent =
            |id: &NodeId| state.nodes.get(id).is_some_and(|node| state.silent_for_long(node, now).is_some());
        // Another limit was set. Who is heard again ends its alert by that.
        for alert in open.iter().filter(|(id, _)| !silent(id)).map(|(_, alert)| *alert) {
            propose(app, leadership, Command::ClearAlert { alert }).await;
        }
        // Whoever was silent before a start of this process is given the time to come back that everybody has.
        if app.fleet.listening_since().plus(state.policy.liveness_grace) > now {
            return;
        }
        let due = self.walk.next(state, |node| {
            let detail = state.silent_for_long(node, now)?;
            (!open.contains_key(&node.id)).then_some((&node.id, detail))
        });
        for (id, detail) in due {
            let alert = RaiseAlert { kind: AlertKind::NodeSilent, node: Some(id.clone()), detail };
            propose(app, leadership, Command::RaiseAlert(alert)).await;
        }
    }
}
