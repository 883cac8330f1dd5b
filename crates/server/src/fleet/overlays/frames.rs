//! Peers as hosts are sent them: each message is encoded once, and all streams send the same bytes.

use crate::edge::shared_frames::frame;
use api::agent::{LiveDown, OverlayPeer, OverlayPeers, live_down};
use bytes::Bytes;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use lifecycle::names::NodeId;
use lifecycle::registry::{OverlayGroup, Peer};
use prost::Message as _;
use std::sync::Arc;

/// How long a piece of a whole set is, about.
const PIECE: usize = 32 * 1024;

pub type PeerMap = OrdMap<NodeId, Arc<Peer>>;

/// All peers of a group at one revision.
pub struct WholeSet {
    pub revision: u64,
    pub pieces: Vec<Bytes>,
    pub bytes: usize,
}

impl WholeSet {
    pub fn of(group: &OverlayGroup, peers: &PeerMap, revision: u64) -> Self {
        let members = peers.iter().filter(|(_, peer)| group.includes(peer));
        Self::cut(members.map(|(id, peer)| message(id, peer)), revision)
    }

    /// No peers, and no place among the changes either: whoever has this asks for the whole set when it comes back.
    pub fn none() -> Self {
        Self::cut(std::iter::empty(), 0)
    }

    fn cut(peers: impl Iterator<Item = OverlayPeer>, revision: u64) -> Self {
        let (mut pieces, mut length) = (vec![Vec::new()], 0);
        for peer in peers {
            let size = peer.encoded_len();
            if length > 0 && length + size > PIECE {
                pieces.push(Vec::new());
                length = 0;
            }
            length += size;
            if let Some(piece) = pieces.last_mut() {
                piece.push(peer);
            }
        }
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let piece = |(peers, piece)| {
            framed(OverlayPeers { revision, after: None, piece, pieces: count, peers, gone: Vec::new() })
        };
        let pieces: Vec<Bytes> = pieces.into_iter().zip(0..).map(piece).collect();
        let bytes = pieces.iter().map(Bytes::len).sum();
        Self { revision, pieces, bytes }
    }
}

/// What has become of a group between two revisions.
#[derive(Clone)]
pub struct ChangeFrame {
    pub after: u64,
    pub revision: u64,
    pub bytes: Bytes,
}

impl ChangeFrame {
    /// None if the hosts of the group need not hear of it.
    pub fn between(
        group: &OverlayGroup,
        (before, after): (&PeerMap, u64),
        (now, revision): (&PeerMap, u64),
    ) -> Option<Self> {
        let (mut peers, mut gone) = (Vec::new(), Vec::new());
        for item in before.diff(now) {
            let (old, new) = match item {
                DiffItem::Add(id, new) => (None, Some((id, new))),
                DiffItem::Update { old, new } => (Some(old), Some(new)),
                DiffItem::Remove(id, old) => (Some((id, old)), None),
            };
            let old = old.filter(|(_, peer)| group.includes(peer));
            match (old, new.filter(|(_, peer)| group.includes(peer))) {
                (Some((_, old)), Some((id, new))) => {
                    let new = message(id, new);
                    if message(id, old) != new {
                        peers.push(new);
                    }
                }
                (None, Some((id, new))) => peers.push(message(id, new)),
                (Some((id, _)), None) => gone.push(id.to_string()),
                (None, None) => {}
            }
        }
        if peers.is_empty() && gone.is_empty() {
            return None;
        }
        let told = OverlayPeers { revision, after: Some(after), piece: 0, pieces: 0, peers, gone };
        Some(Self { after, revision, bytes: framed(told) })
    }
}

fn framed(told: OverlayPeers) -> Bytes {
    frame(&LiveDown { message: Some(live_down::Message::OverlayPeers(told)) })
}

fn message(id: &NodeId, peer: &Peer) -> OverlayPeer {
    let at = peer.underlay;
    OverlayPeer {
        node_id: id.to_string(),
        wireguard_public_key: peer.key.as_bytes().to_vec(),
        address: peer.address.octets().to_vec(),
        ipv4: at.and_then(|at| at.ipv4).map(|v4| v4.octets().to_vec()).unwrap_or_default(),
        ipv6: at.and_then(|at| at.ipv6).map(|v6| v6.octets().to_vec()).unwrap_or_default(),
        port: at.map_or(0, |at| at.port.into()),
    }
}
