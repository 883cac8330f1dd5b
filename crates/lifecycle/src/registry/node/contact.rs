//! Contact: a node's authenticated request. The first under a new serial confirms an enrollment, or lets the
//! new certificate take over from the old one; the first after silence makes the node active again.

use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::{
    Actor, AlertKind, CertificateStatus, Envelope, Event, Node, NodeState, Rejection, State,
};

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
            events.push(Event::NodeConfirmed { node: id.clone(), serial: serial.clone() });
            events.push(Event::NodeActive { node: id.clone() });
            events.extend(state.clearing(&ENROLLMENT, id));
            if node.recovery.underway {
                events.push(Event::RecoveryResolved { node: id.clone(), serial: serial.clone() });
            }
        }
        NodeState::Inactive => events.push(Event::NodeActive { node: id.clone() }),
        _ => {}
    }
    if state.certificates.get(serial).is_some_and(|certificate| certificate.is_unseen()) {
        events.push(Event::CertificateSeen { serial: serial.clone() });
        events.extend(superseded(state, node, serial));
    }
    events
}

/// The serials before this one that are still good: they may finish what they began.
fn superseded<'a>(state: &'a State, node: &'a Node, by: &'a Serial) -> impl Iterator<Item = Event> + 'a {
    let until = state.at.plus(state.policy.renew_drain);
    let older = node.serials.iter().take_while(move |serial| *serial != by);
    older
        .filter(|serial| {
            state.certificates.get(*serial).is_some_and(|certificate| {
                certificate.status == CertificateStatus::Live && state.at < certificate.not_after
            })
        })
        .map(move |serial| Event::CertificateSuperseded {
            node: node.id.clone(),
            serial: serial.clone(),
            by: by.clone(),
            until,
        })
}
