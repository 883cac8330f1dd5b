//! A node may authenticate, send evidence and renew, and gets nothing else.

use crate::support::{Domain, Enrolled, check, contact, granted, local, node, only, refused};
use lifecycle::registry::{Actor, Command, NodeState, Role};

fn quarantine(of: &Enrolled, reason: &str) -> (Actor, Command) {
    (local(), Command::Quarantine { node: of.node.clone(), reason: reason.to_owned() })
}

fn release(of: &Enrolled) -> (Actor, Command) {
    (local(), Command::Release { node: of.node.clone() })
}

#[test]
fn a_node_is_quarantined_once_and_released_once() {
    let mut domain = Domain::founded();
    let node = domain.active();
    check(&mut domain, release(&node), granted(&[]));
    check(&mut domain, quarantine(&node, "odd"), granted(&["host.quarantined"]));
    check(&mut domain, quarantine(&node, "very odd"), granted(&[]));
    let held = &domain.state.nodes[&node.node];
    let account = held.quarantine.as_ref().unwrap();
    assert!(held.quarantined);
    assert_eq!((account.by.as_str(), account.reason.as_str(), account.at), ("local:root", "odd", domain.now));
    check(&mut domain, release(&node), granted(&["host.released"]));
    check(&mut domain, release(&node), granted(&[]));
    let free = &domain.state.nodes[&node.node];
    assert!(!free.quarantined && free.quarantine.is_none());
}

#[test]
fn a_quarantined_node_authenticates_and_renews() {
    let mut domain = Domain::founded();
    let old = domain.active();
    check(&mut domain, quarantine(&old, "odd"), granted(&["host.quarantined"]));
    let new = domain.renew(&old);
    check(&mut domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    assert!(domain.state.nodes[&old.node].quarantined);
}

#[test]
fn enrolling_again_is_no_way_out() {
    let mut domain = Domain::founded();
    let first = domain.active();
    check(&mut domain, quarantine(&first, "odd"), granted(&["host.quarantined"]));
    let token = domain.mint_pinned(&first.node);
    let second = domain.enroll_with(token, |_| ());
    domain.confirm(&second);
    assert!(domain.state.nodes[&first.node].quarantined);
}

#[test]
fn a_node_that_is_gone_or_unknown_is_not_quarantined() {
    let mut domain = Domain::founded();
    let gone = domain.active();
    domain.end(&gone.node, NodeState::Revoked);
    let unknown = Enrolled { node: node("nobody"), ..gone.clone() };
    for (of, code) in [(gone, "node_revoked"), (unknown, "node_not_found")] {
        check(&mut domain, quarantine(&of, "odd"), refused(code));
        check(&mut domain, release(&of), refused(code));
    }
}

#[test]
fn another_tenants_node_does_not_exist() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let node = domain.active();
    let stranger = domain.operator("bob", Role::PlatformAdmin, only(&["acme"]));
    for (_, command) in [quarantine(&node, "odd"), release(&node)] {
        check(&mut domain, (stranger.clone(), command), refused("node_not_found"));
    }
}
