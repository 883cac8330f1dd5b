//! Who is a peer of whom, and when that is news.

use crate::support::{
    Domain, Enrolled, check, create_vcluster, granted, local, refused, refused_with, span, tenant, vcluster,
};
use lifecycle::names::{NodeId, Source, TenantId};
use lifecycle::registry::{
    Actor, ClaimOverlay, Command, Enroll, Families, NodeState, State, Underlay, Wireguard,
};

fn host_with(domain: &mut Domain, of: &TenantId, change: impl FnOnce(&mut Enroll)) -> Enrolled {
    let token = domain.mint_with(|create| create.tenant = of.clone());
    let wireguard = domain.wireguard();
    domain.enroll_with(token, |request| {
        request.wireguard = Some(wireguard);
        request.underlay = Some(Underlay { ipv6: None, ipv4: "192.0.2.7".parse().ok(), port: 51820 });
        change(request);
    })
}

/// A host of the default tenant with a WireGuard key that has confirmed.
fn host(domain: &mut Domain) -> Enrolled {
    let enrolled = host_with(domain, &TenantId::default_tenant(), |_| ());
    domain.confirm(&enrolled);
    enrolled
}

fn revision(domain: &Domain) -> u64 {
    domain.state.overlay_revision(&TenantId::default_tenant())
}

fn peers(domain: &Domain, of: &Enrolled) -> Vec<NodeId> {
    domain.state.peers_of(&domain.state.nodes[&of.node]).iter().map(|(id, _)| id.clone()).collect()
}

fn about(command: fn(NodeId) -> Command, of: &Enrolled) -> (Actor, Command) {
    (local(), command(of.node.clone()))
}

fn quarantine(node: NodeId) -> Command {
    Command::Quarantine { node, reason: "odd".to_owned() }
}

#[test]
fn a_host_is_a_peer_from_its_confirmation_until_it_is_gone() {
    for end in [NodeState::Revoked, NodeState::Decommissioned] {
        let mut domain = Domain::founded();
        let first = host(&mut domain);
        let second = host_with(&mut domain, &TenantId::default_tenant(), |_| ());
        assert_eq!(peers(&domain, &first), []);
        assert_eq!(peers(&domain, &second), vec![first.node.clone()]);
        let before = revision(&domain);
        domain.confirm(&second);
        assert_eq!((peers(&domain, &first), revision(&domain)), (vec![second.node.clone()], before + 1));
        let address = domain.state.nodes[&second.node].address;
        domain.end(&second.node, end);
        assert_eq!((peers(&domain, &first), revision(&domain)), (vec![], before + 2));
        assert_eq!(peers(&domain, &second), [], "who is gone is told nothing");
        assert!(domain.state.addresses.resting.keys().any(|(_, resting)| Some(*resting) == address));
    }
}

#[test]
fn silence_and_draining_are_no_news_and_quarantine_is() {
    let mut domain = Domain::founded();
    let (one, other) = (host(&mut domain), host(&mut domain));
    let before = revision(&domain);
    check(
        &mut domain,
        about(|node| Command::Drain { node, within: None }, &other),
        granted(&["host.draining"]),
    );
    domain.silence(&other.node);
    assert_eq!((peers(&domain, &one), revision(&domain)), (vec![other.node.clone()], before));
    check(&mut domain, about(quarantine, &other), granted(&["host.quarantined"]));
    assert_eq!((peers(&domain, &one), revision(&domain)), (vec![], before + 1));
    assert_eq!(peers(&domain, &other), [], "in quarantine there are no peers");
    check(&mut domain, about(|node| Command::Release { node }, &other), granted(&["host.released"]));
    assert_eq!((peers(&domain, &one), revision(&domain)), (vec![other.node.clone()], before + 2));
    assert_eq!(peers(&domain, &other), [one.node]);
}

#[test]
fn tenants_have_overlays_of_their_own() {
    let mut domain = Domain::founded();
    let acme = domain.tenant("acme");
    let (one, other) = (host(&mut domain), host(&mut domain));
    let before = revision(&domain);
    let foreign = host_with(&mut domain, &acme, |_| ());
    domain.confirm(&foreign);
    assert_eq!((peers(&domain, &foreign), domain.state.overlay_revision(&tenant("acme"))), (vec![], 1));
    assert_eq!((peers(&domain, &one), revision(&domain)), (vec![other.node.clone()], before));
}

