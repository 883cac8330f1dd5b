//! The peers that the control plane has told: pieces of a whole set are collected, changes merged, and what cannot be right is
//! refused as a whole. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use api::agent::{OverlayPeer, OverlayPeers};
use lifecycle::names::WireguardKey;
use pki::wireguard::WireguardPublic;

use super::netlink::prefix;

/// More than an overlay has; a set of more is not collected.
pub const MOST_PEERS: usize = 200_000;
const MOST_PIECES: u32 = 100_000;
/// The longest id of a node.
const LONGEST_ID: usize = 128;

/// Who this host is, so that nothing is taken for a peer that claims to be it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfacePlace {
    pub node_id: String,
    /// Also the one that is to take the place of the one in use.
    pub keys: Vec<WireguardPublic>,
    pub address: Ipv6Addr,
    pub prefix_length: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfacePeer {
    pub key: WireguardPublic,
    pub address: Ipv6Addr,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    port: u16,
}

/// Which families this host can be reached by, and so can reach others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFamilies {
    pub ipv4: bool,
    pub ipv6: bool,
}

impl InterfacePeer {
    /// Both of its addresses and their port.
    pub fn addresses(&self) -> (Option<Ipv4Addr>, Option<Ipv6Addr>, u16) {
        (self.ipv4, self.ipv6, self.port)
    }

    /// By a family that both have, IPv6 first, unless it is `turned`.
    pub fn endpoint(&self, families: OwnFamilies, turned: bool) -> Option<SocketAddr> {
        let ipv6 = self.ipv6.filter(|_| families.ipv6).map(IpAddr::from);
        let ipv4 = self.ipv4.filter(|_| families.ipv4).map(IpAddr::from);
        let chosen = if turned { ipv4.or(ipv6) } else { ipv6.or(ipv4) };
        chosen.map(|ip| SocketAddr::new(ip, self.port))
    }
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It said what is known.
    Nothing,
    /// A piece of a whole set; others follow.
    Piece,
    /// These peers came, have changed or are gone.
    Changed(BTreeSet<Arc<str>>),
    Whole,
    /// Changes are missing between what is known and what it says.
    PlaceLost,
}

#[derive(Debug, Default)]
pub struct PeerSet {
    /// Up to which revision it is whole; 0 if none.
    revision: u64,
    peers: Indexed,
    collecting: Option<Collecting>,
}

#[derive(Debug)]
struct Collecting {
    revision: u64,
    pieces: u32,
    next: u32,
    peers: Indexed,
}

/// Peers by node, each key and each address once.
#[derive(Debug, Default)]
struct Indexed {
    peers: BTreeMap<Arc<str>, InterfacePeer>,
    keys: BTreeMap<WireguardPublic, Arc<str>>,
    addresses: BTreeMap<Ipv6Addr, Arc<str>>,
}

impl PeerSet {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn count(&self) -> usize {
        self.peers.peers.len()
    }

