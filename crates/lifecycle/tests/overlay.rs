//! Who is a peer of whom, and when that is news.

use crate::support::{Domain, Enrolled, check, granted, local, tenant};
use lifecycle::names::{NodeId, TenantId};
use lifecycle::registry::{Actor, Command, Enroll, NodeState, Underlay};

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
