//! A walk through the fleet, a part of it each tick, so that no tick looks at all nodes.

use lifecycle::names::NodeId;
use lifecycle::registry::{Node, State};
use std::ops::Bound;

/// How many nodes one tick looks at.
const AT_ONCE: usize = 1000;
/// How many of them may lead to an alert: a fleet that is in trouble together is reported in parts.
const FOUND: usize = 100;

/// Where the last look ended.
#[derive(Default)]
pub struct FleetWalk {
    after: Option<NodeId>,
}

impl FleetWalk {
    /// What the next part of the fleet shows.
    pub fn next<'a, T>(&mut self, state: &'a State, mut look: impl FnMut(&'a Node) -> Option<T>) -> Vec<T> {
        let from = self.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = Vec::new();
        for (looked, (id, node)) in state.nodes.range((from, Bound::Unbounded)).enumerate() {
            if looked == AT_ONCE || found.len() == FOUND {
                break;
            }
            // Only what is reached is passed: the end of the fleet leads back to its beginning.
            self.after = Some(id.clone());
            found.extend(look(node));
        }
        if state.nodes.get_max().is_some_and(|(last, _)| Some(last) == self.after.as_ref()) {
            self.after = None;
        }
        found
    }
}
