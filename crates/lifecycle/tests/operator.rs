//! Operators and their keys.

use crate::support::{Domain, check, create_tenant, granted, issuer, local, only, operator, refused, span};
use lifecycle::names::{Serial, Span, Timestamp};
use lifecycle::registry::{
    Actor, AddOperator, CertificateStatus, Command, CreateOperatorKey, Issued, Owner, Role, Tenants, standing,
};

fn admin(domain: &mut Domain) -> Actor {
    domain.operator("alice", Role::PlatformAdmin, Tenants::All)
}

fn remove(name: &str) -> Command {
    Command::RemoveOperator { name: operator(name) }
}

#[test]
fn an_operators_certificate_is_on_record_without_its_bytes() {
    let mut domain = Domain::founded();
    let Actor::Operator { name, serial } = admin(&mut domain) else { unreachable!() };
    let certificate = &domain.state.certificates[&serial];
    assert_eq!((&certificate.owner, &certificate.der), (&Owner::Operator(name), &None));
    assert!(!domain.state.is_denied(&serial));
}

#[test]
fn an_operator_is_added_once_and_for_tenants_that_exist() {
    let mut domain = Domain::founded();
    admin(&mut domain);
    let again = domain.add_operator("alice", Role::Viewer, Tenants::All);
    check(&mut domain, (local(), again), refused("operator_exists"));
    let nowhere = domain.add_operator("bob", Role::Viewer, only(&["default", "nowhere"]));
    check(&mut domain, (local(), nowhere), refused("tenant_not_found"));
}

#[test]
fn an_operator_without_a_certificate_is_nobody_on_the_wire() {
    let mut domain = Domain::founded();
    let (name, role, tenants) = (operator("bob"), Role::PlatformAdmin, Tenants::All);
    let add = Command::AddOperator(AddOperator { name: name.clone(), role, tenants, certificate: None });
    check(&mut domain, (local(), add), granted(&["operator.added"]));
    let serial = domain.serial();
    assert_eq!(standing(&domain.state, &Actor::Operator { name, serial }), None);
}

#[test]
fn a_certificate_that_does_not_fit_the_operator_is_not_recorded() {
    fn bad(change: impl FnOnce(&mut Issued, Timestamp, Serial)) {
        let mut domain = Domain::founded();
        let used = domain.enroll().serial;
        let command = domain.add_operator("bob", Role::Viewer, Tenants::All);
        let Command::AddOperator(mut add) = command else { unreachable!() };
        change(add.certificate.as_mut().unwrap(), domain.now, used);
        check(&mut domain, (local(), Command::AddOperator(add)), refused("try_again"));
    }
    let other = |name: &str| lifecycle::names::SpiffeId::parse(name).unwrap();
    bad(|certificate, _, _| certificate.subject = other("spiffe://fleet.example/operator/alice"));
    bad(|certificate, _, _| certificate.subject = other("spiffe://other.example/operator/bob"));
    bad(|certificate, _, _| certificate.subject = other("spiffe://fleet.example/tenant/default/agent/bob"));
    bad(|certificate, _, _| certificate.issuer = issuer("i2"));
    bad(|certificate, _, used| certificate.serial = used);
    bad(|certificate, now, _| certificate.not_after = now.plus(span("366d")));
    bad(|certificate, now, _| certificate.not_after = now);
    bad(|certificate, now, _| certificate.signed_at = now.plus(span("61s")));
    bad(|certificate, now, _| certificate.signed_at = now.minus(span("301s")));
}

#[test]
fn a_removed_operator_is_denied_at_once_and_stays_denied_under_its_old_serial() {
    let mut domain = Domain::founded();
    let alice = admin(&mut domain);
    let Actor::Operator { serial, .. } = &alice else { unreachable!() };
    check(&mut domain, (local(), remove("alice")), granted(&["operator.removed"]));
    assert!(domain.state.is_denied(serial));
    assert_eq!(domain.state.certificates[serial].status, CertificateStatus::Denied);
    check(&mut domain, (alice.clone(), create_tenant("acme")), refused("unauthenticated"));
    check(&mut domain, (local(), remove("alice")), refused("operator_not_found"));
    let again = admin(&mut domain);
    assert!(domain.state.is_denied(serial));
    check(&mut domain, (alice, create_tenant("acme")), refused("unauthenticated"));
    check(&mut domain, (again, create_tenant("acme")), granted(&["tenant.created"]));
}

