//! Contact: a node's authenticated request. The first under a new serial confirms an enrollment, or lets the
//! new certificate take over from the old one; the first after silence makes the node active again.

use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::certificate::supersede::superseded;
use crate::registry::event::{AuditFields, CertificateSeen, Happened, NodeConfirmed, RecoveryResolved, host};
use crate::registry::{Actor, AlertKind, Envelope, Event, Node, NodeState, Rejection, State};

/// What the enrollment's alerts are about is over with the first contact.
pub(in crate::registry) const ENROLLMENT: [AlertKind; 2] =
    [AlertKind::EnrollmentStuck, AlertKind::EnrollmentNotPersisted];

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, id: &NodeId) -> Decision {
    let (Some(node), Actor::Node { serial, .. }) = (state.nodes.get(id), &envelope.actor) else {
        return Rejection::NodeNotFound { node: id.clone() }.into();
    };
    Decision::granted(events(state, node, serial))
}

/// What follows from a node showing this certificate. Nothing, if it was seen before and the node is active.
pub(in crate::registry) fn events(state: &State, node: &Node, serial: &Serial) -> Vec<Event> {
    let id = &node.id;
    let mut events = Vec::new();
    match node.state {
        NodeState::Enrolled => {
            events.push(Event::NodeConfirmed(NodeConfirmed { node: id.clone(), serial: serial.clone() }));
            events.push(Event::NodeActive(NodeActive { node: id.clone() }));
            events.extend(state.clearing(&ENROLLMENT, id));
            if node.recovery.underway {
                events.push(Event::RecoveryResolved(RecoveryResolved {
                    node: id.clone(),
                    serial: serial.clone(),
                }));
            }
        }
        NodeState::Inactive => events.extend(returned(state, node)),
        NodeState::Registered | NodeState::Active | NodeState::Revoked | NodeState::Decommissioned => {}
    }
    if state.certificates.get(serial).is_some_and(|certificate| certificate.is_unseen()) {
        events.push(Event::CertificateSeen(CertificateSeen { serial: serial.clone() }));
        events.extend(superseded(state, node, serial));
    }
    events
}

/// A node that was silent is there again.
pub(super) fn returned<'a>(state: &'a State, node: &'a Node) -> impl Iterator<Item = Event> + 'a {
    let active = Event::NodeActive(NodeActive { node: node.id.clone() });
    [active].into_iter().chain(state.clearing(&[AlertKind::NodeSilent], &node.id))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeActive {
    pub node: NodeId,
}

impl Happened for NodeActive {
    const NAME: &'static str = "host.active";

    fn fields(&self) -> AuditFields {
        host(&self.node, [])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.change_node(&self.node, |node| {
            node.state = NodeState::Active;
            node.state_since = at;
            node.last_seen = Some(at);
            node.ever_active = true;
        });
    }
}
