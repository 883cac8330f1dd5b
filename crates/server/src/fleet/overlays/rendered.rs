//! Peers as the plfm API writes them, written once for all hosts that are told the same: one text for each group and each choice of
//! address families, in pieces of consecutive ids. A peer that changes has its piece written again, and no other.

use super::frames::PeerMap;
use api::doors::plfm::OverlayPeer;
use bytes::Bytes;
use imbl::ordmap::DiffItem;
use lifecycle::names::NodeId;
use lifecycle::registry::{Families, OverlayGroup, Peer};
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

/// How long a piece is, and the room for the peer that goes beyond.
const PIECE: usize = 15 * 1024;
const ROOM: usize = 16 * 1024;
/// How many texts are kept.
const KEPT: usize = 64;

/// The same text for all who ask with this.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TextKey {
    pub group: OverlayGroup,
    pub families: Families,
}

#[derive(Default)]
pub struct RenderedOverlays {
    texts: Mutex<HashMap<TextKey, (u64, Arc<RenderedPeers>)>>,
}

impl RenderedOverlays {
    /// The text of these peers, which are of this revision.
    pub fn text(&self, key: TextKey, peers: &PeerMap, revision: u64) -> Arc<RenderedPeers> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, before) = match texts.get(&key) {
            Some((_, text)) if text.peers.ptr_eq(peers) => return text.clone(),
            Some((known, text)) => (*known, text.clone()),
            None => (0, Arc::new(RenderedPeers::empty())),
        };
        // While it is locked: those who ask at once for the same wait for the one that writes.
        let text = Arc::new(before.become_of(&key, peers));
        if revision >= known {
            if texts.len() >= KEPT && !texts.contains_key(&key) {
                texts.clear();
            }
            texts.insert(key, (revision, text.clone()));
        }
        text
    }
}

/// One text. It never changes; the next one shares its pieces.
pub struct RenderedPeers {
    peers: PeerMap,
    pieces: Vec<RenderedPiece>,
}

/// Peers with ids from `first` on, up to the first of the next piece. The first piece begins where the ids do.
#[derive(Clone)]
struct RenderedPiece {
    first: NodeId,
    /// The newest revision that made one of them as it is.
    newest: u64,
    /// Each behind a comma.
    bytes: Bytes,
}

/// Whom a text is for.
pub struct ListReader {
    pub own: NodeId,
    /// Peers that became as they are after this revision are left out.
    pub until: u64,
}

