//! The overlay: who may talk to whom over WireGuard. One per tenant.
//!
//! It follows from the nodes, and is kept beside them so that neither an enrollment nor a host that asks has
//! to look at nodes of other tenants. Whoever knows an older overlay finds what has changed with
//! [`OrdMap::diff`], for the price of the change.

pub(super) mod address;
pub(super) mod claim;
pub(super) mod endpoint;
pub(super) mod join;
pub(super) mod rekey;

use super::{Node, NodeState, OverlayScope, Policy, State};
use crate::names::{Fingerprint, NodeId, ProfileName, Source, TenantId, VclusterId, WireguardKey};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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

/// Which kinds of addresses a host can send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Families {
    /// Both, or it has not said: IPv6 first.
    Any,
    Ipv6,
    Ipv4,
}

impl Families {
    /// Those that it names for itself.
    pub fn of(underlay: Option<&Underlay>) -> Self {
        match underlay.map(|at| (at.ipv6.is_some(), at.ipv4.is_some())) {
            Some((true, false)) => Families::Ipv6,
            Some((false, true)) => Families::Ipv4,
            Some((true, true) | (false, false)) | None => Families::Any,
        }
    }
}

impl Underlay {
    /// Where a host with these families reaches it; none if they have none in common.
    pub fn for_families(&self, families: Families) -> Option<SocketAddr> {
        let (v6, v4) = (self.ipv6.map(IpAddr::V6), self.ipv4.map(IpAddr::V4));
        let address = match families {
            Families::Any => v6.or(v4),
            Families::Ipv6 => v6,
            Families::Ipv4 => v4,
        };
        address.map(|address| SocketAddr::new(address, self.port))
    }

    /// The addresses that it names.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.ipv6.map(IpAddr::V6).into_iter().chain(self.ipv4.map(IpAddr::V4))
    }

    /// The places that it names, as text.
    pub fn endpoints(&self) -> Vec<String> {
        self.addresses().map(|address| SocketAddr::new(address, self.port).to_string()).collect()
    }

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

/// How many bits of an overlay address are those of every host.
pub const PREFIX_LENGTH: u8 = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredOverlay")]
pub struct Overlay {
    /// Rises exactly when a peer comes, goes or changes.
    pub revision: u64,
    pub peers: OrdMap<NodeId, Arc<Peer>>,
    /// Who is reached where. It follows from the peers, so it is not stored.
    #[serde(skip)]
    endpoints: OrdMap<(IpAddr, u16, NodeId), ()>,
}

#[derive(Deserialize)]
struct StoredOverlay {
    revision: u64,
    peers: OrdMap<NodeId, Arc<Peer>>,
}

impl From<StoredOverlay> for Overlay {
    fn from(stored: StoredOverlay) -> Self {
        let endpoints = stored.peers.iter().flat_map(|(id, peer)| peer.reached_at(id)).collect();
        Self { revision: stored.revision, peers: stored.peers, endpoints }
    }
}

impl Overlay {
    /// The peers that name this address and port.
    fn reached_at(&self, address: IpAddr, port: u16) -> impl Iterator<Item = &NodeId> {
        let first = Bound::Included((address, port, NodeId::least()));
        let here = self.endpoints.range((first, Bound::Unbounded));
        here.map(|(place, ())| place)
            .take_while(move |(other, at, _)| (*other, *at) == (address, port))
            .map(|(_, _, id)| id)
    }

    /// Whether who is reached where follows from the peers.
    pub(super) fn index_agrees(&self) -> bool {
        let true_now: OrdMap<_, ()> = self.peers.iter().flat_map(|(id, peer)| peer.reached_at(id)).collect();
        true_now == self.endpoints
    }

    /// A peer as it is now, or none.
    fn set(&mut self, id: &NodeId, peer: Option<Arc<Peer>>) {
        let before = match &peer {
            Some(peer) => self.peers.insert(id.clone(), peer.clone()),
            None => self.peers.remove(id),
        };
        for (place, ()) in before.iter().flat_map(|before| before.reached_at(id)) {
            self.endpoints.remove(&place);
        }
        self.endpoints.extend(peer.iter().flat_map(|peer| peer.reached_at(id)));
    }
}

/// What others must know of a host to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub key: WireguardKey,
    pub address: Ipv6Addr,
    pub underlay: Option<Underlay>,
    /// The revision that made it as it is.
    pub since: u64,
    /// Where only hosts of one vCluster are peers: its own. None in a domain where all hosts of a tenant are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<VclusterId>,
    /// The revision by which it came to be among others than before: whoever knew an older one knew other peers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub regrouped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this shape")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Peer {
    fn reached_at(&self, id: &NodeId) -> impl Iterator<Item = ((IpAddr, u16, NodeId), ())> + use<> {
        let (underlay, id) = (self.underlay, id.clone());
        let places = underlay.into_iter().flat_map(|at| at.addresses().map(move |to| (to, at.port)));
        places.map(move |(address, port)| ((address, port, id.clone()), ()))
    }
}

/// Those hosts that are peers of each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OverlayGroup {
    pub tenant: TenantId,
    /// None of all hosts of the tenant.
    pub vcluster: Option<VclusterId>,
}

impl OverlayGroup {
    pub fn includes(&self, peer: &Peer) -> bool {
        self.vcluster.is_none() || self.vcluster == peer.vcluster
    }
}

