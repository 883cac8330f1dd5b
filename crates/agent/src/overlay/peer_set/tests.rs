use proptest::prelude::*;

use super::*;

const OWN: u8 = 120;

fn place() -> InterfacePlace {
    InterfacePlace {
        node_id: "own".to_owned(),
        keys: vec![[OWN; 32]],
        address: inner(u16::from(OWN)),
        prefix_length: 48,
    }
}

fn inner(last: u16) -> Ipv6Addr {
    [0xfd00, 1, 2, 0, 0, 0, 0, last].into()
}

/// A node named by a number, with the key and the address of that number unless others are given.
fn peer(number: u8) -> OverlayPeer {
    having(number, number, number)
}

fn having(number: u8, key: u8, address: u8) -> OverlayPeer {
    OverlayPeer {
        node_id: format!("n{number}"),
        wireguard_public_key: vec![key; 32],
        address: inner(address.into()).octets().to_vec(),
        ipv4: vec![192, 0, 2, number],
        ipv6: Vec::new(),
        port: 51820,
    }
}

fn whole(revision: u64, piece: u32, pieces: u32, peers: Vec<OverlayPeer>) -> OverlayPeers {
    OverlayPeers { revision, after: None, piece, pieces, peers, gone: Vec::new() }
}

fn change(after: u64, revision: u64, peers: Vec<OverlayPeer>, gone: &[&str]) -> OverlayPeers {
    let gone = gone.iter().map(|id| (*id).to_owned()).collect();
    OverlayPeers { revision, after: Some(after), piece: 0, pieces: 0, peers, gone }
}

fn names(set: &PeerSet) -> Vec<String> {
    set.iter().map(|(node, _)| node.to_string()).collect()
}

fn with(peers: Vec<OverlayPeer>) -> PeerSet {
    let mut set = PeerSet::default();
    assert_eq!(set.take(whole(10, 0, 1, peers), &place()), Ok(Taken::Whole));
    set
}

#[test]
fn a_set_is_applied_with_its_last_piece_and_takes_the_place_of_what_was_there() {
    let mut set = with(vec![peer(9)]);
    assert_eq!(set.take(whole(5, 0, 2, vec![peer(1)]), &place()), Ok(Taken::Piece));
    assert_eq!((names(&set), set.revision()), (vec!["n9".to_owned()], 10));
    assert_eq!(set.take(whole(5, 1, 2, vec![peer(2)]), &place()), Ok(Taken::Whole));
    assert_eq!((names(&set), set.revision()), (vec!["n1".to_owned(), "n2".to_owned()], 5));
    assert_eq!(set.take(whole(6, 0, 1, Vec::new()), &place()), Ok(Taken::Whole), "a quarantine");
    assert_eq!((set.count(), set.revision()), (0, 6));
    assert_eq!(set.take(whole(7, 0, 1, vec![peer(1)]), &place()), Ok(Taken::Whole));
    assert_eq!(set.take(whole(0, 0, 1, Vec::new()), &place()), Ok(Taken::Whole), "of no revision at all");
    assert_eq!((set.count(), set.revision()), (0, 0));
}

#[test]
fn pieces_of_two_sets_are_not_mixed() {
    for second in
        [whole(6, 1, 2, vec![peer(2)]), whole(5, 1, 3, vec![peer(2)]), whole(5, 2, 3, vec![peer(2)])]
    {
        let mut set = with(vec![peer(9)]);
        assert_eq!(set.take(whole(5, 0, 2, vec![peer(1)]), &place()), Ok(Taken::Piece));
        assert_eq!(set.take(second, &place()), Ok(Taken::PlaceLost));
        assert_eq!(names(&set), ["n9"]);
    }
    let mut set = with(vec![peer(9)]);
    set.take(whole(5, 0, 2, vec![peer(1)]), &place()).unwrap();
    set.disconnected();
    assert_eq!(set.take(whole(5, 1, 2, vec![peer(2)]), &place()), Ok(Taken::PlaceLost));
}