    pub fn get(&self, node: &str) -> Option<&InterfacePeer> {
        self.peers.peers.get(node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &InterfacePeer)> {
        self.peers.peers.iter()
    }

    /// Peers that an earlier process was told: of no revision, so that the whole set is asked for and takes their place.
    pub fn stored(peers: Vec<OverlayPeer>, place: &InterfacePlace) -> Result<Self, String> {
        let mut set = Self::default();
        set.peers.replace(&[], parsed(&peers, place)?)?;
        Ok(set)
    }

    /// Whether a message takes something away that is known: a peer, or what was known of it.
    pub fn is_outdated_by(&self, message: &OverlayPeers) -> bool {
        message.after.is_none()
            || !message.gone.is_empty()
            || message.peers.iter().any(|peer| self.get(&peer.node_id).is_some())
    }

    /// The connection is no more: the rest of a set that was under way does not come.
    pub fn disconnected(&mut self) {
        self.collecting = None;
    }

    /// Nothing is known any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a message in. An error is a message that is not taken, and leaves everything as it was.
    pub fn take(&mut self, message: OverlayPeers, place: &InterfacePlace) -> Result<Taken, String> {
        match message.after {
            Some(after) => self.change(message, after, place),
            None => self.collect(message, place),
        }
    }

    fn change(&mut self, message: OverlayPeers, after: u64, place: &InterfacePlace) -> Result<Taken, String> {
        if message.revision <= self.revision && self.revision > 0 {
            return Ok(Taken::Nothing);
        }
        // Only what builds on exactly this: of a change that begins before it, something may be missing that went and came back
        // in between, and that this host knows as gone.
        if after != self.revision || self.revision == 0 {
            // It builds on the set that is being sent, or on one that this host never had.
            let lost = self.collecting.is_none();
            return Ok(if lost { Taken::PlaceLost } else { Taken::Nothing });
        }
        let gone: Vec<Arc<str>> = message.gone.iter().map(|id| node_id(id)).collect::<Result<_, _>>()?;
        let changed = self.peers.replace(&gone, parsed(&message.peers, place)?)?;
        self.revision = message.revision;
        Ok(Taken::Changed(changed))
    }

    fn collect(&mut self, message: OverlayPeers, place: &InterfacePlace) -> Result<Taken, String> {
        let OverlayPeers { revision, piece, pieces, .. } = message;
        if !message.gone.is_empty() || pieces == 0 || pieces > MOST_PIECES || piece >= pieces {
            self.collecting = None;
            return Err("a whole set in pieces that do not fit together".to_owned());
        }
        let begun = self.collecting.take().filter(|begun| {
            piece > 0 && (begun.revision, begun.pieces, begun.next) == (revision, pieces, piece)
        });
        let mut collecting = match begun {
            Some(begun) => begun,
            None if piece == 0 => Collecting { revision, pieces, next: 0, peers: Indexed::default() },
            None => return Ok(Taken::PlaceLost),
        };
        collecting.peers.replace(&[], parsed(&message.peers, place)?)?;
        collecting.next = piece.saturating_add(1);
        if collecting.next < pieces {
            self.collecting = Some(collecting);
            return Ok(Taken::Piece);
        }
        (self.revision, self.peers) = (revision, collecting.peers);
        Ok(Taken::Whole)
    }
}

impl Indexed {
    /// Removes and puts in all of it, or nothing. Whom it concerned.
    fn replace(
        &mut self,
        gone: &[Arc<str>],
        come: Vec<(Arc<str>, InterfacePeer)>,
    ) -> Result<BTreeSet<Arc<str>>, String> {
        let concerned: BTreeSet<Arc<str>> =
            gone.iter().chain(come.iter().map(|(node, _)| node)).cloned().collect();
        let (mut nodes, mut keys, mut addresses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (node, peer) in &come {
            let other = |holder: Option<&Arc<str>>| holder.is_some_and(|holder| !concerned.contains(holder));
            if other(self.keys.get(&peer.key)) || !keys.insert(peer.key) {
                return Err(format!("{node} has the key of another peer"));
            }
            if other(self.addresses.get(&peer.address)) || !addresses.insert(peer.address) {
                return Err(format!("{node} has the address of another peer, {}", peer.address));
            }
            if !nodes.insert(node) {
                return Err(format!("{node} is named twice"));
            }
        }
        let stay = concerned.iter().filter(|node| self.peers.contains_key(*node)).count();
        if self.peers.len().saturating_sub(stay).saturating_add(come.len()) > MOST_PEERS {
            return Err(format!("more than {MOST_PEERS} peers"));
        }
        for node in &concerned {
            if let Some(before) = self.peers.remove(node) {
                self.keys.remove(&before.key);
                self.addresses.remove(&before.address);
            }
        }
        for (node, peer) in come {
            self.keys.insert(peer.key, node.clone());
            self.addresses.insert(peer.address, node.clone());
            self.peers.insert(node, peer);
        }
        Ok(concerned)
    }
}

/// All but this host itself.
fn parsed(wire: &[OverlayPeer], place: &InterfacePlace) -> Result<Vec<(Arc<str>, InterfacePeer)>, String> {
    let others = wire.iter().filter(|peer| peer.node_id != place.node_id);
    others.map(|peer| Ok((node_id(&peer.node_id)?, checked(peer, place)?))).collect()
}

fn checked(wire: &OverlayPeer, place: &InterfacePlace) -> Result<InterfacePeer, String> {
    let wrong = |what: &str| format!("{}: {what}", shown(&wire.node_id));
    let key: WireguardPublic =
        wire.wireguard_public_key.as_slice().try_into().map_err(|_| wrong("its key is not 32 bytes"))?;
    let address: [u8; 16] =
        wire.address.as_slice().try_into().map_err(|_| wrong("its address is not 16 bytes"))?;
    let address = Ipv6Addr::from(address);
    if place.keys.contains(&key) || address == place.address {
        return Err(wrong("it has the key or the address of this host"));
    }
    // In another encoding it would be another peer's.
    if WireguardKey::new(key).is_err() {
        return Err(wrong("its key is no key"));
    }
    if prefix(address, place.prefix_length) != prefix(place.address, place.prefix_length) {
        return Err(wrong("its address is outside of the overlay"));
    }
    let port = u16::try_from(wire.port).map_err(|_| wrong("its port is none"))?;
    let ipv4: Option<[u8; 4]> = bytes(&wire.ipv4).map_err(wrong)?;
    let ipv6: Option<[u8; 16]> = bytes(&wire.ipv6).map_err(wrong)?;
    // To where nothing can be sent is no endpoint; the peer may still come here. Loopback is judged by the control plane: several hosts
    // on one machine reach each other there.
    let usable = |ip: IpAddr| port > 0 && !ip.is_unspecified() && !ip.is_multicast();
    let ipv4 = ipv4.map(Ipv4Addr::from);
    let ipv4 = ipv4.filter(|ip| usable((*ip).into()) && !ip.is_broadcast() && !ip.is_link_local());
    // Through the overlay itself it would be sent round and round.
    let inside = |ip| prefix(ip, place.prefix_length) == prefix(place.address, place.prefix_length);
    let ipv6 = ipv6.map(Ipv6Addr::from).filter(|ip| {
        usable((*ip).into()) && !ip.is_unicast_link_local() && ip.to_ipv4_mapped().is_none() && !inside(*ip)
    });
    Ok(InterfacePeer { key, address, ipv4, ipv6, port })
}

fn bytes<const N: usize>(wire: &[u8]) -> Result<Option<[u8; N]>, &'static str> {
    match wire {
        [] => Ok(None),
        wire => wire.try_into().map(Some).map_err(|_| "its endpoint is no address"),
    }
}

fn node_id(text: &str) -> Result<Arc<str>, String> {
    match text.len() {
        1..=LONGEST_ID => Ok(text.into()),
        _ => Err("the id of a node is empty or too long".to_owned()),
    }
}

/// For the log, whoever wrote it.
fn shown(text: &str) -> String {
    text.chars().take(64).filter(|sign| !sign.is_control()).collect()
}

#[cfg(test)]
mod tests;
