//! A node's authenticated request, whatever it asked for.

use crate::support::{Domain, check, contact, granted, local, refused, span};
use lifecycle::registry::{Actor, AlertKind, Command, NodeState, RaiseAlert};

#[test]
fn the_first_contact_confirms_an_enrollment() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let first = &["host.confirmed", "host.active", "certificate.seen"];
    check(&mut domain, contact(&enrolled), granted(first));
    assert_eq!(domain.state.certificates[&enrolled.serial].der, None);
    domain.pass(span("1m"));
    check(&mut domain, contact(&enrolled), granted(&[]));
}

#[test]
fn the_first_contact_ends_the_alerts_of_an_enrollment() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    for kind in [AlertKind::EnrollmentStuck, AlertKind::CloneSuspected] {
        let raise = RaiseAlert { kind, node: Some(enrolled.node.clone()), detail: "10m".to_owned() };
        check(&mut domain, (Actor::Reconciler, Command::RaiseAlert(raise)), granted(&["alert.raised"]));
    }
    let first = &["host.confirmed", "host.active", "alert.cleared", "certificate.seen"];
    check(&mut domain, contact(&enrolled), granted(first));
    let open: Vec<_> = domain.state.alerts.values().map(|alert| alert.kind).collect();
    assert_eq!(open, [AlertKind::CloneSuspected]);
}

#[test]
fn contact_after_silence_makes_active_again() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.silence(&node.node);
    check(&mut domain, contact(&node), granted(&["host.active"]));
    assert_eq!(domain.state.nodes[&node.node].last_seen, Some(domain.now));
    check(&mut domain, contact(&node), granted(&[]));
}

#[test]
fn a_quarantined_or_draining_node_stays_so() {
    let mut domain = Domain::founded();
    let node = domain.enroll();
    let quarantine = Command::Quarantine { node: node.node.clone(), reason: "odd".to_owned() };
    check(&mut domain, (local(), quarantine), granted(&["host.quarantined"]));
    let drain = Command::Drain { node: node.node.clone(), within: None };
    check(&mut domain, (local(), drain), granted(&["host.draining"]));
    domain.confirm(&node);
    let record = &domain.state.nodes[&node.node];
    assert!(record.quarantined && record.draining && record.state == NodeState::Active);
}

#[test]
fn contact_is_the_nodes_own_and_needs_a_good_certificate() {
    let mut domain = Domain::founded();
    let (node, other) = (domain.active(), domain.active());
    let command = Command::Contact { node: node.node.clone() };
    for actor in [local(), Actor::Stranger, Actor::Reconciler] {
        check(&mut domain, (actor, command.clone()), refused("unauthenticated"));
    }
    check(&mut domain, (other.actor(), command), refused("forbidden"));
    domain.end(&node.node, NodeState::Revoked);
    check(&mut domain, contact(&node), refused("unauthenticated"));
    domain.pass(span("1d"));
    check(&mut domain, contact(&other), refused("unauthenticated"));
}

#[test]
fn a_superseded_certificate_in_its_drain_changes_nothing_of_the_certificates() {
    let mut domain = Domain::founded();
    let old = domain.active();
    let new = domain.renew(&old);
    check(&mut domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    let before = domain.state.certificates.clone();
    check(&mut domain, contact(&old), granted(&[]));
    assert_eq!(domain.state.certificates, before);
}

#[test]
fn a_successor_seen_after_the_end_of_the_old_one_is_no_line_of_the_trail() {
    let mut domain = Domain::founded();
    let old = domain.active();
    domain.pass(span("16h"));
    let new = domain.renew(&old);
    domain.pass(span("8h"));
    let revision = domain.state.revision;
    check(&mut domain, contact(&new), granted(&["certificate.seen"]));
    assert_eq!(domain.state.revision, revision);
}
