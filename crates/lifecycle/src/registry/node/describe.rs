//! Describing: what people call a node and what they sort it by. No rule looks at either, so a tombstone may be
//! described too.

use crate::registry::apply::Decision;
use crate::registry::{Describe, Event, Rejection, State};

pub(in crate::registry) fn decide(state: &State, describe: &Describe) -> Decision {
    let Some(node) = state.nodes.get(&describe.node) else {
        return Rejection::NodeNotFound { node: describe.node.clone() }.into();
    };
    let name = describe.name.of(node.name.clone());
    let labels = describe.labels.of(Some(node.labels.clone())).unwrap_or_default();
    if (&name, &labels) == (&node.name, &node.labels) {
        return Decision::granted(Vec::new());
    }
    Decision::granted(vec![Event::NodeDescribed { node: node.id.clone(), name, labels }])
}
