//! Removing a vCluster in which no node is.

use crate::names::{NodeId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Node, Rejection, State, Vclusters};
use std::sync::Arc;

pub(in crate::registry) fn remove(state: &State, id: &VclusterId) -> Decision {
    if !state.vclusters.contains_key(id) {
        return Rejection::VclusterNotFound { vcluster: id.clone() }.into();
    }
    match state.nodes_in(id).count() as u64 {
        0 => Decision::granted(vec![Event::VclusterRemoved(VclusterRemoved { vcluster: id.clone() })]),
        nodes => Rejection::VclusterInUse { vcluster: id.clone(), nodes }.into(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VclusterRemoved {
    pub vcluster: VclusterId,
}

impl Happened for VclusterRemoved {
    const NAME: &'static str = "vcluster.removed";

    fn fields(&self) -> AuditFields {
        vec![("vcluster", AuditField::text(&self.vcluster))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    /// A node that is gone and comes back must not come back into another vCluster of the same name, nor may who was narrowed to
    /// this one have that one.
    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.vclusters.remove(&self.vcluster);
        let narrowed = |vclusters: &Vclusters| !vclusters.is_all() && vclusters.include(&self.vcluster);
        let operators = state.operators.values().filter(|operator| narrowed(&operator.vclusters));
        for name in operators.map(|operator| operator.name.clone()).collect::<Vec<_>>() {
            if let Some(operator) = state.operators.get_mut(&name) {
                operator.vclusters.exclude(&self.vcluster);
            }
        }
        let keys = state.operator_keys.values().filter(|key| narrowed(&key.vclusters));
        for id in keys.map(|key| key.id).collect::<Vec<_>>() {
            if let Some(key) = state.operator_keys.get_mut(&id) {
                key.vclusters.exclude(&self.vcluster);
            }
        }
        let was_in = |node: &&Arc<Node>| node.vcluster.as_ref() == Some(&self.vcluster);
        let left: Vec<NodeId> = state.nodes.values().filter(was_in).map(|node| node.id.clone()).collect();
        for node in left {
            state.change_node(&node, |node| node.vcluster = None);
        }
    }
}
