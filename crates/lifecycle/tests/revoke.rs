//! Taking an identity away, and giving the name a new life.

use crate::support::{
    Domain, Enrolled, check, contact, enroll, granted, local, node, only, refused, refused_with, revoke, span,
};
use lifecycle::registry::{Actor, CertificateStatus, Command, NodeState, Role};

const REVOKED: &[&str] = &["host.revoked"];
const BURNED: &[&str] = &["enrollment.refused"];
const ENDS: [NodeState; 2] = [NodeState::Revoked, NodeState::Decommissioned];

fn decommission(of: &Enrolled) -> (Actor, Command) {
    (local(), Command::Decommission { node: of.node.clone(), force: false })
}

fn reinstate(of: &Enrolled) -> (Actor, Command) {
    (local(), Command::Reinstate { node: of.node.clone(), as_registered: true })
}

#[test]
fn every_serial_is_denied_at_once_whatever_it_was() {
    for end in ENDS {
        let mut domain = Domain::founded();
        let first = domain.active();
        let second = domain.renew(&first);
        check(&mut domain, contact(&second), granted(&["certificate.seen", "certificate.superseded"]));
        let third = domain.renew(&second);
        let denials = domain.state.denials;
        domain.end(&first.node, end);
        for by in [&first, &second, &third] {
            assert!(domain.state.is_denied(&by.serial));
            let certificate = &domain.state.certificates[&by.serial];
            assert_eq!((certificate.status, certificate.der.as_ref()), (CertificateStatus::Denied, None));
            assert_eq!(certificate.denied_at, Some(domain.now));
            check(&mut domain, contact(by), refused("unauthenticated"));
        }
        assert!(domain.state.denials > denials);
        assert_eq!(domain.state.nodes[&first.node].state, end);
    }
}

#[test]
fn what_was_denied_stays_denied_after_a_new_life() {
    for end in ENDS {
        let mut domain = Domain::founded();
        let old = domain.active();
        let unseen = domain.renew(&old);
        domain.end(&old.node, end);
        check(&mut domain, reinstate(&old), granted(&["host.reinstated"]));
        for by in [&old, &unseen] {
            assert!(domain.state.is_denied(&by.serial));
            check(&mut domain, contact(by), refused("unauthenticated"));
        }
        let token = domain.mint_pinned(&old.node);
        let new = domain.enroll_with(token, |_| ());
        domain.confirm(&new);
        for by in [&old, &unseen] {
            check(&mut domain, contact(by), refused("unauthenticated"));
        }
    }
}

#[test]
fn a_new_life_is_a_new_generation_and_begins_registered() {
    let mut domain = Domain::founded();
    let node = domain.active();
    check(&mut domain, reinstate(&node), granted(&[]));
    let drain = Command::Drain { node: node.node.clone(), within: None };
    check(&mut domain, (local(), drain), granted(&["host.draining"]));
    for generation in 2..4 {
        domain.end(&node.node, NodeState::Revoked);
        check(&mut domain, reinstate(&node), granted(&["host.reinstated"]));
        let record = &domain.state.nodes[&node.node];
        assert_eq!((record.state, record.generation), (NodeState::Registered, generation));
        assert!(!record.draining && !record.quarantined && record.address.is_none());
        check(&mut domain, reinstate(&node), granted(&[]));
    }
}

#[test]
fn a_pinned_token_burns_on_a_tombstone_and_works_after_a_new_life() {
    for end in ENDS {
        let mut domain = Domain::founded();
        let old = domain.active();
        let (early, late) = (domain.mint_pinned(&old.node), domain.mint_pinned(&old.node));
        domain.end(&old.node, end);
        let request = domain.request(early);
        check(&mut domain, enroll(request.clone()), refused_with("node_revoked", BURNED));
        check(&mut domain, reinstate(&old), granted(&["host.reinstated"]));
        check(&mut domain, enroll(request), refused("token_used"));
        let new = domain.enroll_with(late, |_| ());
        assert_eq!(new.node, old.node);
        domain.confirm(&new);
        assert_eq!(domain.state.nodes[&old.node].generation, 2);
    }
}

#[test]
fn ending_twice_is_ending_once() {
    let mut domain = Domain::founded();
    let (revoked, retired) = (domain.active(), domain.active());
    check(&mut domain, (local(), revoke(&revoked.node)), granted(REVOKED));
    check(&mut domain, (local(), revoke(&revoked.node)), granted(&[]));
    check(&mut domain, decommission(&revoked), refused("node_revoked"));
    check(&mut domain, decommission(&retired), granted(&["host.decommissioned"]));
    check(&mut domain, decommission(&retired), granted(&[]));
    check(&mut domain, (local(), revoke(&retired.node)), granted(REVOKED));
}

