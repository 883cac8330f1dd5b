//! Operators and their keys.

use crate::support::{Domain, check, create_tenant, granted, issuer, local, only, operator, refused, span};
use lifecycle::names::{KeyId, Serial, Span, Timestamp};
use lifecycle::registry::{
    Actor, AddOperator, CertificateStatus, Command, CreateOperatorKey, Event, Issued, Outcome, Owner, Role,
    Tenants, Vclusters, permissions,
};
use std::collections::BTreeSet;

fn admin(domain: &mut Domain) -> Actor {
    domain.operator("alice", Role::PlatformAdmin, Tenants::All)
}

fn remove(name: &str) -> Command {
    Command::RemoveOperator { name: operator(name), keys_made: true }
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
    let add = Command::AddOperator(AddOperator {
        name: name.clone(),
        role,
        tenants,
        certificate: None,
        vclusters: Vclusters::All,
    });
    check(&mut domain, (local(), add), granted(&["operator.added"]));
    let serial = domain.serial();
    assert_eq!(permissions(&domain.state, &Actor::Operator { name, serial }), None);
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

/// Who holds the certificate that this renewal issues.
fn renewed(renew: &Command) -> Actor {
    let Command::RenewOperator(renew) = renew else { unreachable!() };
    Actor::Operator { name: renew.name.clone(), serial: renew.certificate.serial.clone() }
}

fn first_use(name: &str) -> Command {
    Command::UseRenewedCertificate { name: operator(name) }
}

#[test]
fn until_a_renewed_certificate_is_used_both_are_good_and_then_only_the_new_one() {
    let mut domain = Domain::founded();
    let old = admin(&mut domain);
    let renew = domain.renew_operator("alice");
    let new = renewed(&renew);
    check(&mut domain, (old.clone(), renew), granted(&["operator.renewed"]));
    assert_eq!(permissions(&domain.state, &old), permissions(&domain.state, &new));
    check(&mut domain, (old.clone(), create_tenant("acme")), granted(&["tenant.created"]));
    check(&mut domain, (old.clone(), first_use("alice")), granted(&[]));
    check(&mut domain, (new.clone(), first_use("alice")), granted(&["operator.certificate_replaced"]));
    check(&mut domain, (new.clone(), first_use("alice")), granted(&[]));
    let Actor::Operator { serial, .. } = &old else { unreachable!() };
    assert!(domain.state.is_denied(serial));
    check(&mut domain, (old, create_tenant("apex")), refused("unauthenticated"));
    check(&mut domain, (new, create_tenant("apex")), granted(&["tenant.created"]));
}

#[test]
fn a_renewal_whose_answer_was_lost_is_replaced_by_the_next() {
    let mut domain = Domain::founded();
    let old = admin(&mut domain);
    let lost = domain.renew_operator("alice");
    let nobody = renewed(&lost);
    check(&mut domain, (old.clone(), lost.clone()), granted(&["operator.renewed"]));
    // The same key may come again, under a new serial.
    let Command::RenewOperator(mut again) = domain.renew_operator("alice") else { unreachable!() };
    let Command::RenewOperator(lost) = lost else { unreachable!() };
    again.certificate.key = lost.certificate.key;
    let again = Command::RenewOperator(again);
    let new = renewed(&again);
    check(&mut domain, (old, again), granted(&["operator.renewed"]));
    check(&mut domain, (nobody, create_tenant("acme")), refused("unauthenticated"));
    check(&mut domain, (new, create_tenant("acme")), granted(&["tenant.created"]));
}

#[test]
fn a_renewal_needs_a_new_key_and_a_certificate_that_fits() {
    fn bad(code: &'static str, change: impl FnOnce(&mut Issued, &Domain, &Serial)) {
        let mut domain = Domain::founded();
        let node = domain.enroll();
        let alice = admin(&mut domain);
        let Actor::Operator { serial, .. } = &alice else { unreachable!() };
        let Command::RenewOperator(mut renew) = domain.renew_operator("alice") else { unreachable!() };
        change(&mut renew.certificate, &domain, serial);
        let renew = Command::RenewOperator(renew);
        check(&mut domain, (alice.clone(), renew), refused(code));
        drop(node);
    }
    let other = |name: &str| lifecycle::names::SpiffeId::parse(name).unwrap();
    bad("key_in_use", |new, domain, own| new.key = domain.state.certificates[own].key);
    bad("key_in_use", |new, domain, _| new.key = *domain.state.certified_keys.keys().next().unwrap());
    bad("try_again", |new, _, _| new.subject = other("spiffe://fleet.example/operator/bob"));
    bad("try_again", |new, _, own| new.serial = own.clone());
    bad("try_again", |new, _, _| new.issuer = issuer("i2"));
    bad("try_again", |new, domain, _| new.not_after = domain.now);
}

#[test]
fn who_is_removed_or_has_expired_cannot_renew_and_a_removed_one_loses_both_certificates() {
    let mut domain = Domain::founded();
    let old = admin(&mut domain);
    let renew = domain.renew_operator("alice");
    let new = renewed(&renew);
    check(&mut domain, (old.clone(), renew), granted(&["operator.renewed"]));
    check(&mut domain, (local(), remove("alice")), granted(&["operator.removed"]));
    admin(&mut domain);
    for gone in [old, new] {
        let Actor::Operator { serial, .. } = &gone else { unreachable!() };
        assert!(domain.state.is_denied(serial));
        let renew = domain.renew_operator("alice");
        check(&mut domain, (gone, renew), refused("unauthenticated"));
    }
    let late = domain.operator("late", Role::Viewer, Tenants::All);
    domain.pass(span("30d"));
    let renew = domain.renew_operator("late");
    check(&mut domain, (late, renew), refused("unauthenticated"));
}

#[test]
fn renewing_in_a_loop_does_not_grow_the_registry() {
    let mut domain = Domain::founded();
    let mut alice = admin(&mut domain);
    for _ in 0..63 {
        let renew = domain.renew_operator("alice");
        let new = renewed(&renew);
        check(&mut domain, (alice, renew), granted(&["operator.renewed"]));
        check(&mut domain, (new.clone(), first_use("alice")), granted(&["operator.certificate_replaced"]));
        alice = new;
    }
    let renew = domain.renew_operator("alice");
    check(&mut domain, (alice, renew), refused("too_many_certificates"));
    domain.pass(span("30d"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&["registry.tidied"]));
    assert!(domain.state.operators[&operator("alice")].replaced.is_empty());
}

/// A key of this name, made by `actor`.
#[track_caller]
fn made(domain: &mut Domain, actor: &Actor, name: &str) -> KeyId {
    let create =
        CreateOperatorKey { name: operator(name), ..domain.key_request(Role::PlatformAdmin, Tenants::All) };
    let id = create.key;
    check(domain, (actor.clone(), Command::CreateOperatorKey(create)), granted(&["operator_key.created"]));
    id
}

fn by_key(id: KeyId) -> Actor {
    Actor::Key { id }
}

/// Removes alice; the ids of the keys that were revoked with it, as the answer and the events say.
#[track_caller]
fn revoked_with_alice(domain: &mut Domain) -> BTreeSet<KeyId> {
    let applied = domain.give(local(), remove("alice"));
    let Ok(Outcome::OperatorRemoved { keys }) = applied.answer else { panic!("{:?}", applied.answer) };
    let revoked = applied.events.iter().filter_map(|event| match event {
        Event::OperatorKeyRevoked(revoked) => Some(revoked.key),
        _ => None,
    });
    assert_eq!(revoked.collect::<Vec<_>>(), keys);
    let left = domain.state.operator_keys.values().filter(|key| key.revoked_at.is_none()).map(|key| key.id);
    let left: BTreeSet<KeyId> = left.collect();
    let keys = keys.into_iter().collect();
    assert!(left.is_disjoint(&keys));
    keys
}

#[test]
fn the_keys_that_an_operator_made_go_with_it_under_whatever_name_and_however_far_down() {
    let mut domain = Domain::founded();
    let (alice, bob) = (admin(&mut domain), domain.operator("bob", Role::PlatformAdmin, Tenants::All));
    let named = made(&mut domain, &local(), "alice");
    let own = made(&mut domain, &alice, "ci");
    let second = made(&mut domain, &by_key(own), "deploy");
    let third = made(&mut domain, &by_key(second), "backup");
    let of_named = made(&mut domain, &by_key(named), "nightly");
    let stay = [made(&mut domain, &bob, "ci"), made(&mut domain, &local(), "ci")];
    let of_bob = made(&mut domain, &by_key(stay[0]), "deploy");
    assert_eq!(revoked_with_alice(&mut domain), BTreeSet::from([named, own, second, third, of_named]));
    for id in [stay[0], stay[1], of_bob] {
        assert!(permissions(&domain.state, &by_key(id)).is_some());
    }
}

/// The one in the middle was revoked and forgotten long before.
#[test]
fn a_key_that_has_ended_does_not_hide_who_is_behind_the_keys_that_it_made() {
    for forgotten in [false, true] {
        let mut domain = Domain::founded();
        let alice = admin(&mut domain);
        let first = made(&mut domain, &alice, "ci");
        let long = domain.key_request(Role::PlatformAdmin, Tenants::All);
        let long = CreateOperatorKey { ttl: span("90d"), ..long };
        let last = long.key;
        check(
            &mut domain,
            (by_key(first), Command::CreateOperatorKey(long)),
            granted(&["operator_key.created"]),
        );
        let revoke = Command::RevokeOperatorKey { key: first };
        check(&mut domain, (local(), revoke), granted(&["operator_key.revoked"]));
        if forgotten {
            domain.pass(span("31d"));
            domain.give(Actor::Reconciler, Command::Tidy);
            assert!(!domain.state.operator_keys.contains_key(&first));
        }
        assert_eq!(revoked_with_alice(&mut domain), BTreeSet::from([last]));
    }
}

/// Their records say who made each.
#[test]
fn keys_of_before_go_with_their_maker_too() {
    let mut domain = Domain::founded();
    let alice = admin(&mut domain);
    let first = made(&mut domain, &alice, "ci");
    let second = made(&mut domain, &by_key(first), "deploy");
    for id in [first, second] {
        domain.state.operator_keys.get_mut(&id).unwrap().behind.clear();
    }
    let third = made(&mut domain, &by_key(second), "backup");
    assert_eq!(domain.state.operator_keys[&third].behind, BTreeSet::from([operator("alice")]));
    assert_eq!(revoked_with_alice(&mut domain), BTreeSet::from([first, second, third]));
}

/// A log of before is applied as it was: only keys of the same name went.
#[test]
fn a_removal_of_before_revokes_what_it_revoked_then() {
    let mut domain = Domain::founded();
    let alice = admin(&mut domain);
    let (named, other) = (made(&mut domain, &local(), "alice"), made(&mut domain, &alice, "ci"));
    let before = Command::RemoveOperator { name: operator("alice"), keys_made: false };
    check(&mut domain, (local(), before), granted(&["operator.removed", "operator_key.revoked"]));
    assert!(permissions(&domain.state, &by_key(named)).is_none());
    assert!(permissions(&domain.state, &by_key(other)).is_some());
}
