//! Draining: a node finishes what it does and takes nothing new. Doing it twice is doing it once.

use super::living;
use crate::names::{NodeId, Span};
use crate::registry::apply::Decision;
use crate::registry::{Event, Rejection, State};

/// How long a host may be given to drain.
const SHORTEST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_days(30);

pub(in crate::registry) fn drain(state: &State, id: &NodeId, within: Option<Span>) -> Decision {
    let by = within.map(|span| state.at.plus(span));
    if within.is_some_and(|within| !(SHORTEST..=LONGEST).contains(&within)) {
        return Rejection::DrainSpan { min: SHORTEST, max: LONGEST }.into();
    }
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if node.draining && (within.is_none() || node.drain_within == within) => {
            Decision::granted(Vec::new())
        }
        Ok(_) => Decision::granted(vec![Event::NodeDraining { node: id.clone(), by }]),
    }
}

pub(in crate::registry) fn undrain(state: &State, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if node.draining => Decision::granted(vec![Event::NodeUndrained { node: id.clone() }]),
        Ok(_) => Decision::granted(Vec::new()),
    }
}
