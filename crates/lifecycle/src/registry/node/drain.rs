//! Draining: a node finishes what it does and takes nothing new. Doing it twice is doing it once.

use super::living;
use crate::names::{NodeId, Span, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Envelope, Event, Node, Rejection, State};

/// How long a host may be given to drain.
const SHORTEST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_days(30);

pub(in crate::registry) fn drain(state: &State, id: &NodeId, within: Option<Span>) -> Decision {
    let by = within.map(|span| state.at.plus(span));
    let fits = within.is_none_or(|within| (SHORTEST..=LONGEST).contains(&within));
    match living(state, id) {
        // First, so that a node of another tenant, which is refused as unknown, is not told from an unknown one.
        Err(rejection) => rejection.into(),
        Ok(_) if !fits => Rejection::DrainSpan { min: SHORTEST, max: LONGEST }.into(),
        Ok(node) if node.draining && (within.is_none() || node.drain_within == within) => {
            Decision::granted(Vec::new())
        }
        Ok(_) => Decision::granted(vec![Event::NodeDraining(NodeDraining { node: id.clone(), by })]),
    }
}

pub(in crate::registry) fn undrain(state: &State, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if node.draining => {
            Decision::granted(vec![Event::NodeUndrained(NodeUndrained { node: id.clone() })])
        }
        Ok(_) => Decision::granted(Vec::new()),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDraining {
    pub node: NodeId,
    pub by: Option<Timestamp>,
}

impl Happened for NodeDraining {
    const NAME: &'static str = "host.draining";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("drain_by", AuditField::maybe(self.by))])
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.change_node(&self.node, |node| {
            (node.draining, node.drain_by) = (true, self.by);
            node.drain_within = self.by.map(|by| by.since(at));
        });
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUndrained {
    pub node: NodeId,
}

impl Happened for NodeUndrained {
    const NAME: &'static str = "host.undrained";

    fn fields(&self) -> AuditFields {
        host(&self.node, [])
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, Node::end_drain);
    }
}