impl Node {
    /// Whether the domain has an overlay for it: a key is on record, or its profile is for hosts that have one.
    pub fn has_overlay(&self) -> bool {
        self.wireguard.is_some() || self.profile == ProfileName::plfm()
    }

    /// A host with a WireGuard key is a peer from its confirmation until it is gone; silence and draining do
    /// not change that, quarantine does.
    pub fn is_peer(&self) -> bool {
        let confirmed = matches!(self.state, NodeState::Active | NodeState::Inactive);
        let has_key = self.wireguard.is_some_and(|wireguard| wireguard.key.is_usable());
        confirmed && !self.quarantined && has_key && self.address.is_some()
    }

    /// As others are told of it, but for the revisions.
    fn peer(&self, policy: &Policy) -> Option<Peer> {
        let (wireguard, address) = (self.wireguard?, self.address?);
        let vcluster = match policy.overlay_scope {
            OverlayScope::Tenant => None,
            OverlayScope::Vcluster => self.vcluster.clone(),
        };
        let (key, underlay) = (wireguard.key, self.underlay);
        self.is_peer().then_some(Peer { key, address, underlay, since: 0, vcluster, regrouped: 0 })
    }
}

impl State {
    /// The revision of a tenant's overlay.
    pub fn overlay_revision(&self, tenant: &TenantId) -> u64 {
        self.overlays.get(tenant).map_or(0, |overlay| overlay.revision)
    }

    /// Among whom a node's peers are. Of one in quarantine, of one that is gone, and where only hosts of one vCluster are
    /// peers, of one in none: nobody.
    pub fn overlay_group(&self, node: &Node) -> Option<OverlayGroup> {
        if node.quarantined || node.state.is_gone() {
            return None;
        }
        let tenant = node.tenant.clone();
        match (self.policy.overlay_scope, &node.vcluster) {
            (OverlayScope::Tenant, _) => Some(OverlayGroup { tenant, vcluster: None }),
            (OverlayScope::Vcluster, Some(own)) => Some(OverlayGroup { tenant, vcluster: Some(own.clone()) }),
            (OverlayScope::Vcluster, None) => None,
        }
    }

    /// What a host may know of the others now.
    pub fn peers_of(&self, node: &Node) -> Peers {
        let group = self.overlay_group(node);
        let overlay = group.as_ref().and_then(|group| self.overlays.get(&group.tenant));
        let all = overlay.map(|overlay| overlay.peers.clone()).unwrap_or_default();
        Peers { all, own: node.id.clone(), vcluster: group.and_then(|group| group.vcluster), until: u64::MAX }
    }

    /// Nobody else may come with this key from now on; if it rested, it is in use again.
    pub(super) fn take_wireguard_key(&mut self, key: WireguardKey, node: &NodeId) {
        self.wireguard_keys.insert(key, node.clone());
        if let Some(rested) = self.resting_keys.keys().find(|(_, rested)| *rested == key).copied() {
            self.resting_keys.remove(&rested);
        }
    }

    /// Keys that were replaced and have rested for long enough.
    pub(super) fn rested_keys(&self) -> impl Iterator<Item = WireguardKey> + '_ {
        let cooldown = self.policy.overlay_cooldown;
        let rested = self.resting_keys.keys().take_while(move |(since, _)| since.plus(cooldown) <= self.at);
        rested.map(|(_, key)| *key)
    }

    pub(super) fn forget_rested_key(&mut self, key: &WireguardKey) {
        self.wireguard_keys.remove(key);
        if let Some(rested) = self.resting_keys.keys().find(|(_, rested)| rested == key).copied() {
            self.resting_keys.remove(&rested);
        }
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
    /// Of which vCluster they are; none of any.
    vcluster: Option<VclusterId>,
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
        let near = |peer: &Peer| self.vcluster.is_none() || self.vcluster == peer.vcluster;
        let visible =
            move |id: &NodeId, peer: &Peer| *id != self.own && peer.since <= self.until && near(peer);
        peers.filter(move |(id, peer)| visible(id, peer)).map(|(id, peer)| (id, peer.as_ref()))
    }
}

/// Brings a tenant's overlay in line with what has become of one of its nodes.
pub(super) fn settle(state: &mut State, id: &NodeId) {
    let Some(node) = state.nodes.get(id) else { return };
    let overlay = state.overlays.get(&node.tenant);
    let (known, revision) =
        overlay.map_or((None, 0), |overlay| (overlay.peers.get(id).cloned(), overlay.revision));
    let now = node.peer(&state.policy);
    // Held against what is known as if nothing had changed.
    let unchanged = match (&now, known.as_deref()) {
        (None, None) => true,
        (Some(now), Some(known)) => {
            *known == Peer { since: known.since, regrouped: known.regrouped, ..now.clone() }
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    if unchanged {
        return;
    }
    let (tenant, revision) = (node.tenant.clone(), revision.saturating_add(1));
    let peer = now.map(|now| {
        let stayed = known.as_ref().filter(|known| known.vcluster == now.vcluster);
        let regrouped = stayed.map_or(revision, |stayed| stayed.regrouped);
        Arc::new(Peer { since: revision, regrouped, ..now })
    });
    let overlay = state.overlays.entry(tenant).or_default();
    overlay.revision = revision;
    overlay.set(id, peer);
}

/// The same for all nodes: another scope may have made each a peer of others.
pub(super) fn settle_all(state: &mut State) {
    for id in state.nodes.keys().cloned().collect::<Vec<_>>() {
        settle(state, &id);
    }
}
