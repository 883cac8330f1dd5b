//! Assigning a node to a vCluster, unassigning it, moving it. A move is one command: there is no moment at which the node is
//! in no vCluster. None of it touches the node's certificate.

use super::Assignment;
use crate::names::{NodeId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::node::living;
use crate::registry::{Envelope, Event, Rejection, State};

/// How many of its latest assignments a node is told that missed them.
const KEPT: usize = 8;

/// Where it is already is where it stays; who is elsewhere is moved, not assigned.
pub(in crate::registry) fn assign(state: &State, id: &NodeId, to: &VclusterId) -> Decision {
    let assigned = |()| {
        let node = living(state, id)?;
        state.vcluster_in(to, &node.tenant)?;
        match &node.vcluster {
            Some(from) if from == to => Ok(Vec::new()),
            Some(from) => Err(Rejection::AlreadyAssigned { node: id.clone(), vcluster: from.clone() }),
            None => Ok(vec![Event::NodeAssigned(NodeAssigned { node: id.clone(), vcluster: to.clone() })]),
        }
    };
    assigned(()).map_or_else(Decision::from, Decision::granted)
}

/// A node in no vCluster stays there.
pub(in crate::registry) fn unassign(state: &State, id: &NodeId) -> Decision {
    let node = match living(state, id) {
        Ok(node) => node,
        Err(rejection) => return rejection.into(),
    };
    let left =
        node.vcluster.clone().map(|from| Event::NodeUnassigned(NodeUnassigned { node: id.clone(), from }));
    Decision::granted(left.into_iter().collect())
}

pub(in crate::registry) fn relocate(state: &State, id: &NodeId, to: &VclusterId) -> Decision {
    let moved = |()| {
        let node = living(state, id)?;
        state.vcluster_in(to, &node.tenant)?;
        match node.vcluster.clone() {
            None => Err(Rejection::NotAssigned { node: id.clone() }),
            Some(from) if from == *to => Ok(Vec::new()),
            Some(from) => Ok(vec![Event::NodeMoved(NodeMoved { node: id.clone(), from, to: to.clone() })]),
        }
    };
    moved(()).map_or_else(Decision::from, Decision::granted)
}

/// From now on the node is in this vCluster, or in none.
pub(in crate::registry) fn join(state: &mut State, id: &NodeId, vcluster: Option<&VclusterId>) {
    let assignment =
        Assignment { sequence: state.next_sequence(), at: state.at, vcluster: vcluster.cloned() };
    state.change_node(id, |node| {
        node.vcluster = vcluster.cloned();
        node.assignments.push(assignment);
        let old = node.assignments.len().saturating_sub(KEPT);
        node.assignments.drain(..old);
    });
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAssigned {
    pub node: NodeId,
    pub vcluster: VclusterId,
}

impl Happened for NodeAssigned {
    const NAME: &'static str = "host.assigned";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("vcluster", AuditField::text(&self.vcluster))])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        join(state, &self.node, Some(&self.vcluster));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUnassigned {
    pub node: NodeId,
    pub from: VclusterId,
}

impl Happened for NodeUnassigned {
    const NAME: &'static str = "host.unassigned";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("from_vcluster", AuditField::text(&self.from))])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        join(state, &self.node, None);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMoved {
    pub node: NodeId,
    pub from: VclusterId,
    pub to: VclusterId,
}

impl Happened for NodeMoved {
    const NAME: &'static str = "host.moved";

    fn fields(&self) -> AuditFields {
        host(
            &self.node,
            [("from_vcluster", AuditField::text(&self.from)), ("vcluster", AuditField::text(&self.to))],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        join(state, &self.node, Some(&self.to));
    }
}
