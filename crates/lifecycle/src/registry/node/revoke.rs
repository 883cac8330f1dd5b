//! Taking an identity away: at once (revoke), in good order (decommission), and giving the name a new life
//! (reinstate). The record stays as a tombstone; what was denied stays denied.

use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::{Actor, Alert, AlertKind, CertificateStatus, Event, Node, NodeState, Rejection, State};

pub(in crate::registry) fn revoke(state: &State, actor: &Actor, id: &NodeId, reason: &str) -> Decision {
    let Some(node) = state.nodes.get(id) else {
        return Rejection::NodeNotFound { node: id.clone() }.into();
    };
    if node.state == NodeState::Revoked {
        return Decision::granted(Vec::new());
    }
    let revoked = Event::NodeRevoked {
        node: id.clone(),
        by: actor.to_string(),
        reason: reason.to_owned(),
        denied: undenied(state, node),
    };
    Decision::granted([revoked].into_iter().chain(settled(state, id)).collect())
}

pub(in crate::registry) fn decommission(state: &State, id: &NodeId) -> Decision {
    match state.nodes.get(id) {
        None => Rejection::NodeNotFound { node: id.clone() }.into(),
        Some(node) if node.state == NodeState::Revoked => Rejection::NodeRevoked { node: id.clone() }.into(),
        Some(node) if node.state == NodeState::Decommissioned => Decision::granted(Vec::new()),
        Some(node) => {
            let gone = Event::NodeDecommissioned { node: id.clone(), denied: undenied(state, node) };
            Decision::granted([gone].into_iter().chain(settled(state, id)).collect())
        }
    }
}

/// A node that is not gone is left as it is.
pub(in crate::registry) fn reinstate(state: &State, id: &NodeId) -> Decision {
    match state.nodes.get(id) {
        None => Rejection::NodeNotFound { node: id.clone() }.into(),
        Some(node) if node.state.is_gone() => {
            let generation = node.generation.saturating_add(1);
            let reinstated = Event::NodeReinstated { node: id.clone(), generation };
            // What was copied is denied; the new life begins without suspicion.
            let unsuspected = state.clearing(&[AlertKind::CloneSuspected], id);
            Decision::granted([reinstated].into_iter().chain(unsuspected).collect())
        }
        Some(_) => Decision::granted(Vec::new()),
    }
}

fn undenied(state: &State, node: &Node) -> Vec<Serial> {
    let good = |serial: &&Serial| {
        let certificate = state.certificates.get(*serial);
        certificate.is_some_and(|certificate| certificate.status != CertificateStatus::Denied)
    };
    node.serials.iter().filter(good).cloned().collect()
}

/// What wanted attention about the node wants it no more, except the suspicion of a copy.
fn settled<'a>(state: &'a State, id: &'a NodeId) -> impl Iterator<Item = Event> + 'a {
    let about = state
        .alerts
        .values()
        .filter(move |alert| alert.node.as_ref() == Some(id) && alert.kind != AlertKind::CloneSuspected);
    about.map(Alert::cleared)
}
