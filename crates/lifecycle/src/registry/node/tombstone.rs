//! What revoking and decommissioning have in common: the record stays, everything that was good is denied.

use crate::names::{NodeId, Serial};
use crate::registry::{Account, Alert, AlertKind, Event, NodeState, Recovery, State};
use std::sync::Arc;

/// What wanted attention about the node wants it no more, except the suspicion of a copy.
pub(super) fn settled<'a>(state: &'a State, id: &'a NodeId) -> impl Iterator<Item = Event> + 'a {
    let about = state
        .alerts
        .values()
        .filter(move |alert| alert.node.as_ref() == Some(id) && alert.kind != AlertKind::CloneSuspected);
    about.map(Alert::cleared)
}

/// A tombstone keeps its WireGuard key if it was ever active; its address rests.
pub(super) fn bury(state: &mut State, id: &NodeId, denied: &[Serial], next: NodeState, account: Account) {
    let at = state.at;
    state.deny(denied);
    let machine = state.nodes.get(id).filter(|node| node.identity.is_some() && !node.state.is_gone());
    if let Some(tenant) = machine.map(|node| node.tenant.clone()) {
        state.machine_goes(&tenant);
    }
    let Some(node) = state.nodes.get_mut(id).map(Arc::make_mut) else { return };
    node.state = next;
    node.state_since = at;
    (node.rotation, node.rekey) = (None, None);
    node.ended = Some(account);
    let address = node.address.take();
    let unused = if node.ever_active { None } else { node.wireguard.take() };
    if let Some(address) = address {
        state.addresses.release(address, at);
    }
    if let Some(wireguard) = unused {
        state.wireguard_keys.remove(&wireguard.key);
    }
    state.change_recovery(id, Recovery::revoke);
    state.denials += 1;
}