#[test]
fn any_state_can_be_revoked() {
    let mut domain = Domain::founded();
    let (enrolled, inactive, registered) = (domain.enroll(), domain.active(), domain.active());
    domain.end(&registered.node, NodeState::Decommissioned);
    check(&mut domain, reinstate(&registered), granted(&["host.reinstated"]));
    domain.silence(&inactive.node);
    for of in [enrolled, inactive, registered] {
        check(&mut domain, (local(), revoke(&of.node)), granted(REVOKED));
    }
}

#[test]
fn a_node_that_was_ever_active_keeps_its_wireguard_key_and_an_unconfirmed_one_gives_it_back() {
    for end in ENDS {
        let mut domain = Domain::founded();
        let (kept, free) = (domain.wireguard(), domain.wireguard());
        let tokens = [domain.mint(), domain.mint()];
        let confirmed = domain.enroll_with(tokens[0], |request| request.wireguard = Some(kept));
        domain.confirm(&confirmed);
        let unconfirmed = domain.enroll_with(tokens[1], |request| request.wireguard = Some(free));
        for of in [&confirmed, &unconfirmed] {
            domain.end(&of.node, end);
        }
        let token = domain.mint();
        let mut request = domain.request(token);
        request.wireguard = Some(kept);
        check(&mut domain, enroll(request), refused_with("wireguard_key_in_use", BURNED));
        let token = domain.mint();
        let next = domain.enroll_with(token, |request| request.wireguard = Some(free));
        assert_eq!(domain.state.wireguard_keys[&free.key], next.node);
        // The same name may have its own key back.
        check(&mut domain, reinstate(&confirmed), granted(&["host.reinstated"]));
        let token = domain.mint_pinned(&confirmed.node);
        domain.enroll_with(token, |request| request.wireguard = Some(kept));
    }
}

#[test]
fn the_address_of_a_node_that_is_gone_rests_before_it_is_used_again() {
    let mut domain = Domain::founded();
    let next = |domain: &mut Domain| {
        let (token, wireguard) = (domain.mint(), domain.wireguard());
        let enrolled = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
        let address = domain.state.nodes[&enrolled.node].address.unwrap();
        (enrolled, address)
    };
    let (gone, address) = next(&mut domain);
    domain.end(&gone.node, NodeState::Revoked);
    assert_eq!(domain.state.nodes[&gone.node].address, None);
    domain.pass(span("29d"));
    assert_ne!(next(&mut domain).1, address);
    domain.pass(span("1d"));
    assert_eq!(next(&mut domain).1, address);
}

#[test]
fn who_is_unknown_or_another_tenants_does_not_exist() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let mine = domain.active();
    let unknown = Enrolled { node: node("nobody"), ..mine.clone() };
    let bob = domain.operator("bob", Role::PlatformAdmin, only(&["acme"]));
    for of in [&mine, &unknown] {
        for (_, command) in [(local(), revoke(&of.node)), decommission(of), reinstate(of)] {
            check(&mut domain, (bob.clone(), command), refused("node_not_found"));
        }
    }
}

#[test]
fn an_operator_revokes_and_only_a_platform_admin_decommissions_and_reinstates() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let bob = domain.operator("bob", Role::Operator, only(&["default"]));
    let vic = domain.operator("vic", Role::Viewer, only(&["default"]));
    let ann = domain.operator("ann", Role::PlatformAdmin, only(&["default"]));
    check(&mut domain, (vic, revoke(&node.node)), refused("forbidden"));
    check(&mut domain, (bob.clone(), decommission(&node).1), refused("forbidden"));
    check(&mut domain, (bob.clone(), revoke(&node.node)), granted(REVOKED));
    check(&mut domain, (bob, reinstate(&node).1), refused("forbidden"));
    check(&mut domain, (ann, reinstate(&node).1), granted(&["host.reinstated"]));
}

#[test]
fn a_tombstone_tells_who_when_and_why() {
    let mut domain = Domain::founded();
    let of = domain.active();
    check(
        &mut domain,
        (local(), Command::Revoke { node: of.node.clone(), reason: "stolen".into() }),
        granted(REVOKED),
    );
    let ended = domain.state.nodes[&of.node].ended.clone().unwrap();
    assert_eq!((ended.by.as_str(), ended.reason.as_str(), ended.at), ("local:root", "stolen", domain.now));
    check(&mut domain, reinstate(&of), granted(&["host.reinstated"]));
    assert_eq!(domain.state.nodes[&of.node].ended, None);
}
