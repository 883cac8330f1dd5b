//! Whether work may be given to a node, and every reason why not.

use crate::support::{Domain, Enrolled, check, granted, local, span};
use lifecycle::host::Class;
use lifecycle::registry::{Command, NodeState, Report};

fn reasons(domain: &Domain, of: &Enrolled, said: Option<&Report>) -> Vec<&'static str> {
    domain.state.exclusions(&domain.state.nodes[&of.node], said)
}

#[test]
fn work_is_given_to_a_node_that_is_active_and_nothing_else() {
    let mut domain = Domain::founded();
    let node = domain.enroll();
    assert_eq!(reasons(&domain, &node, None), ["enrolled"]);
    domain.confirm(&node);
    assert!(reasons(&domain, &node, None).is_empty());
    domain.silence(&node.node);
    assert_eq!(reasons(&domain, &node, None), ["inactive"]);
    domain.end(&node.node, NodeState::Revoked);
    let said = Report { class: Some(Class::DiskFull), ..Report::blank(domain.now) };
    assert_eq!(reasons(&domain, &node, Some(&said)), ["revoked"], "nothing more is expected of it");
}

#[test]
fn every_reason_is_told() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let drain = (local(), Command::Drain { node: node.node.clone(), within: None });
    check(&mut domain, drain, granted(&["host.draining"]));
    let quarantine = Command::Quarantine { node: node.node.clone(), reason: "test".to_owned() };
    check(&mut domain, (local(), quarantine), granted(&["host.quarantined"]));
    let said =
        Report { class: Some(Class::DiskFull), observability_pressure: true, ..Report::blank(domain.now) };
    assert_eq!(
        reasons(&domain, &node, Some(&said)),
        ["draining", "quarantined", "disk_full", "node_observability_disk_pressure"]
    );
}

#[test]
fn a_certificate_that_has_ended_is_told_once() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("90d"));
    domain.policy("clock.tolerance", "1m");
    let said = Report { class: Some(Class::CertExpired), ..Report::blank(domain.now) };
    assert_eq!(reasons(&domain, &node, Some(&said)), ["cert_expired"]);
    assert_eq!(reasons(&domain, &node, None), ["cert_expired"]);
}

#[test]
fn each_class_that_a_host_tells_keeps_work_away() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for class in Class::ALL {
        let said = Report { class: Some(*class), ..Report::blank(domain.now) };
        assert_eq!(reasons(&domain, &node, Some(&said)), [class.as_str()]);
    }
}
