//! Acknowledging an alert.

use crate::names::{AlertId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{AlertKind, Envelope, Event, Rejection, State};

pub(in crate::registry) fn acknowledge(state: &State, id: AlertId, dated: bool) -> Decision {
    match state.alerts.get(&id) {
        None => Rejection::AlertNotFound { alert: id }.into(),
        Some(alert) if alert.acknowledged => Decision::granted(Vec::new()),
        Some(alert) => Decision::granted(vec![Event::AlertAcknowledged(AlertAcknowledged {
            alert: id,
            kind: alert.kind,
            node: alert.node.clone(),
            dated,
        })]),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertAcknowledged {
    pub alert: AlertId,
    pub kind: AlertKind,
    pub node: Option<NodeId>,
    /// Whether the moment is kept.
    pub dated: bool,
}

impl Happened for AlertAcknowledged {
    const NAME: &'static str = "alert.acknowledged";

    fn fields(&self) -> AuditFields {
        vec![
            ("alert_id", AuditField::text(self.alert)),
            ("kind", AuditField::text(self.kind)),
            ("node_id", AuditField::maybe(self.node.as_ref())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        if let Some(alert) = state.alerts.get_mut(&self.alert) {
            alert.acknowledged = true;
            alert.acknowledged_at = self.dated.then_some(at);
        }
    }
}