#[test]
fn a_host_without_a_wireguard_key_is_nobodys_peer() {
    let mut domain = Domain::founded();
    let plain = domain.active();
    let with = host(&mut domain);
    assert_eq!(peers(&domain, &with), []);
    assert_eq!(peers(&domain, &plain), vec![with.node.clone()]);
    assert_eq!(revision(&domain), 1);
}

#[test]
fn another_key_or_another_endpoint_is_news() {
    let mut domain = Domain::founded();
    let (one, other) = (host(&mut domain), host(&mut domain));
    let known = |domain: &Domain| {
        domain.state.peers_of(&domain.state.nodes[&one.node]).iter().next().map(|(_, p)| p.clone())
    };
    let before = known(&domain).unwrap();
    let token = domain.mint_pinned(&other.node);
    let wireguard = domain.wireguard();
    let again = domain.enroll_with(token, |request| {
        request.wireguard = Some(wireguard);
        request.underlay = Some(Underlay { ipv6: "2001:db8::7".parse().ok(), ipv4: None, port: 4500 });
    });
    assert_eq!(known(&domain), None, "an enrollment that nobody has confirmed is no peer");
    domain.confirm(&again);
    let after = known(&domain).unwrap();
    assert_eq!((after.key, after.address), (wireguard.key, before.address));
    assert_eq!(after.underlay.unwrap().to_string(), "[2001:db8::7]:4500");
    assert!(after.since > before.since);
}

/// D30.
#[test]
fn an_answer_said_again_holds_those_of_the_first_that_still_are_peers() {
    let mut domain = Domain::founded();
    let (stays, goes, comes_back) = (host(&mut domain), host(&mut domain), host(&mut domain));
    let asks = host_with(&mut domain, &TenantId::default_tenant(), |_| ());
    let told = |domain: &Domain| -> Vec<NodeId> {
        let node = &domain.state.nodes[&asks.node];
        domain.state.peers_at_enrollment(node).iter().map(|(id, _)| id.clone()).collect()
    };
    let mut all = vec![stays.node.clone(), goes.node.clone(), comes_back.node.clone()];
    all.sort();
    assert_eq!(told(&domain), all);
    host(&mut domain);
    assert_eq!(told(&domain), all, "who came later was not in the first answer");
    domain.end(&goes.node, NodeState::Revoked);
    check(&mut domain, about(quarantine, &comes_back), granted(&["host.quarantined"]));
    check(&mut domain, about(|node| Command::Release { node }, &comes_back), granted(&["host.released"]));
    assert_eq!(told(&domain), [stays.node], "who left and came back came later");
}

#[test]
fn peers_can_be_told_piece_by_piece() {
    let mut domain = Domain::founded();
    let all: Vec<_> = (0..5).map(|_| host(&mut domain)).collect();
    let known = domain.state.peers_of(&domain.state.nodes[&all[2].node]);
    host(&mut domain);
    let (mut told, mut last) = (Vec::new(), None);
    while let Some((id, _)) = known.behind(last.as_ref()).next() {
        told.push(id.clone());
        last = Some(id.clone());
    }
    let mut others: Vec<_> = all.iter().map(|one| one.node.clone()).filter(|id| *id != all[2].node).collect();
    others.sort();
    assert_eq!(told, others, "neither itself nor who came after it asked");
}

fn at(ipv4: &str) -> Underlay {
    Underlay { ipv6: None, ipv4: ipv4.parse().ok(), port: 51820 }
}

fn claim(of: &Enrolled, wireguard: Wireguard, underlay: Option<Underlay>) -> (Actor, Command) {
    let node = of.node.clone();
    let claim = ClaimOverlay { node, wireguard, underlay, holder_seen_at: None, former_unproven: false };
    (of.actor(), Command::ClaimOverlay(Box::new(claim)))
}

fn order(of: &Enrolled) -> (Actor, Command) {
    (local(), Command::OrderRekey { node: of.node.clone(), replace: false })
}