#[test]
fn a_change_is_applied_once_and_in_its_turn() {
    let mut set = with(vec![peer(1), peer(2)]);
    let changed = |nodes: &[&str]| Ok(Taken::Changed(nodes.iter().map(|node| Arc::from(*node)).collect()));
    assert_eq!(set.take(change(10, 11, vec![peer(3)], &["n1"]), &place()), changed(&["n1", "n3"]));
    assert_eq!(set.take(change(10, 11, vec![peer(3)], &["n1"]), &place()), Ok(Taken::Nothing), "repeated");
    assert_eq!(
        set.take(change(12, 13, Vec::new(), &["n2"]), &place()),
        Ok(Taken::PlaceLost),
        "one is missing"
    );
    assert_eq!((names(&set), set.revision()), (vec!["n2".to_owned(), "n3".to_owned()], 11));
    // Another replica cuts the revisions elsewhere: n1 may have come back by 14 as it was at 9.
    assert_eq!(set.take(change(9, 14, vec![peer(4)], &["n2"]), &place()), Ok(Taken::PlaceLost));
    assert_eq!(set.take(change(11, 14, vec![peer(4)], &["n2"]), &place()), changed(&["n2", "n4"]));
    assert_eq!((names(&set), set.revision()), (vec!["n3".to_owned(), "n4".to_owned()], 14));
}

#[test]
fn a_change_before_any_set_is_one_for_a_revision_never_seen() {
    let mut set = PeerSet::default();
    assert_eq!(set.take(change(0, 1, vec![peer(1)], &[]), &place()), Ok(Taken::PlaceLost));
    set.take(whole(5, 0, 2, vec![peer(1)]), &place()).unwrap();
    assert_eq!(
        set.take(change(5, 6, vec![peer(3)], &[]), &place()),
        Ok(Taken::Nothing),
        "the set is under way"
    );
}

#[test]
fn a_peer_with_what_is_anothers_is_refused_and_nothing_changes() {
    for bad in [
        having(3, 1, 3),
        having(3, 3, 1),
        having(3, OWN, 3),
        having(3, 3, OWN),
        having(3, 0, 3),
        OverlayPeer { address: vec![0xfd; 16], ..peer(3) },
        OverlayPeer { address: vec![1; 15], ..peer(3) },
        OverlayPeer { wireguard_public_key: vec![3; 31], ..peer(3) },
        OverlayPeer { ipv4: vec![1, 2, 3], ..peer(3) },
        OverlayPeer { port: 65536, ..peer(3) },
        OverlayPeer { node_id: String::new(), ..peer(3) },
        OverlayPeer { node_id: "x".repeat(129), ..peer(3) },
    ] {
        let mut set = with(vec![peer(1), peer(2)]);
        assert!(set.take(change(10, 11, vec![peer(4), bad.clone()], &["n2"]), &place()).is_err(), "{bad:?}");
        assert_eq!((names(&set), set.revision()), (vec!["n1".to_owned(), "n2".to_owned()], 10), "{bad:?}");
        assert!(set.take(whole(11, 0, 1, vec![peer(1), peer(4), bad.clone()]), &place()).is_err(), "{bad:?}");
        assert_eq!(names(&set), ["n1", "n2"]);
    }
    let mut set = with(vec![peer(1)]);
    assert!(set.take(whole(11, 0, 1, vec![peer(2), peer(2)]), &place()).is_err(), "named twice");
}

