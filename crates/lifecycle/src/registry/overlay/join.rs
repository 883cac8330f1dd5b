//! A node that enrolled without a WireGuard key joins the overlay.

use super::claim::ClaimOverlay;
use super::{Underlay, Wireguard};
use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Envelope, Event, Node, Rejection, State};
use std::net::Ipv6Addr;

/// Not in quarantine: a node there is given nothing, so no address either.
pub(super) fn decide(state: &State, envelope: &Envelope, node: &Node, claim: &ClaimOverlay) -> Decision {
    if node.quarantined {
        return Rejection::NodeQuarantined { node: node.id.clone() }.into();
    }
    let picked = || state.addresses.pick(state.at, state.policy.overlay_cooldown);
    let Some(address) = node.address.or_else(picked) else {
        return Rejection::AddressesExhausted.into();
    };
    let underlay = claim.underlay.or(node.underlay);
    Decision::granted(vec![Event::OverlayJoined(OverlayJoined {
        node: node.id.clone(),
        wireguard: claim.wireguard,
        address,
        underlay,
        underlay_proven: underlay.is_some_and(|at| at.is_at(&envelope.source)),
    })])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayJoined {
    pub node: NodeId,
    pub wireguard: Wireguard,
    pub address: Ipv6Addr,
    pub underlay: Option<Underlay>,
    /// Whether the request came from that address.
    pub underlay_proven: bool,
}

impl Happened for OverlayJoined {
    const NAME: &'static str = "host.overlay_joined";

    fn fields(&self) -> AuditFields {
        host(
            &self.node,
            [
                ("wireguard_pubkey_fingerprint", AuditField::text(self.wireguard.fingerprint.labelled())),
                ("underlay_endpoint", AuditField::maybe(self.underlay)),
                ("overlay_ipv6", AuditField::text(self.address)),
            ],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if state.nodes.get(&self.node).is_some_and(|node| node.address.is_none()) {
            state.addresses.hold(self.address, self.node.clone());
        }
        state.take_wireguard_key(self.wireguard.key, &self.node);
        state.change_node(&self.node, |node| {
            node.wireguard = Some(self.wireguard);
            node.address = Some(self.address);
            (node.underlay, node.underlay_proven) = (self.underlay, self.underlay_proven);
            node.rekey = None;
        });
    }
}