#[test]
fn a_node_without_a_key_joins_and_keeps_its_address() {
    let mut domain = Domain::founded();
    let (one, joins) = (host(&mut domain), domain.active());
    let key = domain.wireguard();
    let before = revision(&domain);
    check(&mut domain, claim(&joins, key, Some(at("192.0.2.1"))), granted(&["host.overlay_joined"]));
    assert_eq!((peers(&domain, &one), revision(&domain)), (vec![joins.node.clone()], before + 1));
    let node = domain.state.nodes[&joins.node].clone();
    assert!(node.address.is_some() && node.has_overlay() && node.underlay_proven);
    check(&mut domain, claim(&joins, key, None), granted(&[]));
    check(&mut domain, claim(&joins, key, Some(at("192.0.2.1"))), granted(&[]));
    assert_eq!(revision(&domain), before + 1, "what is on record is no news");
    check(&mut domain, claim(&joins, key, Some(at("192.0.2.9"))), granted(&["host.endpoint_changed"]));
    assert_eq!(revision(&domain), before + 2);
    assert!(!domain.state.nodes[&joins.node].underlay_proven, "the request came from elsewhere");
    assert_eq!(domain.state.nodes[&joins.node].address, node.address);
}

#[test]
fn a_node_joins_when_it_is_there_and_not_in_quarantine() {
    let mut domain = Domain::founded();
    let key = domain.wireguard();
    let enrolled = domain.enroll();
    check(&mut domain, claim(&enrolled, key, None), refused("try_again"));
    domain.confirm(&enrolled);
    check(&mut domain, about(quarantine, &enrolled), granted(&["host.quarantined"]));
    check(&mut domain, claim(&enrolled, key, None), refused("node_quarantined"));
    check(&mut domain, about(|node| Command::Release { node }, &enrolled), granted(&["host.released"]));
    check(&mut domain, claim(&enrolled, key, None), granted(&["host.overlay_joined"]));
    domain.end(&enrolled.node, NodeState::Revoked);
    check(&mut domain, claim(&enrolled, key, None), refused("unauthenticated"));
}

#[test]
fn a_key_that_another_node_has_is_refused_and_its_holder_hears_of_it_once_a_minute() {
    let mut domain = Domain::founded();
    let (holder, claims) = (host(&mut domain), domain.active());
    let taken = domain.state.nodes[&holder.node].wireguard.unwrap();
    check(&mut domain, claim(&claims, taken, None), refused_with("wireguard_key_in_use", &["alert.raised"]));
    check(&mut domain, claim(&claims, taken, None), refused("wireguard_key_in_use"));
    domain.pass(span("1m"));
    check(&mut domain, claim(&claims, taken, None), refused_with("wireguard_key_in_use", &["alert.raised"]));
    assert_eq!(domain.state.alerts.values().next().and_then(|alert| alert.node.clone()), Some(holder.node));
}

#[test]
fn a_key_is_replaced_by_order_alone_and_the_old_one_rests() {
    let mut domain = Domain::founded();
    let (one, other) = (host(&mut domain), domain.active());
    let (old, new) = (domain.state.nodes[&one.node].wireguard.unwrap(), domain.wireguard());
    check(&mut domain, claim(&one, new, None), refused("rekey_not_ordered"));
    check(&mut domain, order(&other), refused("no_overlay"));
    check(&mut domain, order(&one), granted(&["host.rekey_ordered"]));
    check(&mut domain, order(&one), granted(&[]));
    check(
        &mut domain,
        claim(&one, new, Some(at("192.0.2.1"))),
        granted(&["host.rekeyed", "host.endpoint_changed"]),
    );
    let third = domain.wireguard();
    check(&mut domain, claim(&one, third, None), refused("rekey_not_ordered"));
    check(&mut domain, claim(&other, old, None), refused_with("wireguard_key_in_use", &["alert.raised"]));
    domain.pass(span("29d"));
    domain.give(Actor::Reconciler, Command::Tidy);
    assert_eq!(domain.state.wireguard_keys.get(&old.key), Some(&one.node));
    domain.pass(span("1d"));
    domain.give(Actor::Reconciler, Command::Tidy);
    assert_eq!(domain.state.wireguard_keys.get(&old.key), None);
    assert_eq!(domain.state.wireguard_keys.get(&new.key), Some(&one.node));
}

#[test]
fn whoever_cannot_prove_the_key_on_record_replaces_it_once_and_by_an_order_for_that() {
    let mut domain = Domain::founded();
    let one = host(&mut domain);
    let unproven = |domain: &mut Domain| {
        let (node, wireguard) = (one.node.clone(), domain.wireguard());
        let claim =
            ClaimOverlay { node, wireguard, underlay: None, holder_seen_at: None, former_unproven: true };
        (one.actor(), Command::ClaimOverlay(Box::new(claim)))
    };
    let replace = (local(), Command::OrderRekey { node: one.node.clone(), replace: true });
    let claims = unproven(&mut domain);
    check(&mut domain, claims.clone(), refused("rekey_not_ordered"));
    check(&mut domain, order(&one), granted(&["host.rekey_ordered"]));
    check(&mut domain, claims.clone(), refused("wireguard_key_unproven"));
    check(&mut domain, replace.clone(), granted(&["host.rekey_ordered"]));
    check(&mut domain, replace, granted(&[]));
    check(&mut domain, order(&one), granted(&[]));
    check(&mut domain, claims, granted(&["host.rekeyed"]));
    check(&mut domain, order(&one), granted(&["host.rekey_ordered"]));
    let claims = unproven(&mut domain);
    check(&mut domain, claims, refused("wireguard_key_unproven"));
}

