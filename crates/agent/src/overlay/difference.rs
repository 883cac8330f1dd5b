//! What has to be done to an interface so that it has the peers that are wanted. No I/O.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use pki::wireguard::WireguardPublic;

use super::{FoundPeer, PeerSpec};

/// In this order: what is gone makes room for what comes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerChanges {
    pub remove: Vec<WireguardPublic>,
    pub update: Vec<PeerSpec>,
    pub add: Vec<PeerSpec>,
}

impl PeerChanges {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.update.is_empty() && self.add.is_empty()
    }

    pub fn len(&self) -> usize {
        self.remove.len() + self.update.len() + self.add.len()
    }

    /// One peer, as it was and as it is wanted.
    pub fn one(&mut self, before: Option<&PeerSpec>, wanted: Option<PeerSpec>) {
        match (before, wanted) {
            (None, None) => {}
            (None, Some(wanted)) => self.add.push(wanted),
            (Some(before), None) => self.remove.push(before.key),
            (Some(before), Some(wanted)) if before.key != wanted.key => {
                self.remove.push(before.key);
                self.add.push(wanted);
            }
            (Some(before), Some(wanted)) if *before != wanted => self.update.push(wanted),
            (Some(_), Some(_)) => {}
        }
    }
}

/// Where the interface is not as it is wanted, by its own word. Endpoints are not compared, unless there is none: a peer is where it
/// was last heard from.
pub fn drift(wanted: &BTreeMap<Arc<str>, PeerSpec>, found: &[FoundPeer]) -> PeerChanges {
    let mut missing: BTreeMap<WireguardPublic, PeerSpec> =
        wanted.values().map(|spec| (spec.key, *spec)).collect();
    let mut changes = PeerChanges::default();
    for peer in found {
        let Some(spec) = missing.remove(&peer.key) else {
            changes.remove.push(peer.key);
            continue;
        };
        let allowed = peer.allowed == [(IpAddr::from(spec.address), 128)];
        let reachable = peer.endpoint.is_some() || spec.endpoint.is_none();
        if !allowed || !reachable || peer.keepalive != spec.keepalive {
            changes.update.push(spec);
        }
    }
    changes.add.extend(missing.into_values());
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(key: u8, last: u16) -> PeerSpec {
        PeerSpec {
            key: [key; 32],
            address: [0xfd00, 0, 0, 0, 0, 0, 0, last].into(),
            endpoint: Some("192.0.2.1:51820".parse().unwrap()),
            keepalive: Some(25),
        }
    }

    fn found(spec: PeerSpec) -> FoundPeer {
        FoundPeer {
            key: spec.key,
            allowed: vec![(spec.address.into(), 128)],
            endpoint: spec.endpoint,
            keepalive: spec.keepalive,
            last_handshake: None,
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    #[test]
    fn another_key_is_another_peer_and_anything_else_a_change_of_it() {
        let mut changes = PeerChanges::default();
        changes.one(Some(&spec(1, 1)), Some(spec(2, 1)));
        changes.one(Some(&spec(3, 3)), Some(spec(3, 4)));
        changes.one(Some(&spec(5, 5)), None);
        changes.one(None, Some(spec(6, 6)));
        changes.one(Some(&spec(7, 7)), Some(spec(7, 7)));
        let expected = PeerChanges {
            remove: vec![[1; 32], [5; 32]],
            update: vec![spec(3, 4)],
            add: vec![spec(2, 1), spec(6, 6)],
        };
        assert_eq!(changes, expected);
    }

    #[test]
    fn what_an_interface_has_otherwise_is_found_and_a_peer_that_roams_is_left_alone() {
        let wanted: BTreeMap<Arc<str>, PeerSpec> =
            [("a".into(), spec(1, 1)), ("b".into(), spec(2, 2)), ("c".into(), spec(3, 3))].into();
        let mut roams = found(spec(1, 1));
        roams.endpoint = Some("198.51.100.7:9".parse().unwrap());
        let mut greedy = found(spec(2, 2));
        greedy.allowed.push(("fd00::3".parse().unwrap(), 128));
        let changes = drift(&wanted, &[roams, greedy, found(spec(9, 9))]);
        let expected = PeerChanges { remove: vec![[9; 32]], update: vec![spec(2, 2)], add: vec![spec(3, 3)] };
        assert_eq!(changes, expected);
        assert!(drift(&BTreeMap::new(), &[]).is_empty());
    }
}
