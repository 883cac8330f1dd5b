//! Alerts about certificates that their hosts should have renewed long ago. A part of the fleet at a time.

use super::propose;
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::NodeId;
use lifecycle::registry::{AlertKind, Command, RaiseAlert};
use std::collections::BTreeMap;
use std::ops::Bound;

/// How many nodes one tick looks at.
const AT_ONCE: usize = 1000;
/// How many alerts one tick raises: a fleet whose certificates end together is reported in parts.
const RAISED: usize = 100;

/// Where the last look ended.
#[derive(Default)]
pub struct Expiry {
    after: Option<NodeId>,
}

impl Expiry {
    pub async fn tick(&mut self, app: &App, leadership: &Leadership) {
        let (view, now) = (app.view(), app.now());
        let open = view.state.alerts.values().filter(|alert| alert.kind == AlertKind::CertExpiring);
        let reported: BTreeMap<_, _> =
            open.map(|alert| (alert.node.as_ref(), alert.detail.as_str())).collect();
        let from = self.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut due = Vec::new();
        for (looked, (id, node)) in view.state.nodes.range((from, Bound::Unbounded)).enumerate() {
            if looked == AT_ONCE || due.len() == RAISED {
                break;
            }
            // Only what is reached is passed: the end of the fleet leads back to its beginning.
            self.after = Some(id.clone());
            let detail = view.state.expiring(node, now);
            due.extend(
                detail
                    .filter(|detail| reported.get(&Some(id)) != Some(&detail.as_str()))
                    .map(|detail| (id, detail)),
            );
        }
        if view.state.nodes.get_max().is_some_and(|(last, _)| Some(last) == self.after.as_ref()) {
            self.after = None;
        }
        for (id, detail) in due {
            let alert = RaiseAlert { kind: AlertKind::CertExpiring, node: Some(id.clone()), detail };
            propose(app, leadership, Command::RaiseAlert(alert)).await;
        }
    }
}