#[test]
fn an_order_that_nobody_fetches_ends_after_a_week() {
    let mut domain = Domain::founded();
    let one = host(&mut domain);
    check(&mut domain, order(&one), granted(&["host.rekey_ordered"]));
    domain.pass(span("7d"));
    let events = domain.give(Actor::Reconciler, Command::Tidy).events;
    assert!(events.iter().any(|event| event.name() == "host.rekey_expired"));
    assert_eq!(domain.state.nodes[&one.node].rekey, None);
}

#[test]
fn an_endpoint_must_be_one_that_others_can_send_to() {
    let mut domain = Domain::founded();
    let one = host(&mut domain);
    let key = domain.state.nodes[&one.node].wireguard.unwrap();
    let v6 = |text: &str| Underlay { ipv6: text.parse().ok(), ipv4: None, port: 51820 };
    let bad = [
        at("127.0.0.1"),
        at("0.0.0.0"),
        at("0.1.2.3"),
        at("240.0.0.1"),
        at("224.0.0.1"),
        at("255.255.255.255"),
        at("169.254.1.1"),
        v6("::"),
        v6("::1"),
        v6("ff02::1"),
        v6("fe80::1"),
        v6("::ffff:192.0.2.1"),
        v6("::192.0.2.1"),
        v6("64:ff9b::c000:201"),
        v6("2002:c000:201::1"),
        v6("fec0::1"),
        v6("fd12:3456:789a::100"),
        Underlay { port: 0, ..at("192.0.2.1") },
        Underlay { ipv6: None, ipv4: None, port: 1 },
        Underlay { ipv6: "fe80::1".parse().ok(), ..at("192.0.2.1") },
    ];
    for underlay in bad {
        check(&mut domain, claim(&one, key, Some(underlay)), refused("endpoint_invalid"));
    }
    check(&mut domain, claim(&one, key, Some(v6("2001:db8::1"))), granted(&["host.endpoint_changed"]));
}

#[test]
fn an_endpoint_is_not_another_hosts_that_was_seen_there_unless_the_caller_is_seen_there_too() {
    let mut domain = Domain::founded();
    let (one, other) = (host(&mut domain), domain.active());
    let (own, key) = (domain.state.nodes[&one.node].wireguard.unwrap(), domain.wireguard());
    let claim_from = |domain: &mut Domain, from: &str, underlay: Underlay, expected: Result<&str, &str>| {
        let (actor, command) = claim(&other, key, Some(underlay));
        let mut envelope = domain.envelope(actor, command);
        envelope.source = Source::Address(from.parse().unwrap());
        let applied = domain.step(&envelope);
        let code = applied.answer.as_ref().err().map(|rejection| rejection.code());
        assert_eq!(code, expected.err(), "{:?}", applied.answer);
        assert_eq!(applied.events.iter().map(|event| event.name()).next(), expected.ok());
    };
    // Every other command here comes from 192.0.2.1.
    check(&mut domain, claim(&one, own, Some(at("192.0.2.1"))), granted(&["host.endpoint_changed"]));
    claim_from(&mut domain, "192.0.2.2", at("192.0.2.1"), Err("endpoint_invalid"));
    let both = Underlay { ipv6: "2001:db8::1".parse().ok(), ..at("192.0.2.1") };
    claim_from(&mut domain, "2001:db8::1", both, Err("endpoint_invalid"));
    let elsewhere = Underlay { port: 4500, ..at("192.0.2.1") };
    claim_from(&mut domain, "192.0.2.2", elsewhere, Ok("host.overlay_joined"));
    claim_from(&mut domain, "192.0.2.1", at("192.0.2.1"), Ok("host.endpoint_changed"));
    claim_from(&mut domain, "192.0.2.2", at("192.0.2.2"), Ok("host.endpoint_changed"));
    domain.end(&one.node, NodeState::Revoked);
    claim_from(&mut domain, "192.0.2.2", at("192.0.2.1"), Ok("host.endpoint_changed"));
}

