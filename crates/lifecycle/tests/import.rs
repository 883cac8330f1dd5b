//! Certificates made elsewhere: on record as they are, accepted because they are on record.

use crate::support::{
    Domain, Enrolled, ISSUER_LIFE, START, check, contact, granted, issuer, local, node, refused, span,
};
use lifecycle::names::{Fingerprint, KeyHash, Serial, TenantId};
use lifecycle::registry::{Actor, Command, Confirmation, Import, Issuer, IssuerKind, NodeState};

const IMPORTED: &[&str] = &["host.imported"];

/// A domain under a CA that its operator brought along.
fn under_an_imported_ca() -> Domain {
    let mut domain = Domain::founded();
    let brought = Issuer { kind: IssuerKind::Imported, ..domain.state.issuers[&issuer("i1")].clone() };
    domain.state.issuers.insert(issuer("i1"), brought);
    domain
}

fn import(domain: &mut Domain, id: &str) -> Import {
    Import {
        node: node(id),
        serial: domain.serial(),
        fingerprint: Fingerprint::new(domain.digest()),
        key: KeyHash::new(domain.digest()),
        issuer: issuer("i1"),
        not_before: domain.now,
        not_after: domain.now.plus(span("7d")),
    }
}

fn give(import: &Import) -> (Actor, Command) {
    (local(), Command::Import(Box::new(import.clone())))
}

#[test]
fn a_certificate_made_elsewhere_becomes_an_enrolled_node() {
    let mut domain = under_an_imported_ca();
    let import = import(&mut domain, "dev-worker-001");
    check(&mut domain, give(&import), granted(IMPORTED));
    let made = domain.state.nodes[&import.node].clone();
    assert_eq!((made.state, &made.tenant), (NodeState::Enrolled, &TenantId::default_tenant()));
    assert_eq!((made.profile.as_str(), made.current_serial()), ("taskrun", Some(&import.serial)));
    let held = &domain.state.certificates[&import.serial];
    assert!(held.imported && domain.state.is_good(&import.serial));
    assert_eq!(held.renew_at, domain.now.plus(span("84h")), "half of its life");
    check(&mut domain, give(&import), granted(&[]));
}

#[test]
fn an_imported_node_confirms_and_renews_like_any_other() {
    let mut domain = under_an_imported_ca();
    let import = import(&mut domain, "w1");
    check(&mut domain, give(&import), granted(IMPORTED));
    let mut old = domain.active();
    (old.node, old.serial) = (import.node.clone(), import.serial.clone());
    check(&mut domain, contact(&old), granted(&["host.confirmed", "host.active"]));
    let new: Enrolled = domain.renew(&old);
    assert!(!domain.state.certificates[&new.serial].imported);
    check(&mut domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    domain.pass(span("10m"));
    check(&mut domain, contact(&old), refused("unauthenticated"));
}

#[test]
fn a_key_that_was_imported_is_not_certified_again() {
    let mut domain = under_an_imported_ca();
    let first = import(&mut domain, "w1");
    check(&mut domain, give(&first), granted(IMPORTED));
    let twin = Import { key: first.key, ..import(&mut domain, "w2") };
    check(&mut domain, give(&twin), refused("key_in_use"));
}

#[test]
fn what_did_not_come_from_an_imported_ca_is_not_ours() {
    let mut domain = Domain::founded();
    let sealed = import(&mut domain, "w1");
    check(&mut domain, give(&sealed), refused("certificate_not_ours"));
    let mut domain = under_an_imported_ca();
    let unknown = Import { issuer: issuer("i9"), ..import(&mut domain, "w1") };
    check(&mut domain, give(&unknown), refused("certificate_not_ours"));
    let revoke = Command::RevokeIssuer {
        issuer: issuer("i1"),
        reason: "lost".to_owned(),
        confirm: Confirmation::NotAsked,
        asks_for_holders: false,
    };
    check(&mut domain, (local(), revoke), granted(&["ca.revoked"]));
    let late = import(&mut domain, "w1");
    check(&mut domain, give(&late), refused("certificate_not_ours"));
}

#[test]
fn what_has_ended_is_not_imported_and_nothing_outlives_its_issuer() {
    let mut domain = under_an_imported_ca();
    let over = Import { not_after: domain.now, ..import(&mut domain, "w1") };
    check(&mut domain, give(&over), refused("certificate_expired"));
    let long = Import { not_after: domain.now.plus(span("9999d")), ..import(&mut domain, "w2") };
    check(&mut domain, give(&long), granted(IMPORTED));
    assert_eq!(domain.state.certificates[&long.serial].not_after, START.plus(ISSUER_LIFE));
}

#[test]
fn ids_and_serials_are_given_once() {
    let mut domain = under_an_imported_ca();
    let enrolled = domain.active();
    let taken = import(&mut domain, enrolled.node.as_str());
    check(&mut domain, give(&taken), refused("node_id_in_use"));
    let serial = Import { serial: enrolled.serial.clone(), ..import(&mut domain, "w1") };
    check(&mut domain, give(&serial), refused("serial_in_use"));
    let first = import(&mut domain, "w1");
    check(&mut domain, give(&first), granted(IMPORTED));
    let other = Import { fingerprint: Fingerprint::new(domain.digest()), ..first.clone() };
    check(&mut domain, give(&other), refused("serial_in_use"));
    domain.end(&first.node, NodeState::Revoked);
    check(&mut domain, give(&first), refused("node_revoked"));
    let second = import(&mut domain, "w1");
    check(&mut domain, give(&second), refused("node_id_in_use"));
    assert!(domain.state.is_denied(&Serial::parse(first.serial.as_str()).unwrap()));
}
