//! Ordering a renewal. The order is state: a node that is away finds it when it comes back, and one that is
//! never fetched ends with a note.

use super::living;
use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::{Envelope, Event, Rejection, State};

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if !state.holds_good_certificate(node) => {
            Rejection::NoCertificate { node: id.clone() }.into()
        }
        Ok(node) if node.rotation.is_some() => Decision::granted(Vec::new()),
        Ok(_) => Decision::granted(vec![Event::RotationOrdered { node: id.clone(), order: envelope.id }]),
    }
}
