//! Rolling the issuer, revoking one, and sealing keys anew.

use crate::support::{
    Domain, Enrolled, ISSUER_LIFE, activate, check, contact, enroll, granted, issuer, local, only, refused,
    span,
};
use lifecycle::names::{Fingerprint, IdempotencyHash, IssuerId, ReplicaId};
use lifecycle::registry::{
    Actor, Command, Confirmation, Envelope, IssuerState, NewIssuer, Rewrap, Role, ServerCertificate,
    Sighting, State, Tenants, would_apply,
};

/// The words of a refusal.
fn why_not(domain: &Domain, (actor, command): (Actor, Command)) -> String {
    let id = lifecycle::names::RequestId(lifecycle::names::Ulid::new(domain.now, [7; 10]));
    let source = lifecycle::names::Source::Internal;
    let envelope = Envelope { id, actor, source, request_id: None, correlation_id: None, command };
    would_apply(&domain.state, &envelope, domain.now).0.unwrap_err().to_string()
}

fn state_of(domain: &Domain, name: &str) -> IssuerState {
    domain.state.issuers[&issuer(name)].state
}

fn certify(issuer: NewIssuer) -> (Actor, Command) {
    (local(), Command::CertifyRoll(Box::new(issuer)))
}

fn retire(name: &str) -> (Actor, Command) {
    (local(), Command::RetireIssuer { issuer: issuer(name), also: Vec::new() })
}

fn revoke(name: &str) -> (Actor, Command) {
    (
        local(),
        Command::RevokeIssuer {
            issuer: issuer(name),
            reason: "lost".to_owned(),
            confirm: Confirmation::NotAsked,
            asks_for_holders: false,
        },
    )
}

/// A roll prepared, its certificate not back yet.
fn requested() -> Domain {
    let mut domain = Domain::founded();
    let prepare = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), prepare), granted(&["ca.requested"]));
    domain
}

#[test]
fn a_roll_is_prepared_once_and_the_request_that_is_out_stays_the_one() {
    let mut domain = requested();
    let first = domain.state.roll.clone();
    let again = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), again.clone()), granted(&[]));
    assert_eq!(domain.state.roll, first);
    let next = domain.next_issuer("i2");
    check(&mut domain, certify(next), granted(&["ca.prepared"]));
    check(&mut domain, (local(), again), refused("roll_in_progress"));
}

#[test]
fn a_certificate_that_came_back_is_trusted_and_does_not_sign() {
    let mut domain = requested();
    let version = domain.state.bundle_version;
    let next = domain.next_issuer("i2");
    check(&mut domain, certify(next.clone()), granted(&["ca.prepared"]));
    check(&mut domain, certify(next), granted(&[]));
    assert_eq!(state_of(&domain, "i2"), IssuerState::Prepared);
    assert_eq!((domain.state.bundle_version, domain.state.roll.is_none()), (version + 1, true));
    assert_eq!(domain.state.client_issuer().map(|issuer| issuer.id.as_str()), Some("i1"));
    let token = domain.mint();
    let request = domain.request(token);
    let mut request = domain.prepare(request);
    request.prepared.as_mut().unwrap().certificate.issuer = issuer("i2");
    check(&mut domain, enroll(request), refused("try_again"));
}

#[test]
fn a_certificate_that_does_not_fit_does_not_come_in() {
    let bad: [fn(&mut NewIssuer, &State); 5] = [
        |next, state| next.not_after = state.at,
        |next, state| next.not_after = state.roots[0].not_after.plus(span("1s")),
        // Of another key, or of this key as it was sealed before.
        |next, _| next.sealed_key = b"other".to_vec(),
        // The name of an issuer that is another.
        |next, _| next.id = issuer("i1"),
        |next, _| next.sealed_key = Vec::new(),
    ];
    for spoil in bad {
        let mut domain = requested();
        let mut next = domain.next_issuer("i2");
        spoil(&mut next, &domain.state);
        check(&mut domain, certify(next), refused("try_again"));
        assert!(domain.state.roll.is_some());
    }
    let mut domain = Domain::founded();
    let next = domain.next_issuer("i2");
    check(&mut domain, certify(next), refused("no_roll"));
}

