//! Clearing an alert: what it was about is over.

use crate::names::{AlertId, NodeId, Span};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Alert, AlertKind, Envelope, Event, State};

/// How long nothing may have confirmed a suspicion that an operator knows of before it is cleared.
const QUIET: Span = Span::from_days(1);
/// Nothing but quiet says that they were wrong.
const SUSPICIONS: [AlertKind; 11] = [
    AlertKind::IssuerMisbehaved,
    AlertKind::CloneSuspected,
    AlertKind::RecoveryNotNeeded,
    AlertKind::NodeReplaced,
    AlertKind::DeniedCertificateSeen,
    AlertKind::WireguardKeyConflict,
    AlertKind::AlreadyActive,
    AlertKind::RepeatedFailures,
    AlertKind::HardwareIdentityConflict,
    AlertKind::HardwareGuessed,
    AlertKind::HardwareConflict,
];

pub(in crate::registry) fn clear(state: &State, id: AlertId) -> Decision {
    Decision::granted(state.alerts.get(&id).map(Alert::cleared).into_iter().collect())
}

/// A suspicion that somebody has looked at, and that nothing has confirmed for a day since. If it was right, it comes
/// again. A node that is held because of it keeps it until it is released.
pub(in crate::registry) fn quiet_suspicions(state: &State) -> impl Iterator<Item = Event> + '_ {
    let held = |alert: &Alert| {
        let node = alert.node.as_ref().and_then(|id| state.nodes.get(id));
        node.is_some_and(|node| node.quarantined && !node.state.is_gone())
    };
    let over = move |alert: &&Alert| {
        SUSPICIONS.contains(&alert.kind)
            && alert.acknowledged
            && alert.at_rest_since().plus(QUIET) <= state.at
            && !held(alert)
    };
    state.alerts.values().filter(over).map(Alert::cleared)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertCleared {
    pub alert: AlertId,
    pub kind: AlertKind,
    pub node: Option<NodeId>,
}

impl Happened for AlertCleared {
    const NAME: &'static str = "alert.cleared";

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
        state.alerts.remove(&self.alert);
    }
}
