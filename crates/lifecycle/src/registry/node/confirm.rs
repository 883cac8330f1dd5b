//! Confirming: a node's first word with its new identity, or its word that it could not keep it.

use super::contact;
use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::recovery::mint::{self, Rotate};
use crate::registry::{Actor, AlertKind, Envelope, Keeping, NodeState, Rejection, State};
use serde::{Deserialize, Serialize};

/// A node's first word with its new identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    pub node: NodeId,
    pub status: ConfirmStatus,
    #[serde(default, skip_serializing_if = "Keeping::is_nothing")]
    pub keeping: Keeping,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmStatus {
    Ok,
    /// The host could not keep what it was given.
    Failed {
        reason: String,
    },
}

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, confirm: &Confirm) -> Decision {
    let node = state.nodes.get(&confirm.node);
    let (node, serial) = match (node, &envelope.actor) {
        (Some(node), Actor::Node { serial, .. }) => (node, serial),
        // An SVID confirms nothing of ours: it is a contact.
        (Some(node), Actor::Svid { spiffe_id, .. }) => {
            return Decision::granted(contact::by_svid_events(state, node, spiffe_id));
        }
        _ => return Rejection::NodeNotFound { node: confirm.node.clone() }.into(),
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
            Decision::granted(vec![state.raising(envelope, kind, &node.id, (reason.clone(), 1))])
        }
        (ConfirmStatus::Failed { .. }, _) => Rejection::AlreadyConfirmed { node: node.id.clone() }.into(),
    }
}

/// What it says of the certificate is an event of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfirmed {
    pub node: NodeId,
    pub serial: Serial,
}

impl Happened for NodeConfirmed {
    const NAME: &'static str = "host.confirmed";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("cert_serial", AuditField::text(&self.serial))])
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, _state: &mut State, _envelope: &Envelope) {}
}