#[test]
fn the_last_operator_may_be_removed_even_by_itself() {
    let mut domain = Domain::founded();
    let alice = admin(&mut domain);
    check(&mut domain, (alice, remove("alice")), granted(&["operator.removed"]));
    assert!(domain.state.operators.is_empty());
}

#[test]
fn an_operators_certificate_ends_when_it_says() {
    let mut domain = Domain::founded();
    let alice = admin(&mut domain);
    domain.pass(span("30d"));
    check(&mut domain, (alice, create_tenant("acme")), refused("unauthenticated"));
}

#[test]
fn a_key_lives_from_ten_seconds_to_ten_years() {
    for (ttl, expect) in [
        (Span::from_millis(9_999), refused("operator_key_ttl_invalid")),
        (span("10s"), granted(&["operator_key.created"])),
        (span("3650d"), granted(&["operator_key.created"])),
        (span("3651d"), refused("operator_key_ttl_invalid")),
    ] {
        let mut domain = Domain::founded();
        let create = CreateOperatorKey { ttl, ..domain.key_request(Role::Viewer, Tenants::All) };
        check(&mut domain, (local(), Command::CreateOperatorKey(create)), expect);
    }
}

#[test]
fn a_key_is_created_once_and_for_tenants_that_exist() {
    let mut domain = Domain::founded();
    let create = domain.key_request(Role::Viewer, only(&["nowhere"]));
    check(&mut domain, (local(), Command::CreateOperatorKey(create)), refused("tenant_not_found"));
    let first = domain.key_request(Role::Viewer, Tenants::All);
    let (id, hash) = (first.key, first.hash);
    check(&mut domain, (local(), Command::CreateOperatorKey(first)), granted(&["operator_key.created"]));
    let same_id = CreateOperatorKey { key: id, ..domain.key_request(Role::Viewer, Tenants::All) };
    check(&mut domain, (local(), Command::CreateOperatorKey(same_id)), refused("try_again"));
    let same_value = CreateOperatorKey { hash, ..domain.key_request(Role::Viewer, Tenants::All) };
    check(&mut domain, (local(), Command::CreateOperatorKey(same_value)), refused("try_again"));
    assert_eq!(domain.state.operator_key_with_hash(&hash).map(|key| key.id), Some(id));
}

#[test]
fn a_key_ends_when_it_says_or_when_it_is_revoked() {
    let mut domain = Domain::founded();
    let (expiring, revoked) =
        (domain.key(Role::PlatformAdmin, Tenants::All), domain.key(Role::PlatformAdmin, Tenants::All));
    let Actor::Key { id } = revoked else { unreachable!() };
    let revoke = || Command::RevokeOperatorKey { key: id };
    check(&mut domain, (local(), revoke()), granted(&["operator_key.revoked"]));
    check(&mut domain, (local(), revoke()), granted(&[]));
    check(&mut domain, (revoked, create_tenant("acme")), refused("unauthenticated"));
    check(&mut domain, (expiring.clone(), create_tenant("acme")), granted(&["tenant.created"]));
    domain.pass(span("1d"));
    check(&mut domain, (expiring, create_tenant("apex")), refused("unauthenticated"));
}

#[test]
fn an_unknown_key_cannot_be_revoked() {
    let mut domain = Domain::founded();
    let key = domain.key_request(Role::Viewer, Tenants::All).key;
    check(&mut domain, (local(), Command::RevokeOperatorKey { key }), refused("operator_key_not_found"));
}

#[test]
fn a_removed_operator_takes_its_keys_along() {
    let mut domain = Domain::founded();
    domain.operator("robot", Role::Operator, Tenants::All);
    let (first, second) =
        (domain.key(Role::Viewer, Tenants::All), domain.key(Role::PlatformAdmin, Tenants::All));
    let events = granted(&["operator.removed", "operator_key.revoked", "operator_key.revoked"]);
    check(&mut domain, (local(), remove("robot")), events);
    for key in [first, second] {
        check(&mut domain, (key, create_tenant("acme")), refused("unauthenticated"));
    }
}
