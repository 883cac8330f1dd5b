//! Alerts about certificates that their hosts should have renewed long ago. A part of the fleet at a time.

use super::propose;
use super::walk::FleetWalk;
use crate::process::app::App;
use journal::Leadership;
use lifecycle::registry::{AlertKind, Command, RaiseAlert};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Expiry {
    walk: FleetWalk,
}

impl Expiry {
    pub async fn tick(&mut self, app: &App, leadership: &Leadership) {
        let (view, now) = (app.view(), app.now());
        let open = view.state.alerts.values().filter(|alert| alert.kind == AlertKind::CertExpiring);
        let reported: BTreeMap<_, _> =
            open.map(|alert| (alert.node.as_ref(), alert.detail.as_str())).collect();
        let due = self.walk.next(&view.state, |node| {
            let detail = view.state.expiring(node, now)?;
            (reported.get(&Some(&node.id)) != Some(&detail.as_str())).then_some((&node.id, detail))
        });
        for (id, detail) in due {
            let alert = RaiseAlert { kind: AlertKind::CertExpiring, node: Some(id.clone()), detail };
            propose(app, leadership, Command::RaiseAlert(alert)).await;
        }
    }
}
