//! Ordering a renewal.

use crate::support::{Domain, Enrolled, check, contact, granted, local, node, only, refused, span};
use lifecycle::registry::{Actor, Command, NodeState, Role};

const ORDERED: &[&str] = &["certificate.rotation_ordered"];

fn rotate(of: &Enrolled) -> (Actor, Command) {
    (local(), Command::Rotate { node: of.node.clone() })
}

#[test]
fn an_order_stands_until_the_node_renews() {
    let mut domain = Domain::founded();
    let old = domain.active();
    check(&mut domain, rotate(&old), granted(ORDERED));
    domain.pass(span("1m"));
    check(&mut domain, rotate(&old), granted(&[]));
    check(&mut domain, contact(&old), granted(&[]));
    assert!(domain.state.nodes[&old.node].rotation.is_some());
    domain.renew(&old);
    assert_eq!(domain.state.nodes[&old.node].rotation, None);
    check(&mut domain, rotate(&old), granted(ORDERED));
}

#[test]
fn enrolling_again_obeys_the_order_too() {
    let mut domain = Domain::founded();
    let first = domain.active();
    check(&mut domain, rotate(&first), granted(ORDERED));
    let token = domain.mint_pinned(&first.node);
    domain.enroll_with(token, |_| ());
    assert_eq!(domain.state.nodes[&first.node].rotation, None);
}

#[test]
fn an_order_that_nobody_fetches_ends_after_a_week() {
    let mut domain = Domain::founded();
    domain.policy("profile.default.lifetime", "90d");
    let node = domain.active();
    check(&mut domain, rotate(&node), granted(ORDERED));
    domain.pass(span("6d"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&[]));
    domain.pass(span("1d"));
    let events = domain.give(Actor::Reconciler, Command::Tidy).events;
    assert!(events.iter().any(|event| event.name() == "certificate.rotation_expired"));
    assert_eq!(domain.state.nodes[&node.node].rotation, None);
    let events = domain.give(Actor::Reconciler, Command::Tidy).events;
    assert!(events.iter().all(|event| event.name() != "certificate.rotation_expired"));
    check(&mut domain, rotate(&node), granted(ORDERED));
}

#[test]
fn who_has_nothing_to_renew_with_is_not_ordered_to() {
    let mut domain = Domain::founded();
    let (reinstated, expired) = (domain.active(), domain.active());
    domain.end(&reinstated.node, NodeState::Revoked);
    check(&mut domain, rotate(&reinstated), refused("node_revoked"));
    let reinstate = Command::Reinstate { node: reinstated.node.clone(), as_registered: true };
    check(&mut domain, (local(), reinstate), granted(&["host.reinstated"]));
    check(&mut domain, rotate(&reinstated), refused("no_certificate"));
    domain.pass(span("1d"));
    check(&mut domain, rotate(&expired), refused("no_certificate"));
    let unknown = Enrolled { node: node("nobody"), ..expired };
    check(&mut domain, rotate(&unknown), refused("node_not_found"));
}

#[test]
fn another_tenants_node_does_not_exist() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let node = domain.active();
    let stranger = domain.operator("bob", Role::Operator, only(&["acme"]));
    let (_, command) = rotate(&node);
    check(&mut domain, (stranger, command), refused("node_not_found"));
}
