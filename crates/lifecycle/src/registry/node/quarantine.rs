//! Quarantine: a node may authenticate, send evidence and renew, and gets nothing else.

use super::living;
use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::{AlertKind, Event, State};

pub(in crate::registry) fn quarantine(state: &State, id: &NodeId, reason: &str) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        // One that a repair would have ended is from now on an operator's to end.
        Ok(node) if node.quarantined && !node.recovery.repairing => Decision::granted(Vec::new()),
        Ok(_) => {
            Decision::granted(vec![Event::NodeQuarantined { node: id.clone(), reason: reason.to_owned() }])
        }
    }
}

/// Whoever lets a node go has made sure that there is no copy of it.
pub(in crate::registry) fn release(state: &State, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) => {
            let released = node.quarantined.then(|| Event::NodeReleased { node: id.clone() });
            let unsuspected = state.clearing(&[AlertKind::CloneSuspected], id);
            Decision::granted(released.into_iter().chain(unsuspected).collect())
        }
    }
}
