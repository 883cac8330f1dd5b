//! A node finishes what it does and takes nothing new.

use crate::support::{Domain, Enrolled, check, granted, local, node, only, refused, span};
use lifecycle::names::Span;
use lifecycle::registry::{Actor, Command, NodeState, Role};

const DRAINING: &[&str] = &["host.draining"];

fn drain(of: &Enrolled, within: Option<Span>) -> (Actor, Command) {
    (local(), Command::Drain { node: of.node.clone(), within })
}

fn undrain(of: &Enrolled) -> (Actor, Command) {
    (local(), Command::Undrain { node: of.node.clone() })
}

#[test]
fn draining_twice_is_draining_once_and_undraining_too() {
    let mut domain = Domain::founded();
    let node = domain.active();
    check(&mut domain, undrain(&node), granted(&[]));
    check(&mut domain, drain(&node, None), granted(DRAINING));
    check(&mut domain, drain(&node, None), granted(&[]));
    assert!(domain.state.nodes[&node.node].draining);
    check(&mut domain, undrain(&node), granted(&["host.undrained"]));
    check(&mut domain, undrain(&node), granted(&[]));
    assert!(!domain.state.nodes[&node.node].draining);
}

#[test]
fn a_limit_is_kept_until_another_is_named() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let by = domain.now.plus(span("30m"));
    check(&mut domain, drain(&node, Some(span("30m"))), granted(DRAINING));
    check(&mut domain, drain(&node, Some(span("30m"))), granted(&[]));
    domain.pass(span("1m"));
    check(&mut domain, drain(&node, None), granted(&[]));
    check(&mut domain, drain(&node, Some(span("30m"))), granted(&[]));
    assert_eq!(domain.state.nodes[&node.node].drain_by, Some(by));
    check(&mut domain, drain(&node, Some(span("5m"))), granted(DRAINING));
    assert_eq!(domain.state.nodes[&node.node].drain_by, Some(domain.now.plus(span("5m"))));
    check(&mut domain, undrain(&node), granted(&["host.undrained"]));
    assert_eq!(domain.state.nodes[&node.node].drain_by, None);
}

#[test]
fn draining_is_independent_of_the_state() {
    let mut domain = Domain::founded();
    let (enrolled, inactive) = (domain.enroll(), domain.active());
    domain.silence(&inactive.node);
    for (node, state) in [(enrolled, NodeState::Enrolled), (inactive, NodeState::Inactive)] {
        check(&mut domain, drain(&node, None), granted(DRAINING));
        assert_eq!(domain.state.nodes[&node.node].state, state);
    }
}

#[test]
fn a_node_that_is_gone_or_unknown_is_not_drained() {
    let mut domain = Domain::founded();
    let gone = domain.active();
    domain.end(&gone.node, NodeState::Decommissioned);
    let unknown = Enrolled { node: node("nobody"), ..gone.clone() };
    for (of, code) in [(gone, "node_revoked"), (unknown, "node_not_found")] {
        check(&mut domain, drain(&of, None), refused(code));
        check(&mut domain, undrain(&of), refused(code));
    }
}

#[test]
fn another_tenants_node_does_not_exist() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let mine = domain.active();
    let stranger = domain.operator("bob", Role::Operator, only(&["acme"]));
    for (_, command) in [drain(&mine, None), undrain(&mine)] {
        check(&mut domain, (stranger.clone(), command), refused("node_not_found"));
    }
    let bob = domain.operator("carol", Role::Operator, only(&["default"]));
    let (_, command) = drain(&mine, None);
    check(&mut domain, (bob, command), granted(DRAINING));
}

#[test]
fn a_drain_takes_a_second_at_least_and_thirty_days_at_most() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for within in [Span::from_millis(999), span("31d")] {
        check(&mut domain, drain(&node, Some(within)), refused("bad_request"));
        let unknown = Command::Drain { node: crate::support::node("nobody"), within: Some(within) };
        check(&mut domain, (local(), unknown), refused("node_not_found"));
    }
    for within in [span("1s"), span("30d")] {
        check(&mut domain, drain(&node, Some(within)), granted(DRAINING));
    }
}