#[test]
fn activating_waits_for_every_node_that_holds_something_good() {
    let mut domain = Domain::founded();
    let (slow, gone, expired) = (domain.active(), domain.active(), domain.active());
    domain.pass(span("12h"));
    let slow = domain.renew(&slow);
    domain.end(&gone.node, lifecycle::registry::NodeState::Revoked);
    domain.pass(span("12h"));
    check(&mut domain, contact(&expired), refused("unauthenticated"));
    domain.prepare_issuer("i2");
    assert_eq!(domain.state.adoption(), (0, 1));
    check(&mut domain, (local(), activate("i2", false)), refused("not_adopted"));
    let bundle = Some(domain.state.bundle_version);
    let told = Sighting { bundle, ..domain.sighting(&slow.node) };
    check(&mut domain, (Actor::Reconciler, Command::Observe(vec![told])), granted(&["host.seen"]));
    check(&mut domain, (local(), activate("i2", false)), granted(&["ca.activated"]));
    check(&mut domain, (local(), activate("i2", false)), granted(&[]));
    let states = [state_of(&domain, "i1"), state_of(&domain, "i2")];
    assert_eq!(states, [IssuerState::Retiring, IssuerState::Active]);
    let signer = domain.state.audit_signer.as_ref().unwrap();
    assert_eq!(signer.certificate, b"audit by i2");
}

#[test]
fn renewing_and_enrolling_bring_the_bundle() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.prepare_issuer("i2");
    let renewed = domain.renew(&node);
    let other = domain.enroll();
    // Sent to both, and stored by neither as far as anybody knows.
    assert_eq!(domain.state.adoption(), (0, 2));
    check(&mut domain, contact(&renewed), granted(&["certificate.seen", "certificate.superseded"]));
    domain.confirm(&other);
    assert_eq!(domain.state.adoption(), (2, 2));
    check(&mut domain, (local(), activate("i2", false)), granted(&["ca.activated"]));
}

#[test]
fn force_activates_below_full_adoption() {
    let mut domain = Domain::founded();
    domain.active();
    domain.prepare_issuer("i2");
    check(&mut domain, (local(), activate("i2", false)), refused("not_adopted"));
    check(&mut domain, (local(), activate("i2", true)), granted(&["ca.activated"]));
}

#[test]
fn only_a_prepared_issuer_that_has_not_ended_is_activated() {
    let mut domain = Domain::founded();
    check(&mut domain, (local(), activate("i2", true)), refused("issuer_not_found"));
    domain.roll("i2");
    check(&mut domain, (local(), activate("i1", true)), refused("issuer_not_prepared"));
    check(&mut domain, revoke("i2"), granted(&["ca.revoked"]));
    check(&mut domain, (local(), activate("i2", true)), refused("issuer_not_prepared"));
    domain.prepare_issuer("i3");
    domain.pass(ISSUER_LIFE);
    check(&mut domain, (local(), activate("i3", true)), refused("issuer_not_prepared"));
}

#[test]
fn a_retiring_issuer_is_trusted_and_retires_when_nothing_hangs_on_it() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let server = ServerCertificate {
        serial: domain.serial(),
        fingerprint: Fingerprint::new(domain.digest()),
        issuer: issuer("i1"),
        not_after: domain.now.plus(span("30d")),
        replica: ReplicaId::FIRST,
    };
    let record =
        |server: &ServerCertificate| (Actor::Reconciler, Command::RecordServerCertificate(server.clone()));
    check(&mut domain, record(&server), granted(&["server_certificate.issued"]));
    check(&mut domain, retire("i1"), refused("issuer_in_use"));
    domain.roll("i2");
    check(&mut domain, contact(&node), granted(&[]));
    check(&mut domain, retire("i1"), refused("issuer_in_use"));
    let said = why_not(&domain, retire("i1"));
    let named =
        format!("2 of its certificates are valid; these have not renewed yet: {}, the control", node.node);
    assert!(said.contains(&named), "{said}");
    domain.pass(span("1d"));
    // The node's certificate has ended, the control plane's own has not.
    check(&mut domain, retire("i1"), refused("issuer_in_use"));
    let next = ServerCertificate { serial: domain.serial(), ..server };
    check(&mut domain, record(&next), refused("try_again"));
    let next = ServerCertificate { issuer: issuer("i2"), ..next };
    check(&mut domain, record(&next), granted(&["server_certificate.issued"]));
    check(&mut domain, retire("i1"), granted(&["ca.retired"]));
    check(&mut domain, retire("i1"), granted(&[]));
    assert_eq!(state_of(&domain, "i1"), IssuerState::Retired);
    assert!(domain.state.issuers[&issuer("i1")].sealed_key.is_empty());
    check(&mut domain, retire("nothing"), refused("issuer_not_found"));
    check(&mut domain, retire("i2"), refused("issuer_in_use"));
}

