//! A node's first word with its new identity.

use crate::support::{Domain, check, confirm_failed, confirm_ok, granted, local, node, refused, span};
use lifecycle::registry::{Actor, NodeState};

const CONFIRMED: &[&str] = &["host.confirmed", "host.active", "certificate.seen"];

#[test]
fn a_node_that_confirms_is_active_and_its_certificate_is_no_longer_kept_whole() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    domain.pass(span("1m"));
    check(&mut domain, (enrolled.actor(), confirm_ok(&enrolled.node)), granted(CONFIRMED));
    let record = &domain.state.nodes[&enrolled.node];
    assert_eq!((record.state, record.state_since), (NodeState::Active, domain.now));
    assert_eq!((record.last_seen, record.ever_active), (Some(domain.now), true));
    assert_eq!(domain.state.certificates[&enrolled.serial].der, None);
}

#[test]
fn confirming_twice_is_confirming_once() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    domain.confirm(&enrolled);
    domain.pass(span("1m"));
    check(&mut domain, (enrolled.actor(), confirm_ok(&enrolled.node)), granted(&[]));
}

#[test]
fn only_the_node_itself_confirms() {
    let mut domain = Domain::founded();
    let (enrolled, other) = (domain.enroll(), domain.enroll());
    let command = confirm_ok(&enrolled.node);
    for actor in [local(), Actor::Stranger, Actor::Reconciler] {
        check(&mut domain, (actor, command.clone()), refused("unauthenticated"));
    }
    check(&mut domain, (other.actor(), command), refused("forbidden"));
    check(&mut domain, (other.actor(), confirm_ok(&node("nobody"))), refused("forbidden"));
}

#[test]
fn another_nodes_certificate_does_not_confirm() {
    let mut domain = Domain::founded();
    let (enrolled, other) = (domain.enroll(), domain.enroll());
    let disguised = Actor::Node { id: enrolled.node.clone(), serial: other.serial };
    check(&mut domain, (disguised, confirm_ok(&enrolled.node)), refused("unauthenticated"));
}

#[test]
fn an_operators_certificate_does_not_confirm() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let alice =
        domain.operator("alice", lifecycle::registry::Role::PlatformAdmin, lifecycle::registry::Tenants::All);
    let Actor::Operator { serial, .. } = alice else { unreachable!() };
    let disguised = Actor::Node { id: enrolled.node.clone(), serial };
    check(&mut domain, (disguised, confirm_ok(&enrolled.node)), refused("unauthenticated"));
}

#[test]
fn a_serial_that_is_not_on_record_does_not_confirm() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let unknown = Actor::Node { id: enrolled.node.clone(), serial: domain.serial() };
    check(&mut domain, (unknown, confirm_ok(&enrolled.node)), refused("unauthenticated"));
}

#[test]
fn a_denied_certificate_does_not_confirm() {
    let mut domain = Domain::founded();
    let first = domain.enroll();
    let token = domain.mint_pinned(&first.node);
    let second = domain.enroll_with(token, |_| ());
    check(&mut domain, (first.actor(), confirm_ok(&first.node)), refused("unauthenticated"));
    domain.confirm(&second);
}

#[test]
fn an_expired_certificate_does_not_confirm() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    domain.pass(span("1d"));
    check(&mut domain, (enrolled.actor(), confirm_ok(&enrolled.node)), refused("unauthenticated"));
}

#[test]
fn a_node_that_is_gone_does_not_confirm() {
    for gone in [NodeState::Revoked, NodeState::Decommissioned] {
        let mut domain = Domain::founded();
        let enrolled = domain.enroll();
        domain.end(&enrolled.node, gone);
        check(&mut domain, (enrolled.actor(), confirm_ok(&enrolled.node)), refused("unauthenticated"));
    }
}

#[test]
fn an_inactive_node_that_confirms_is_active_again() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    domain.confirm(&enrolled);
    domain.silence(&enrolled.node);
    check(&mut domain, (enrolled.actor(), confirm_ok(&enrolled.node)), granted(&["host.active"]));
}

#[test]
fn a_host_that_could_not_keep_its_identity_raises_one_alert_and_stays_enrolled() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let failed = || (enrolled.actor(), confirm_failed(&enrolled.node, "disk full"));
    check(&mut domain, failed(), granted(&["alert.raised"]));
    domain.pass(span("1m"));
    check(&mut domain, failed(), granted(&[]));
    let alert = domain.state.alerts.values().next().unwrap();
    assert_eq!((alert.kind.as_str(), alert.count), ("enrollment_not_persisted", 1));
    assert_eq!((alert.node.as_ref(), alert.detail.as_str()), (Some(&enrolled.node), "disk full"));
    assert_eq!(domain.state.nodes[&enrolled.node].state, NodeState::Enrolled);
}

#[test]
fn another_reason_does_not_grow_the_trail() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    for (reason, events) in [("disk full", &["alert.raised"][..]), ("read-only", &[]), ("disk full", &[])] {
        let when = (enrolled.actor(), confirm_failed(&enrolled.node, reason));
        check(&mut domain, when, granted(events));
    }
    assert_eq!(domain.state.alerts.len(), 1);
}

#[test]
fn each_node_has_its_own_alert_and_confirming_ends_it() {
    let mut domain = Domain::founded();
    let nodes = [domain.enroll(), domain.enroll()];
    for enrolled in &nodes {
        let when = (enrolled.actor(), confirm_failed(&enrolled.node, "disk full"));
        check(&mut domain, when, granted(&["alert.raised"]));
    }
    let confirmed = (nodes[0].actor(), confirm_ok(&nodes[0].node));
    check(
        &mut domain,
        confirmed,
        granted(&["host.confirmed", "host.active", "alert.cleared", "certificate.seen"]),
    );
    let open: Vec<_> = domain.state.alerts.values().map(|alert| alert.node.clone()).collect();
    assert_eq!(open, [Some(nodes[1].node.clone())]);
}

#[test]
fn a_node_that_has_confirmed_cannot_say_that_it_failed() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    domain.confirm(&enrolled);
    let when = (enrolled.actor(), confirm_failed(&enrolled.node, "disk full"));
    check(&mut domain, when, refused("already_confirmed"));
}
