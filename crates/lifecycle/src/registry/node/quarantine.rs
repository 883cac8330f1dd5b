//! Quarantine: a node may authenticate, send evidence and renew, and gets nothing else.

use super::living;
use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Account, AlertKind, Envelope, Event, Node, Recovery, State};

pub(in crate::registry) fn quarantine(state: &State, id: &NodeId, reason: &str) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        // One that a repair would have ended is from now on an operator's to end.
        Ok(node) if node.quarantined && !node.recovery.repairing => Decision::granted(Vec::new()),
        Ok(_) => Decision::granted(vec![Event::NodeQuarantined(NodeQuarantined {
            node: id.clone(),
            reason: reason.to_owned(),
        })]),
    }
}

/// Whoever lets a node go has made sure that there is no copy of it.
pub(in crate::registry) fn release(state: &State, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) => {
            let released = node.quarantined.then(|| Event::NodeReleased(NodeReleased { node: id.clone() }));
            let unsuspected = state.clearing(&[AlertKind::CloneSuspected], id);
            Decision::granted(released.into_iter().chain(unsuspected).collect())
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeQuarantined {
    pub node: NodeId,
    pub reason: String,
}

impl Happened for NodeQuarantined {
    const NAME: &'static str = "host.quarantined";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("reason", AuditField::text(&self.reason))])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let account = Account::of(envelope, state.at, &self.reason);
        state.change_node(&self.node, |node| {
            node.quarantined = true;
            node.quarantine = Some(account);
            node.recovery.repairing = false;
        });
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReleased {
    pub node: NodeId,
}

impl Happened for NodeReleased {
    const NAME: &'static str = "host.released";

    fn fields(&self) -> AuditFields {
        host(&self.node, [])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, Node::end_quarantine);
        state.change_recovery(&self.node, Recovery::release);
    }
}
