//! The overlay: who may talk to whom over WireGuard. One per tenant.
//!
//! It follows from the nodes, and is kept beside them so that neither an enrollment nor a host that asks has
//! to look at nodes of other tenants. Whoever knows an older overlay finds what has changed with
//! [`OrdMap::diff`], for the price of the change.

pub(super) mod address;

use super::{Node, NodeState, State};
use crate::names::{Fingerprint, NodeId, Source, TenantId, WireguardKey};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wireguard {
    pub key: WireguardKey,
    pub fingerprint: Fingerprint,
}

/// Where a host's WireGuard can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Underlay {
    pub ipv6: Option<Ipv6Addr>,
    pub ipv4: Option<Ipv4Addr>,
    pub port: u16,
}

impl Underlay {
    /// Whether a request from there comes from every address that it names.
    pub fn is_at(&self, source: &Source) -> bool {
        let Source::Address(from) = source else { return false };
        let from = from.to_canonical();
        let named = [self.ipv6.map(IpAddr::V6), self.ipv4.map(IpAddr::V4)];
        // One connection shows one address; the other of the two stays a claim.
        named.iter().flatten().count() == 1
            && named.iter().flatten().all(|named| named.to_canonical() == from)
    }
}

impl std::fmt::Display for Underlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ipv6, self.ipv4) {
            (Some(v6), _) => write!(f, "[{v6}]:{}", self.port),
            (None, Some(v4)) => write!(f, "{v4}:{}", self.port),
            (None, None) => write!(f, ":{}", self.port),
        }
    }
}

/// Where WireGuard listens when nobody says otherwise, and how large its packets are.
pub const PORT: u16 = 51820;
pub const MTU: u16 = 1420;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    /// Rises exactly when a peer comes, goes or changes.
    pub revision: u64,
    pub peers: OrdMap<NodeId, Arc<Peer>>,
}

/// What others must know of a host to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub key: WireguardKey,
    pub address: Ipv6Addr,
    pub underlay: Option<Underlay>,
    /// The revision that made it as it is.
    pub since: u64,
}

impl Node {
    /// A host with a WireGuard key is a peer from its confirmation until it is gone; silence and draining do
    /// not change that, quarantine does.
    pub fn is_peer(&self) -> bool {
        let confirmed = matches!(self.state, NodeState::Active | NodeState::Inactive);
        confirmed && !self.quarantined && self.wireguard.is_some() && self.address.is_some()
    }

    fn peer(&self, since: u64) -> Option<Peer> {
        let (wireguard, address) = (self.wireguard?, self.address?);
        self.is_peer().then_some(Peer { key: wireguard.key, address, underlay: self.underlay, since })
    }
}

impl State {
    /// The revision of a tenant's overlay.
    pub fn overlay_revision(&self, tenant: &TenantId) -> u64 {
        self.overlays.get(tenant).map_or(0, |overlay| overlay.revision)
    }

    /// What a host may know of the others now. In quarantine, nothing.
    pub fn peers_of(&self, node: &Node) -> Peers {
        let overlay = self.overlays.get(&node.tenant).filter(|_| !node.quarantined && !node.state.is_gone());
        let all = overlay.map(|overlay| overlay.peers.clone()).unwrap_or_default();
        Peers { all, own: node.id.clone(), until: u64::MAX }
    }

    /// Those of them that an answer to its enrollment may hold: said again, it says nothing that is new.
    pub fn peers_at_enrollment(&self, node: &Node) -> Peers {
        Peers { until: node.overlay_seen, ..self.peers_of(node) }
    }
}

/// The peers of one host as they were when it asked. They are shared with the registry, not copied, so that
/// an answer may be written piece by piece.
#[derive(Debug, Clone)]
pub struct Peers {
    all: OrdMap<NodeId, Arc<Peer>>,
    own: NodeId,
    until: u64,
}

impl Peers {
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Peer)> {
        self.behind(None)
    }

    /// Those that come behind `last`.
    pub fn behind<'a>(
        &'a self,
        last: Option<&NodeId>,
    ) -> impl Iterator<Item = (&'a NodeId, &'a Peer)> + use<'a> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let peers = self.all.range::<_, NodeId>((from, Bound::Unbounded));
        let visible = |id: &NodeId, peer: &Peer| *id != self.own && peer.since <= self.until;
        peers.filter(move |(id, peer)| visible(id, peer)).map(|(id, peer)| (id, peer.as_ref()))
    }
}

/// Brings a tenant's overlay in line with what has become of one of its nodes.
pub(super) fn settle(state: &mut State, id: &NodeId) {
    let Some(node) = state.nodes.get(id) else { return };
    let overlay = state.overlays.get(&node.tenant);
    let (known, revision) =
        overlay.map_or((None, 0), |overlay| (overlay.peers.get(id).cloned(), overlay.revision));
    // Held against what is known as if nothing had changed.
    let since = known.as_ref().map_or(revision, |known| known.since);
    if node.peer(since).as_ref() == known.as_deref() {
        return;
    }
    let (tenant, revision) = (node.tenant.clone(), revision.saturating_add(1));
    let peer = node.peer(revision);
    let overlay = state.overlays.entry(tenant).or_default();
    overlay.revision = revision;
    match peer {
        Some(peer) => drop(overlay.peers.insert(id.clone(), Arc::new(peer))),
        None => drop(overlay.peers.remove(id)),
    }
}