#[test]
fn a_key_in_another_encoding_is_no_other_key() {
    let key = |lowest: u8, rest: u8, top: u8| {
        let mut key = [rest; 32];
        (key[0], key[31]) = (lowest, top);
        key.to_vec()
    };
    let with_key = |key: Vec<u8>| OverlayPeer { wireguard_public_key: key, ..peer(3) };
    for bad in [
        key(1, 1, 0x81),
        key(OWN, OWN, OWN | 0x80),
        // 2^255 - 19 + 9, which is 9.
        key(0xf6, 0xff, 0x7f),
        key(0xed, 0xff, 0x7f),
        // Of low order: 0, 1, -1.
        key(0, 0, 0),
        key(1, 0, 0),
        key(0xec, 0xff, 0x7f),
    ] {
        let mut set = with(vec![peer(1), peer(2)]);
        assert!(set.take(change(10, 11, vec![with_key(bad.clone())], &[]), &place()).is_err(), "{bad:?}");
        assert_eq!(names(&set), ["n1", "n2"]);
    }
    for good in [key(9, 0, 0), key(0xeb, 0xff, 0x7f), key(0xff, 0xfe, 0x7f), key(0xff, 0xff, 0x7e)] {
        assert!(with(vec![with_key(good)]).get("n3").is_some());
    }
}

