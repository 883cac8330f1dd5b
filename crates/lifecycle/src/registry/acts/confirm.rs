//! Confirming: a node's first word with its new identity, or its word that it could not keep it.

use crate::names::AlertId;
use crate::registry::apply::Decision;
use crate::registry::{Actor, Confirm, ConfirmStatus, Envelope, Event, NodeState, Rejection, State};

pub(in crate::registry) const NOT_PERSISTED: &str = "enrollment_not_persisted";

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, confirm: &Confirm) -> Decision {
    let (Some(node), Actor::Node { serial, .. }) = (state.nodes.get(&confirm.node), &envelope.actor) else {
        return Rejection::NodeNotFound { node: confirm.node.clone() }.into();
    };
    match (&confirm.status, node.state) {
        (ConfirmStatus::Ok, NodeState::Enrolled) => Decision::granted(vec![
            Event::NodeConfirmed { node: node.id.clone(), serial: serial.clone() },
            Event::NodeActive { node: node.id.clone() },
        ]),
        (ConfirmStatus::Ok, NodeState::Inactive) => {
            Decision::granted(vec![Event::NodeActive { node: node.id.clone() }])
        }
        (ConfirmStatus::Ok, _) => Decision::granted(Vec::new()),
        (ConfirmStatus::Failed { reason }, NodeState::Enrolled) => {
            let open = state
                .alerts
                .values()
                .find(|alert| alert.kind == NOT_PERSISTED && alert.node.as_ref() == Some(&node.id));
            // Said before: a host that repeats itself does not grow the trail.
            if open.is_some_and(|alert| alert.detail == *reason) {
                return Decision::granted(Vec::new());
            }
            Decision::granted(vec![Event::AlertRaised {
                alert: open.map_or(AlertId(envelope.id.0), |alert| alert.id),
                kind: NOT_PERSISTED,
                node: Some(node.id.clone()),
                detail: reason.clone(),
            }])
        }
        (ConfirmStatus::Failed { .. }, _) => Rejection::AlreadyConfirmed { node: node.id.clone() }.into(),
    }
}
