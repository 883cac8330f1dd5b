//! What becomes of a node's recovery tokens. The index knows exactly those that are on record.

use super::{Recovery, RecoveryState, RecoveryToken};
use crate::names::NodeId;
use crate::registry::fold::{change, deny, record};
use crate::registry::{NodeState, RecoveryIssued, State};
use std::sync::Arc;

/// A new one, put among the others in its own way.
pub(in crate::registry) fn minted(
    state: &mut State,
    id: &NodeId,
    token: &RecoveryToken,
    how: impl FnOnce(&mut Recovery, RecoveryToken),
) {
    let Some(node) = state.nodes.get_mut(id).map(Arc::make_mut) else { return };
    how(&mut node.recovery, token.clone());
    let forgotten = node.recovery.forget();
    state.recovery_by_hash.insert(token.hash, id.clone());
    for hash in forgotten {
        state.recovery_by_hash.remove(&hash);
    }
}

/// A change in which none is new.
pub(in crate::registry) fn changed(state: &mut State, id: &NodeId, how: impl FnOnce(&mut Recovery)) {
    let Some(node) = state.nodes.get_mut(id).map(Arc::make_mut) else { return };
    how(&mut node.recovery);
    for hash in node.recovery.forget() {
        state.recovery_by_hash.remove(&hash);
    }
}

/// All that the node had before is denied; it begins again as after an enrollment, and stays who it is.
pub(in crate::registry) fn issued(state: &mut State, recovered: &RecoveryIssued) {
    let (at, bundle) = (state.at, state.bundle_version);
    let issued = &recovered.certificate;
    for serial in &recovered.denied {
        deny(state, serial);
    }
    record(state, &recovered.node, issued);
    change(state, &recovered.node, |node| {
        (node.state, node.state_since) = (NodeState::Enrolled, at);
        node.serials.push(issued.serial.clone());
        // The answer holds it.
        node.bundle = bundle;
        node.rotation = None;
        // The answer to its enrollment cannot be asked for again.
        node.idempotency = None;
        if let Some(version) = &recovered.agent_version {
            node.agent_version = Some(version.clone());
        }
    });
    changed(state, &recovered.node, |recovery| {
        let used = RecoveryState::Used { at, serial: issued.serial.clone(), key: issued.key };
        recovery.spend(recovered.token, used);
        recovery.underway = true;
    });
}