#[test]
fn an_endpoint_that_a_host_only_names_keeps_nobody_out() {
    let mut domain = Domain::founded();
    let (lies, honest) = (host(&mut domain), domain.active());
    let (own, key) = (domain.state.nodes[&lies.node].wireguard.unwrap(), domain.wireguard());
    check(&mut domain, claim(&lies, own, Some(at("192.0.2.50"))), granted(&["host.endpoint_changed"]));
    let both = Underlay { ipv6: "2001:db8::1".parse().ok(), ..at("192.0.2.50") };
    check(&mut domain, claim(&honest, key, Some(both)), granted(&["host.overlay_joined"]));
    assert_eq!(domain.state.nodes[&honest.node].underlay, Some(both));
}

#[test]
fn a_scope_of_vclusters_parts_the_peers_of_a_tenant() {
    let mut domain = Domain::founded();
    let (one, other, loose) = (host(&mut domain), host(&mut domain), host(&mut domain));
    for name in ["red", "blue"] {
        let create = create_vcluster(name, &TenantId::default_tenant());
        check(&mut domain, (local(), create), granted(&["vcluster.created"]));
    }
    let assign = |of: &Enrolled, to: &str| {
        (local(), Command::Assign { node: of.node.clone(), vcluster: vcluster(to) })
    };
    check(&mut domain, assign(&one, "red"), granted(&["host.assigned"]));
    let before = revision(&domain);
    check(&mut domain, assign(&other, "blue"), granted(&["host.assigned"]));
    assert_eq!(revision(&domain), before, "where all hosts are peers a vCluster is no news");
    assert_eq!(peers(&domain, &one).len(), 2);
    domain.policy("overlay.scope", "vcluster");
    for host in [&one, &other, &loose] {
        assert_eq!(peers(&domain, host), [], "alone, or in none");
    }
    let to = Command::Move { node: other.node.clone(), vcluster: vcluster("red") };
    check(&mut domain, (local(), to), granted(&["host.moved"]));
    assert_eq!(peers(&domain, &one), vec![other.node.clone()]);
    assert_eq!(peers(&domain, &other), vec![one.node.clone()]);
    let overlay = &domain.state.overlays[&TenantId::default_tenant()];
    assert_eq!(overlay.peers[&other.node].regrouped, overlay.revision);
    domain.policy("overlay.scope", "tenant");
    assert_eq!(peers(&domain, &loose).len(), 2);
}

#[test]
fn who_is_reached_where_survives_the_disk() {
    let mut domain = Domain::founded();
    let one = host(&mut domain);
    let own = domain.state.nodes[&one.node].wireguard.unwrap();
    check(&mut domain, claim(&one, own, Some(at("192.0.2.1"))), granted(&["host.endpoint_changed"]));
    let stored = rmp_serde::to_vec_named(&domain.state).unwrap();
    let read: State = rmp_serde::from_slice(&stored).unwrap();
    assert_eq!(read, domain.state);
    domain.state = read;
    let plain = domain.active();
    assert_eq!(peers(&domain, &plain), vec![one.node.clone()]);
    let (of, to) = (TenantId::default_tenant(), at("192.0.2.1"));
    let from = Source::Address("192.0.2.2".parse().unwrap());
    assert!(domain.state.check_not_anothers(&of, None, &to, &from).is_err(), "another host enrolls");
    assert!(domain.state.check_not_anothers(&of, Some(&one.node), &to, &from).is_ok());
}

#[test]
fn a_peer_is_reached_by_a_family_that_both_have() {
    let v6 = "2001:db8::1".parse().ok();
    let both = Underlay { ipv6: v6, ..at("192.0.2.1") };
    let only_v6 = Underlay { ipv4: None, ..both };
    let reached = |peer: Underlay, of: Option<Underlay>| {
        peer.for_families(Families::of(of.as_ref())).map(|address| address.to_string())
    };
    let (six, four) = (Some("[2001:db8::1]:51820".to_owned()), Some("192.0.2.1:51820".to_owned()));
    assert_eq!(reached(both, Some(both)), six);
    assert_eq!(reached(both, Some(at("192.0.2.2"))), four);
    assert_eq!(reached(both, Some(only_v6)), six);
    assert_eq!(reached(only_v6, Some(at("192.0.2.2"))), None);
    assert_eq!((reached(both, None), reached(at("192.0.2.1"), None)), (six, four));
}