impl RenderedPeers {
    fn empty() -> Self {
        Self { peers: PeerMap::new(), pieces: Vec::new() }
    }

    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Where the ids of a piece begin and end.
    fn range(&self, piece: usize) -> (Bound<&NodeId>, Bound<&NodeId>) {
        let first = |piece: usize| self.pieces.get(piece).map(|piece| &piece.first);
        let from = if piece == 0 {
            Bound::Unbounded
        } else {
            first(piece).map_or(Bound::Unbounded, Bound::Included)
        };
        (from, first(piece + 1).map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// The piece to which an id belongs.
    fn holder(&self, id: &NodeId) -> usize {
        self.pieces.partition_point(|piece| piece.first <= *id).saturating_sub(1)
    }

    /// A piece for a reader: as it is, or written for it alone where it is in it, or something too new is.
    pub fn piece(&self, key: &TextKey, piece: usize, reader: &ListReader) -> Bytes {
        let Some(held) = self.pieces.get(piece) else { return Bytes::new() };
        let own = self.holder(&reader.own) == piece && self.peers.contains_key(&reader.own);
        if !own && held.newest <= reader.until {
            return held.bytes.clone();
        }
        let range = self.range(piece);
        let visible = |(id, peer): &(&NodeId, &Arc<Peer>)| **id != reader.own && peer.since <= reader.until;
        let mut bytes = Vec::with_capacity(ROOM);
        for (_, peer) in self.peers.range::<_, NodeId>(range).filter(visible) {
            write(&mut bytes, key, peer);
        }
        bytes.into()
    }

    fn become_of(&self, key: &TextKey, peers: &PeerMap) -> Self {
        let ids = self.peers.diff(peers).map(|item| match item {
            DiffItem::Add(id, _) | DiffItem::Remove(id, _) | DiffItem::Update { new: (id, _), .. } => id,
        });
        let stale: BTreeSet<usize> = ids.map(|id| self.holder(id)).collect();
        let mut pieces = Vec::with_capacity(self.pieces.len() + stale.len());
        for piece in 0..self.pieces.len().max(1) {
            match self.pieces.get(piece).filter(|_| !stale.contains(&piece)) {
                Some(held) => pieces.push(held.clone()),
                None => pieces.extend(written(key, peers, self.range(piece))),
            }
        }
        Self { peers: peers.clone(), pieces }
    }
}

/// These peers, in as many pieces as it takes.
fn written(key: &TextKey, peers: &PeerMap, range: (Bound<&NodeId>, Bound<&NodeId>)) -> Vec<RenderedPiece> {
    let mut pieces = Vec::new();
    let mut piece: Option<(NodeId, u64, Vec<u8>)> = None;
    for (id, peer) in peers.range::<_, NodeId>(range) {
        let (_, newest, bytes) = piece.get_or_insert_with(|| (id.clone(), 0, Vec::with_capacity(ROOM)));
        *newest = peer.since.max(*newest);
        write(bytes, key, peer);
        if bytes.len() >= PIECE {
            pieces.extend(piece.take());
        }
    }
    pieces.extend(piece);
    let piece =
        |(first, newest, bytes): (_, _, Vec<u8>)| RenderedPiece { first, newest, bytes: bytes.into() };
    pieces.into_iter().map(piece).collect()
}

fn write(bytes: &mut Vec<u8>, key: &TextKey, peer: &Peer) {
    if key.group.includes(peer) {
        bytes.push(b',');
        // Into memory, and of strings: neither fails.
        let _ = serde_json::to_writer(bytes, &OverlayPeer::of(peer, key.families));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{TenantId, WireguardKey};
    use std::net::Ipv6Addr;

    fn id(number: u32) -> NodeId {
        NodeId::parse(&format!("n{number:05}")).unwrap()
    }

    fn peer(number: u32, since: u64) -> Arc<Peer> {
        let mut key = [7; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        let address = Ipv6Addr::from(u128::from(number));
        let key = WireguardKey::new(key).unwrap();
        Arc::new(Peer { key, address, underlay: None, since, vcluster: None, regrouped: 0 })
    }

    fn whole(text: &RenderedPeers, key: &TextKey, reader: &ListReader) -> String {
        let pieces = (0..text.pieces()).map(|piece| text.piece(key, piece, reader));
        String::from_utf8(pieces.flat_map(|bytes| bytes.to_vec()).collect()).unwrap()
    }

    fn fresh(key: &TextKey, peers: &PeerMap, reader: &ListReader) -> String {
        let mut bytes = Vec::new();
        for (id, peer) in peers {
            if *id != reader.own && peer.since <= reader.until {
                write(&mut bytes, key, peer);
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_change_writes_its_piece_again_and_no_other() {
        let group = OverlayGroup { tenant: TenantId::default_tenant(), vcluster: None };
        let key = TextKey { group, families: Families::Any };
        let mut peers: PeerMap = (0..2000).map(|n| (id(2 * n), peer(n, 1))).collect();
        let texts = RenderedOverlays::default();
        let nobody = ListReader { own: id(99_999), until: u64::MAX };
        let first = texts.text(key.clone(), &peers, 1);
        assert!(first.pieces() > 10);
        assert_eq!(whole(&first, &key, &nobody), fresh(&key, &peers, &nobody));
        peers.insert(id(1001), peer(70_000, 2));
        peers.remove(&id(10));
        let second = texts.text(key.clone(), &peers, 2);
        assert_eq!(whole(&second, &key, &nobody), fresh(&key, &peers, &nobody));
        let pointers = |text: &RenderedPeers| -> BTreeSet<_> {
            text.pieces.iter().map(|piece| piece.bytes.as_ptr()).collect()
        };
        let shared = pointers(&first).intersection(&pointers(&second)).count();
        assert_eq!(shared, first.pieces() - 2);
        for reader in [
            ListReader { own: id(500), until: u64::MAX },
            ListReader { own: id(0), until: 1 },
            ListReader { own: id(3998), until: 1 },
        ] {
            assert_eq!(whole(&second, &key, &reader), fresh(&key, &peers, &reader));
        }
        // Emptied, and filled from its middle.
        for n in 0..1990 {
            peers.remove(&id(2 * n));
        }
        peers.insert(id(1), peer(1, 3));
        let third = texts.text(key.clone(), &peers, 3);
        assert_eq!(whole(&third, &key, &nobody), fresh(&key, &peers, &nobody));
    }
}
