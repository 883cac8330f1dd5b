//! The peers as they lie on disk between two processes. What is read goes the way of what the control plane says, and is refused for
//! the same reasons. No I/O.

use std::net::{Ipv4Addr, Ipv6Addr};

use api::agent::{OverlayAnswer, OverlayPeer};
use pki::wireguard::WireguardPublic;
use serde::{Deserialize, Serialize};

use super::claim::GrantedPlace;
use super::peer_set::{InterfacePlace, PeerSet};

/// This host's place and its peers.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptOverlay {
    pub node_id: String,
    /// Whether the domain had an overlay for this node.
    pub offered: bool,
    address: Ipv6Addr,
    prefix_length: u8,
    mtu: u32,
    keepalive_s: u16,
    peers: Vec<KeptPeer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptPeer {
    node_id: String,
    wireguard_public_key: WireguardPublic,
    address: Ipv6Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv4: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv6: Option<Ipv6Addr>,
    port: u16,
}

impl KeptOverlay {
    pub fn of(node_id: &str, offered: bool, place: GrantedPlace, peers: &PeerSet) -> Self {
        let stored = peers.iter().map(|(node, peer)| {
            let (ipv4, ipv6, port) = peer.addresses();
            let (node_id, key) = (node.to_string(), peer.key);
            KeptPeer { node_id, wireguard_public_key: key, address: peer.address, ipv4, ipv6, port }
        });
        Self {
            node_id: node_id.to_owned(),
            offered,
            address: place.address,
            prefix_length: place.prefix_length,
            mtu: place.mtu,
            keepalive_s: place.keepalive.unwrap_or_default(),
            peers: stored.collect(),
        }
    }

    pub fn place(&self) -> Result<GrantedPlace, String> {
        GrantedPlace::of(&OverlayAnswer {
            address: self.address.to_string(),
            prefix_length: self.prefix_length.into(),
            mtu: self.mtu,
            keepalive_s: self.keepalive_s.into(),
            ..OverlayAnswer::default()
        })
    }

    pub fn peers(self, place: &InterfacePlace) -> Result<PeerSet, String> {
        let peers = self.peers.into_iter().map(|peer| OverlayPeer {
            node_id: peer.node_id,
            wireguard_public_key: peer.wireguard_public_key.to_vec(),
            address: peer.address.octets().to_vec(),
            ipv4: peer.ipv4.map(|ip| ip.octets().to_vec()).unwrap_or_default(),
            ipv6: peer.ipv6.map(|ip| ip.octets().to_vec()).unwrap_or_default(),
            port: peer.port.into(),
        });
        PeerSet::stored(peers.collect::<Vec<_>>(), place)
    }
}
