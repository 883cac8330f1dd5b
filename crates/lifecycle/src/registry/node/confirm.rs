//! Confirming: a node's first word with its new identity, or its word that it could not keep it.

use super::contact;
use crate::names::AlertId;
use crate::registry::apply::Decision;
use crate::registry::recovery::mint::{self, Rotate};
use crate::registry::{
    Actor, AlertKind, Confirm, ConfirmStatus, Envelope, Event, NodeState, Rejection, State,
};

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, confirm: &Confirm) -> Decision {
    let (Some(node), Actor::Node { serial, .. }) = (state.nodes.get(&confirm.node), &envelope.actor) else {
        return Rejection::NodeNotFound { node: confirm.node.clone() }.into();
    };
    match (&confirm.status, node.state) {
        (ConfirmStatus::Ok, _) => {
            let mut events = contact::events(state, node, serial);
            events.extend(mint::events(state, node, serial, &confirm.keeping, Rotate::WhenDue));
            Decision::granted(events)
        }
        (ConfirmStatus::Failed { reason }, NodeState::Enrolled) => {
            // Said before: a host that repeats itself, or changes its mind, does not grow the trail.
            let kind = AlertKind::EnrollmentNotPersisted;
            if state.open_alert(kind, Some(&node.id)).is_some() {
                return Decision::granted(Vec::new());
            }
            Decision::granted(vec![Event::AlertRaised {
                alert: AlertId(envelope.id.0),
                kind,
                node: Some(node.id.clone()),
                detail: reason.clone(),
            }])
        }
        (ConfirmStatus::Failed { .. }, _) => Rejection::AlreadyConfirmed { node: node.id.clone() }.into(),
    }
}