#[test]
fn an_endpoint_to_which_nothing_can_be_sent_or_in_the_overlay_itself_is_none() {
    let at = |ipv4: &str, ipv6: &str| {
        let octets = |text: &str| match text.parse() {
            Ok(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Ok(IpAddr::V6(ip)) => ip.octets().to_vec(),
            Err(_) => Vec::new(),
        };
        let set = with(vec![OverlayPeer { ipv4: octets(ipv4), ipv6: octets(ipv6), ..peer(3) }]);
        set.get("n3").unwrap().endpoint(OwnFamilies::default(), false)
    };
    for ipv4 in ["0.0.0.0", "169.254.1.1", "224.0.0.1", "255.255.255.255"] {
        assert_eq!(at(ipv4, ""), None, "{ipv4}");
    }
    for ipv6 in ["::", "fe80::1", "ff02::1", "::ffff:192.0.2.1", "fd00:1:2::3", "fd00:1:2:9::1"] {
        assert_eq!(at("", ipv6), None, "{ipv6}");
        assert_eq!(at("192.0.2.1", ipv6), "192.0.2.1:51820".parse().ok(), "{ipv6}");
    }
    assert!(at("", "fd00:1:3::3").is_some() && at("", "2001:db8::1").is_some());
}

#[test]
fn what_one_peer_gives_up_another_may_take_in_the_same_change() {
    let mut set = with(vec![peer(1), peer(2), peer(3)]);
    let swapped = vec![having(1, 2, 1), having(2, 1, 2), having(4, 4, 3)];
    assert!(set.take(change(10, 11, swapped, &["n3"]), &place()).is_ok());
    assert_eq!(set.get("n1").map(|peer| peer.key), Some([2; 32]));
    assert_eq!(set.get("n4").map(|peer| peer.address), Some(inner(3)));
}

#[test]
fn a_host_passes_itself_over() {
    let own = OverlayPeer { node_id: "own".to_owned(), ..having(1, OWN, OWN) };
    assert_eq!(names(&with(vec![own, peer(2)])), ["n2"]);
}

#[test]
fn there_is_an_end_to_the_peers_that_are_taken_in() {
    let many = |from: usize| -> Vec<OverlayPeer> {
        (from..from + MOST_PEERS / 2)
            .map(|number| {
                let mut wire = peer(1);
                wire.node_id = format!("n{number}");
                let number = u64::try_from(number).unwrap();
                wire.wireguard_public_key = [number.to_be_bytes(), [1; 8], [2; 8], [3; 8]].concat();
                wire.address = [[0xfd, 0, 0, 1, 0, 2, 0, 0], number.to_be_bytes()].concat();
                wire
            })
            .collect()
    };
    let mut set = PeerSet::default();
    assert_eq!(set.take(whole(5, 0, 3, many(1000)), &place()), Ok(Taken::Piece));
    assert_eq!(set.take(whole(5, 1, 3, many(2 * MOST_PEERS)), &place()), Ok(Taken::Piece));
    assert!(set.take(whole(5, 2, 3, vec![peer(7)]), &place()).is_err());
    assert_eq!((set.count(), set.collecting.is_none()), (0, true), "and nothing of it is kept");
}

#[test]
fn an_endpoint_is_of_a_family_that_both_have_and_ipv6_comes_first() {
    let mut wire = peer(1);
    wire.ipv6 = [[0x20, 1, 0xd, 0xb8].as_slice(), &[0; 11], &[1]].concat();
    let set = with(vec![wire, peer(2), OverlayPeer { ipv4: vec![224, 0, 0, 1], ..peer(3) }]);
    let at = |node: &str, ipv4, ipv6| {
        set.get(node).unwrap().endpoint(OwnFamilies { ipv4, ipv6 }, false).map(|at| at.to_string())
    };
    assert_eq!(at("n1", true, true).as_deref(), Some("[2001:db8::1]:51820"));
    assert_eq!(at("n1", true, false).as_deref(), Some("192.0.2.1:51820"));
    assert_eq!((at("n2", false, true), at("n1", false, false)), (None, None));
    let turned = |families| set.get("n1").unwrap().endpoint(families, true).map(|at| at.to_string());
    assert_eq!(turned(OwnFamilies::default()).as_deref(), Some("192.0.2.1:51820"));
    assert_eq!(turned(OwnFamilies { ipv4: false, ipv6: true }).as_deref(), Some("[2001:db8::1]:51820"));
    assert_eq!(at("n3", true, true), None, "multicast is nowhere");
}

proptest! {
    /// However a history is cut into changes and repeated, a host that takes all in has what the registry
    /// has; one that misses some asks for its place.
    #[test]
    fn a_host_has_what_the_registry_has(
        steps in prop::collection::vec((0u8..20, any::<bool>(), 0u8..4), 1..60),
        joins in 0usize..30,
    ) {
        let mut registry: Vec<BTreeMap<u8, u8>> = vec![BTreeMap::new()];
        for (number, come, generation) in &steps {
            let mut next = registry.last().unwrap().clone();
            if *come { next.insert(*number, *generation); } else { next.remove(number); }
            registry.push(next);
        }
        let wire = |(number, generation): (&u8, &u8)| having(*number, 20 + *number * 4 + *generation, *number + 1);
        let revision = |at: usize| u64::try_from(at + 1).unwrap();
        let mut set = PeerSet::default();
        let start = joins.min(registry.len() - 1);
        let begin = whole(revision(start), 0, 1, registry[start].iter().map(wire).collect());
        prop_assert_eq!(set.take(begin, &place()), Ok(Taken::Whole));
        let mut at = start;
        while at + 1 < registry.len() {
            let from = at;
            let to = (at + 1 + usize::from(steps[at].0 % 3)).min(registry.len() - 1);
            let (before, after) = (&registry[from], &registry[to]);
            let come = after.iter().filter(|(number, generation)| before.get(number) != Some(generation));
            let gone: Vec<String> =
                before.keys().filter(|number| !after.contains_key(number)).map(|number| format!("n{number}")).collect();
            let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
            let told = change(revision(from), revision(to), come.map(wire).collect(), &gone);
            prop_assert!(set.take(told.clone(), &place()).is_ok());
            prop_assert_eq!(set.take(told, &place()), Ok(Taken::Nothing));
            at = to;
        }
        let expected: Vec<(String, u8)> =
            registry[at].iter().map(|(number, generation)| (format!("n{number}"), 20 + number * 4 + generation)).collect();
        let found: BTreeMap<String, u8> = set.iter().map(|(node, peer)| (node.to_string(), peer.key[0])).collect();
        prop_assert_eq!(found, expected.into_iter().collect::<BTreeMap<_, _>>());
        prop_assert_eq!(set.revision(), revision(at));
        let lost = change(revision(at) + 1, revision(at) + 2, Vec::new(), &[]);
        prop_assert_eq!(set.take(lost, &place()), Ok(Taken::PlaceLost));
    }
}