#[test]
fn revoking_an_issuer_denies_everything_under_it_and_nothing_else() {
    let mut domain = Domain::founded();
    let lost = domain.active();
    domain.roll("i2");
    let good = domain.active();
    let (denials, version) = (domain.state.denials, domain.state.bundle_version);
    check(&mut domain, revoke("i1"), granted(&["ca.revoked"]));
    check(&mut domain, revoke("i1"), granted(&[]));
    assert!(domain.state.denials > denials && domain.state.bundle_version > version);
    assert!(domain.state.is_denied(&lost.serial) && !domain.state.is_denied(&good.serial));
    check(&mut domain, contact(&lost), refused("unauthenticated"));
    check(&mut domain, contact(&good), granted(&[]));
    // It signs one thing still: the list that says so.
    assert!(!domain.state.issuers[&issuer("i1")].sealed_key.is_empty());
    check(&mut domain, revoke("nothing"), refused("issuer_not_found"));
}

#[test]
fn an_enrollment_under_a_revoked_issuer_is_not_repeated() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let idempotency = Some(IdempotencyHash::new([1; 32]));
    let enrolled = domain.enroll_with(token, |request| request.idempotency = idempotency);
    check(&mut domain, enroll(enrolled.request.clone()), granted(&[]));
    check(&mut domain, revoke("i1"), granted(&["ca.revoked"]));
    check(&mut domain, enroll(enrolled.request), refused("token_used"));
}

#[test]
fn after_the_signing_issuer_was_revoked_the_next_one_takes_over() {
    let mut domain = Domain::founded();
    let lost = domain.active();
    let prepare = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), prepare), granted(&["ca.requested"]));
    let token = domain.mint_pinned(&lost.node);
    let request = domain.request(token);
    let request = domain.prepare(request);
    check(&mut domain, revoke("i1"), granted(&["ca.revoked"]));
    assert!(domain.state.client_issuer().is_none());
    check(&mut domain, enroll(request), refused("try_again"));
    let next = domain.next_issuer("i2");
    check(&mut domain, certify(next), granted(&["ca.prepared"]));
    // Nobody holds anything good, so there is nobody to wait for.
    check(&mut domain, (local(), activate("i2", false)), granted(&["ca.activated"]));
    assert_eq!(state_of(&domain, "i1"), IssuerState::Revoked);
    let back = domain.enroll_with(token, |_| ());
    domain.confirm(&back);
}

#[test]
fn a_prepared_issuer_that_is_revoked_leaves_room_for_another() {
    let mut domain = Domain::founded();
    domain.prepare_issuer("i2");
    check(&mut domain, retire("i2"), refused("issuer_in_use"));
    check(&mut domain, revoke("i2"), granted(&["ca.revoked"]));
    domain.roll("i3");
    assert_eq!(state_of(&domain, "i3"), IssuerState::Active);
}

fn sealed(names: &[&str]) -> Vec<(IssuerId, serde_bytes::ByteBuf)> {
    names.iter().map(|name| (issuer(name), serde_bytes::ByteBuf::from(b"anew".to_vec()))).collect()
}

