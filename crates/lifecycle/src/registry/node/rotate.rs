//! Ordering a renewal. The order is state: a node that is away finds it when it comes back, and one that is
//! never fetched ends with a note.

use super::living;
use crate::names::{NodeId, RequestId, Span, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, Rotation, State};

/// How long an order waits for its node.
const FETCHED_WITHIN: Span = Span::from_days(7);

impl Rotation {
    /// An order that nobody has come to fetch.
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.at.plus(FETCHED_WITHIN) <= at
    }
}

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if !state.holds_good_certificate(node) => {
            Rejection::NoCertificate { node: id.clone() }.into()
        }
        Ok(node) if node.rotation.is_some() => Decision::granted(Vec::new()),
        Ok(_) => Decision::granted(vec![Event::RotationOrdered(RotationOrdered {
            node: id.clone(),
            order: envelope.id,
        })]),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationOrdered {
    pub node: NodeId,
    pub order: RequestId,
}

impl Happened for RotationOrdered {
    const NAME: &'static str = "certificate.rotation_ordered";

    fn fields(&self) -> AuditFields {
        vec![("node_id", AuditField::text(&self.node)), ("order_id", AuditField::text(self.order))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let rotation = Rotation { order: self.order, at: state.at, replace: false };
        state.change_node(&self.node, |node| node.rotation = Some(rotation));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationExpired {
    pub node: NodeId,
    pub order: RequestId,
}

impl Happened for RotationExpired {
    const NAME: &'static str = "certificate.rotation_expired";

    fn fields(&self) -> AuditFields {
        vec![("node_id", AuditField::text(&self.node)), ("order_id", AuditField::text(self.order))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| node.rotation = None);
    }
}
