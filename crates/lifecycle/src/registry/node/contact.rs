//! Contact: a node's authenticated request. The first under a new serial confirms an enrollment, or lets the
//! new certificate take over from the old one; the first after silence makes the node active again.

use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::certificate::supersede::superseded;
use crate::registry::event::{
    AuditField, AuditFields, CertificateSeen, Happened, NodeConfirmed, RecoveryResolved, host,
};
use crate::registry::{Actor, AlertKind, Envelope, Event, Node, NodeState, Rejection, State};

/// What the enrollment's alerts are about is over with the first contact.
pub(in crate::registry) const ENROLLMENT: [AlertKind; 2] =
    [AlertKind::EnrollmentStuck, AlertKind::EnrollmentNotPersisted];

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, id: &NodeId) -> Decision {
    match (state.nodes.get(id), &envelope.actor) {
        (Some(node), Actor::Node { serial, .. }) => Decision::granted(events(state, node, serial)),
        (Some(node), Actor::Svid { spiffe_id, .. }) => {
            Decision::granted(by_svid_events(state, node, spiffe_id))
        }
        _ => Rejection::NodeNotFound { node: id.clone() }.into(),
    }
}

/// Whether a request of this node says something new: an enrollment is confirmed by it, or silence ends.
pub fn contact_changes(state: &State, actor: &Actor, id: &NodeId) -> bool {
    let Some(node) = state.nodes.get(id) else { return false };
    match actor {
        Actor::Node { serial, .. } => !events(state, node, serial).is_empty(),
        Actor::Svid { spiffe_id, .. } => !by_svid_events(state, node, spiffe_id).is_empty(),
        Actor::Stranger
        | Actor::Local { .. }
        | Actor::Operator { .. }
        | Actor::Key { .. }
        | Actor::Reconciler
        | Actor::Replica { .. } => false,
    }
}

/// What follows from a node showing an SVID: one that is known, or was silent, is active. It confirms no certificate of ours.
pub(in crate::registry) fn by_svid_events(state: &State, node: &Node, spiffe_id: &str) -> Vec<Event> {
    match node.state {
        NodeState::Registered | NodeState::Inactive => returned(state, node, Some(spiffe_id)).collect(),
        NodeState::Enrolled | NodeState::Active | NodeState::Revoked | NodeState::Decommissioned => {
            Vec::new()
        }
    }
}

/// What follows from a node showing this certificate. Nothing, if it was seen before and the node is active.
pub(in crate::registry) fn events(state: &State, node: &Node, serial: &Serial) -> Vec<Event> {
    let id = &node.id;
    let mut events = Vec::new();
    match node.state {
        NodeState::Enrolled => {
            events.push(Event::NodeConfirmed(NodeConfirmed { node: id.clone(), serial: serial.clone() }));
            events.push(Event::NodeActive(NodeActive { node: id.clone(), by_svid: None }));
            events.extend(state.clearing(&ENROLLMENT, id));
            if node.recovery.underway {
                events.push(Event::RecoveryResolved(RecoveryResolved {
                    node: id.clone(),
                    serial: serial.clone(),
                }));
            }
        }
        NodeState::Inactive => events.extend(returned(state, node, None)),
        NodeState::Registered | NodeState::Active | NodeState::Revoked | NodeState::Decommissioned => {}
    }
    if state.certificates.get(serial).is_some_and(|certificate| certificate.is_unseen()) {
        events.push(Event::CertificateSeen(CertificateSeen { serial: serial.clone() }));
        events.extend(superseded(state, node, serial));
    }
    events
}

/// A node that was silent is there again.
pub(super) fn returned<'a>(
    state: &'a State,
    node: &'a Node,
    by_svid: Option<&str>,
) -> impl Iterator<Item = Event> + use<'a> {
    let by_svid = by_svid.map(str::to_owned);
    let active = Event::NodeActive(NodeActive { node: node.id.clone(), by_svid });
    [active].into_iter().chain(state.clearing(&[AlertKind::NodeSilent], &node.id))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeActive {
    pub node: NodeId,
    /// The SPIFFE id, of one that came by an SVID.
    pub by_svid: Option<String>,
}

impl Happened for NodeActive {
    const NAME: &'static str = "host.active";

    fn fields(&self) -> AuditFields {
        let by_svid = self.by_svid.as_ref().map(|id| ("spiffe_id", AuditField::text(id)));
        host(&self.node, []).into_iter().chain(by_svid).collect()
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
            if self.by_svid.is_some() {
                node.svid_seen = Some(at);
            }
            node.ever_active = true;
        });
    }
}