#[test]
fn sealing_anew_covers_every_key_that_is_held_and_no_other() {
    let mut domain = Domain::founded();
    domain.roll("i2");
    domain.roll("i3");
    check(&mut domain, retire("i1"), granted(&["ca.retired"]));
    let prepare = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), prepare), granted(&["ca.requested"]));
    let roll = Some(serde_bytes::ByteBuf::from(b"anew".to_vec()));
    let good = Rewrap { issuers: sealed(&["i2", "i3"]), audit: b"anew".to_vec(), roll, pending: Vec::new() };
    let empty = serde_bytes::ByteBuf::new();
    for bad in [
        Rewrap { issuers: sealed(&["i2"]), ..good.clone() },
        Rewrap { issuers: sealed(&["i1", "i2", "i3"]), ..good.clone() },
        Rewrap { issuers: Vec::new(), ..good.clone() },
        Rewrap { issuers: vec![(issuer("i2"), empty.clone()), sealed(&["i3"]).remove(0)], ..good.clone() },
        Rewrap { roll: None, ..good.clone() },
        Rewrap { roll: Some(empty), ..good.clone() },
        Rewrap { audit: Vec::new(), ..good.clone() },
    ] {
        check(&mut domain, (local(), Command::Rewrap(bad)), refused("try_again"));
    }
    let stale = domain.next_issuer("i4");
    check(&mut domain, (local(), Command::Rewrap(good)), granted(&["ca.rewrapped"]));
    let state = &domain.state;
    let keys: Vec<_> = state.issuers.values().map(|issuer| issuer.sealed_key.as_slice()).collect();
    assert_eq!(keys, [&b""[..], b"anew", b"anew"]);
    assert_eq!(state.audit_signer.as_ref().map(|signer| signer.sealed_key.as_slice()), Some(&b"anew"[..]));
    assert_eq!(state.roll.as_ref().map(|roll| roll.sealed_key.as_slice()), Some(&b"anew"[..]));
    // Made ready before the keys were sealed anew: it would stay behind.
    check(&mut domain, certify(stale), refused("try_again"));
    let next = domain.next_issuer("i4");
    check(&mut domain, certify(next), granted(&["ca.prepared"]));
}

#[test]
fn an_issuer_is_forgotten_when_it_has_ended_and_is_bare() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("300d"));
    domain.roll("i2");
    domain.pass(span("64d"));
    domain.give(Actor::Reconciler, Command::Tidy);
    assert!(domain.state.issuers.contains_key(&issuer("i1")));
    domain.pass(span("1d"));
    domain.give(Actor::Reconciler, Command::Tidy);
    // The last certificate of the node is still told.
    assert!(domain.state.issuers.contains_key(&issuer("i1")));
    let token = domain.mint_pinned(&node.node);
    domain.enroll_with(token, |_| ());
    domain.give(Actor::Reconciler, Command::Tidy);
    domain.give(Actor::Reconciler, Command::Tidy);
    assert!(!domain.state.issuers.contains_key(&issuer("i1")));
    domain.pass(ISSUER_LIFE);
    domain.give(Actor::Reconciler, Command::Tidy);
    assert_eq!(state_of(&domain, "i2"), IssuerState::Active);
}

#[test]
fn only_a_platform_admin_of_all_tenants_touches_issuers() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let some = domain.operator("ann", Role::PlatformAdmin, only(&["acme", "default"]));
    let low = domain.operator("bob", Role::Operator, Tenants::All);
    let admin = domain.operator("eve", Role::PlatformAdmin, Tenants::All);
    let prepare = Command::PrepareRoll(domain.roll_request());
    for actor in [some, low, Actor::Reconciler] {
        check(&mut domain, (actor.clone(), prepare.clone()), refused("forbidden"));
        check(&mut domain, (actor, revoke("i1").1), refused("forbidden"));
    }
    check(&mut domain, (admin, prepare), granted(&["ca.requested"]));
}

#[test]
fn a_node_that_renews_after_a_roll_hangs_on_the_new_issuer() {
    let mut domain = Domain::founded();
    let old = domain.active();
    domain.roll("i2");
    let new: Enrolled = domain.renew(&old);
    assert_eq!(domain.state.certificates[&new.serial].issuer, issuer("i2"));
    let said = why_not(&domain, retire("i1"));
    assert!(said.ends_with(&format!("; these have not renewed yet: {}", old.node)), "{said}");
    check(&mut domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    let said = why_not(&domain, retire("i1"));
    let end = domain.now.plus(span("10m"));
    let all = format!("; all their holders have renewed, and the last superseded certificate ends at {end}");
    assert!(said.ends_with(&all), "{said}");
    assert!(why_not(&domain, retire("i2")).ends_with("is active, not retiring"));
    domain.pass(span("10m"));
    check(&mut domain, retire("i1"), granted(&["ca.retired"]));
}
