//! Confirming: a node's first word with its new identity, or its word that it could not keep it.

use crate::names::AlertId;
use crate::registry::apply::Decision;
use crate::registry::{Actor, Confirm, ConfirmStatus, Envelope, Event, NodeState, Rejection, State};

pub(in crate::registry) const NOT_PERSISTED: &str = "enrollment_not_persisted";

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, confirm: &Confirm) -> Decision {
    let (Some(node), Actor::Node { serial, .. }) = (state.nodes.get(&confirm.node), &envelope.actor) else {
        return Rejection::NodeNotFound { node: confirm.node.clone() }.into();
    };
    let open = state
        .alerts
        .values()
        .find(|alert| alert.kind == NOT_PERSISTED && alert.node.as_ref() == Some(&node.id));
    match (&confirm.status, node.state) {
        (ConfirmStatus::Ok, NodeState::Enrolled) => {
            let confirmed = Event::NodeConfirmed { node: node.id.clone(), serial: serial.clone() };
            let active = Event::NodeActive { node: node.id.clone() };
            let cleared = open.map(|alert| Event::AlertCleared {
                alert: alert.id,
                kind: NOT_PERSISTED,
                node: alert.node.clone(),
            });
            Decision::granted([confirmed, active].into_iter().chain(cleared).collect())
        }
        (ConfirmStatus::Ok, NodeState::Inactive) => {
            Decision::granted(vec![Event::NodeActive { node: node.id.clone() }])
        }
        (ConfirmStatus::Ok, _) => Decision::granted(Vec::new()),
        (ConfirmStatus::Failed { reason }, NodeState::Enrolled) => {
            // Said before: a host that repeats itself, or changes its mind, does not grow the trail.
            if open.is_some() {
                return Decision::granted(Vec::new());
            }
            Decision::granted(vec![Event::AlertRaised {
                alert: AlertId(envelope.id.0),
                kind: NOT_PERSISTED,
                node: Some(node.id.clone()),
                detail: reason.clone(),
            }])
        }
        (ConfirmStatus::Failed { .. }, _) => Rejection::AlreadyConfirmed { node: node.id.clone() }.into(),
    }
}
