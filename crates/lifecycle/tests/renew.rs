//! A certificate for a new key, asked for with the one in use; and what becomes of the one before.

use crate::support::{Domain, Enrolled, check, contact, granted, local, node, refused, span};
use lifecycle::names::{KeyHash, KeyKind, Span, SpiffeId};
use lifecycle::registry::{
    Actor, CertificateStatus, Command, Confirmation, NodeState, Outcome, Renew, Verdict,
};

const RENEWED: &[&str] = &["certificate.renewed"];
const TAKES_OVER: &[&str] = &["certificate.seen", "certificate.superseded"];

fn renew(by: &Enrolled, renew: Renew) -> (Actor, Command) {
    (by.actor(), Command::Renew(Box::new(renew)))
}

fn fresh(domain: &mut Domain, by: &Enrolled) -> Renew {
    let key = KeyHash::new(domain.digest());
    domain.renewal(&by.node, key)
}

/// The same request, after its answer was lost: the replica prepares another certificate, in vain.
fn again(domain: &mut Domain, first: &Renew) -> Renew {
    domain.renewal(&first.node, first.key)
}

#[track_caller]
fn answer(domain: &mut Domain, (actor, command): (Actor, Command)) -> Outcome {
    domain.give(actor, command).answer.unwrap()
}

/// A node with a seen certificate and an unseen one.
fn renewed() -> (Domain, Enrolled, Enrolled) {
    let mut domain = Domain::founded();
    let old = domain.active();
    domain.pass(span("16h"));
    let new = domain.renew(&old);
    (domain, old, new)
}

#[test]
fn after_a_renewal_both_certificates_are_good_until_the_new_one_is_seen() {
    let (mut domain, old, new) = renewed();
    for by in [&old, &new] {
        assert!(domain.state.is_good(&by.serial));
    }
    domain.pass(span("1h"));
    check(&mut domain, contact(&old), granted(&[]));
    assert_eq!(domain.state.certificates[&old.serial].status, CertificateStatus::Live);
    assert!(domain.state.certificates[&new.serial].is_unseen());
    assert_eq!(domain.state.nodes[&old.node].current_serial(), Some(&new.serial));
}

#[test]
fn the_first_request_with_the_new_certificate_leaves_the_old_its_drain_and_no_more() {
    let (mut domain, old, new) = renewed();
    check(&mut domain, contact(&new), granted(TAKES_OVER));
    let until = domain.now.plus(span("10m"));
    assert_eq!(domain.state.certificates[&old.serial].status, CertificateStatus::Superseded { until });
    check(&mut domain, contact(&new), granted(&[]));
    domain.pass(Span::from_millis(599_999));
    check(&mut domain, contact(&old), granted(&[]));
    domain.pass(Span::from_millis(1));
    check(&mut domain, contact(&old), refused("unauthenticated"));
    assert!(matches!(domain.state.verdict(&old.serial, domain.now), Verdict::Superseded { .. }));
    check(&mut domain, contact(&new), granted(&[]));
}

#[test]
fn the_drain_is_the_policys_of_the_moment_at_which_the_new_one_was_seen() {
    let (mut domain, old, new) = renewed();
    domain.policy("renew.drain", "1m");
    check(&mut domain, contact(&new), granted(TAKES_OVER));
    domain.policy("renew.drain", "1h");
    domain.pass(span("1m"));
    check(&mut domain, contact(&old), refused("unauthenticated"));
}

#[test]
fn a_drain_does_not_outlast_the_certificate() {
    let (mut domain, old, new) = renewed();
    domain.policy("renew.drain", "90d");
    check(&mut domain, contact(&new), granted(TAKES_OVER));
    domain.pass(span("8h"));
    check(&mut domain, contact(&old), refused("unauthenticated"));
}

#[test]
fn a_superseded_certificate_cannot_renew_not_even_in_its_drain() {
    let (mut domain, old, new) = renewed();
    check(&mut domain, contact(&new), granted(TAKES_OVER));
    let request = fresh(&mut domain, &old);
    check(&mut domain, renew(&old, request), refused("certificate_superseded"));
    domain.pass(span("10m"));
    let request = fresh(&mut domain, &old);
    check(&mut domain, renew(&old, request), refused("unauthenticated"));
    domain.renew(&new);
}

#[test]
fn renewing_again_with_the_old_one_denies_the_unseen_one() {
    let (mut domain, old, lost) = renewed();
    let request = fresh(&mut domain, &old);
    check(&mut domain, renew(&old, request), granted(RENEWED));
    assert!(domain.state.is_denied(&lost.serial));
    assert_eq!(domain.state.certificates[&lost.serial].denied_at, Some(domain.now));
    check(&mut domain, contact(&lost), refused("unauthenticated"));
    assert!(domain.state.is_good(&old.serial));
    let current = domain.state.nodes[&old.node].current_serial().cloned().unwrap();
    check(&mut domain, contact(&Enrolled { serial: current, ..old }), granted(TAKES_OVER));
}

#[test]
fn the_same_key_again_gets_the_same_certificate_whole() {
    let mut domain = Domain::founded();
    let old = domain.active();
    let first = fresh(&mut domain, &old);
    let Outcome::Renewed { serial, .. } = answer(&mut domain, renew(&old, first.clone())) else { panic!() };
    for prepared in [true, false] {
        domain.pass(span("1h"));
        let request = again(&mut domain, &first);
        let request = if prepared { request } else { Renew { prepared: None, ..request } };
        let envelope = domain.envelope(old.actor(), Command::Renew(Box::new(request)));
        let applied = domain.step(&envelope);
        assert_eq!(applied.answer, Ok(Outcome::Renewed { serial: serial.clone(), replayed: true }));
        assert!(applied.events.is_empty());
        let whole = first.prepared.as_ref().unwrap().der.as_slice();
        assert_eq!(domain.state.certificates[&serial].der.as_ref().map(|der| der.as_slice()), Some(whole));
    }
}

#[test]
fn a_key_that_was_seen_is_refused() {
    let (mut domain, old, new) = renewed();
    let own = domain.state.certificates[&old.serial].key;
    let request = domain.renewal(&old.node, own);
    check(&mut domain, renew(&old, request), refused("key_in_use"));
    let key = domain.state.certificates[&new.serial].key;
    // With the unseen certificate itself, its own key is no new one either.
    let request = domain.renewal(&old.node, key);
    check(&mut domain, renew(&new, request.clone()), refused("key_in_use"));
    check(&mut domain, contact(&new), granted(TAKES_OVER));
    check(&mut domain, renew(&new, request), refused("key_in_use"));
}

#[test]
fn a_key_that_was_lost_and_denied_is_refused() {
    let (mut domain, old, lost) = renewed();
    domain.renew(&old);
    let key = domain.state.certificates[&lost.serial].key;
    let request = domain.renewal(&old.node, key);
    check(&mut domain, renew(&old, request), refused("key_in_use"));
}

#[test]
fn another_nodes_key_is_refused_seen_or_not() {
    let (mut domain, old, _) = renewed();
    for seen in [false, true] {
        let other = domain.enroll();
        if seen {
            domain.confirm(&other);
        }
        let request = domain.renewal(&old.node, other.request.key);
        check(&mut domain, renew(&old, request), refused("key_in_use"));
    }
}

#[test]
fn a_key_in_use_stays_so_when_another_holder_of_it_is_forgotten() {
    let mut domain = Domain::founded();
    domain.policy("profile.gpu.lifetime", "3d");
    let token = domain.mint_with(|create| create.profile = Some(crate::support::profile("gpu")));
    let long = domain.enroll_with(token, |_| ());
    domain.confirm(&long);
    let token = domain.mint();
    let other = domain.enroll_with(token, |request| request.key = long.request.key);
    domain.confirm(&other);
    domain.pass(span("20h"));
    let next = domain.renew(&other);
    check(&mut domain, contact(&next), granted(TAKES_OVER));
    domain.pass(span("10h"));
    domain.give(Actor::Reconciler, Command::Tidy);
    assert!(!domain.state.certificates.contains_key(&other.serial));
    let request = domain.renewal(&long.node, long.request.key);
    check(&mut domain, renew(&long, request), refused("key_in_use"));
}

#[test]
fn renewal_is_allowed_in_every_living_state() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let request = fresh(&mut domain, &enrolled);
    // The first authenticated request confirms, whatever it asks for.
    let first = &["host.confirmed", "host.active", "certificate.seen", "certificate.renewed"];
    check(&mut domain, renew(&enrolled, request), granted(first));

    let inactive = domain.active();
    domain.silence(&inactive.node);
    let request = fresh(&mut domain, &inactive);
    check(&mut domain, renew(&inactive, request), granted(&["host.active", "certificate.renewed"]));

    let kept = domain.active();
    let drain = Command::Drain { node: kept.node.clone(), within: None };
    check(&mut domain, (local(), drain), granted(&["host.draining"]));
    let quarantine = Command::Quarantine { node: kept.node.clone(), reason: "odd".to_owned() };
    check(&mut domain, (local(), quarantine), granted(&["host.quarantined"]));
    let request = fresh(&mut domain, &kept);
    check(&mut domain, renew(&kept, request), granted(RENEWED));
    let record = &domain.state.nodes[&kept.node];
    assert!(record.draining && record.quarantined, "renewing changes nothing else");
}

#[test]
fn a_node_that_is_gone_cannot_renew() {
    for gone in [NodeState::Revoked, NodeState::Decommissioned] {
        let (mut domain, old, new) = renewed();
        let (first, second) = (fresh(&mut domain, &old), fresh(&mut domain, &new));
        domain.end(&old.node, gone);
        check(&mut domain, renew(&old, first.clone()), refused("unauthenticated"));
        check(&mut domain, renew(&new, second), refused("unauthenticated"));
        let reinstate = Command::Reinstate { node: old.node.clone(), as_registered: true };
        check(&mut domain, (local(), reinstate), granted(&["host.reinstated"]));
        check(&mut domain, renew(&old, first), refused("unauthenticated"));
    }
}

#[test]
fn an_expired_certificate_cannot_renew() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("1d"));
    let request = fresh(&mut domain, &node);
    check(&mut domain, renew(&node, request), refused("unauthenticated"));
}

#[test]
fn a_node_renews_only_for_itself() {
    let mut domain = Domain::founded();
    let (mine, other) = (domain.active(), domain.active());
    let request = fresh(&mut domain, &mine);
    check(&mut domain, renew(&other, request.clone()), refused("forbidden"));
    let disguised = Enrolled { serial: other.serial.clone(), ..mine.clone() };
    check(&mut domain, renew(&disguised, request.clone()), refused("unauthenticated"));
    check(&mut domain, (local(), Command::Renew(Box::new(request))), refused("unauthenticated"));
    let nobody = Renew { node: node("nobody"), ..fresh(&mut domain, &mine) };
    check(&mut domain, renew(&mine, nobody), refused("forbidden"));
}

#[test]
fn what_was_prepared_wrongly_is_not_granted_and_denies_nothing() {
    let bad: [fn(&mut lifecycle::registry::Issued); 7] = [
        |issued| issued.key = KeyHash::new([0xee; 32]),
        |issued| issued.subject = SpiffeId::parse("spiffe://fleet.example/tenant/default/agent/x").unwrap(),
        |issued| issued.issuer = crate::support::issuer("i2"),
        |issued| issued.signed_at = issued.signed_at.plus(Span::from_millis(60_001)),
        |issued| issued.signed_at = issued.signed_at.minus(Span::from_millis(300_001)),
        |issued| issued.not_after = issued.not_after.plus(Span::from_millis(1)),
        |issued| issued.not_after = issued.signed_at,
    ];
    for (number, spoil) in bad.into_iter().enumerate() {
        let (mut domain, old, unseen) = renewed();
        let mut request = fresh(&mut domain, &old);
        spoil(request.prepared.as_mut().unwrap());
        let applied = domain.give(old.actor(), Command::Renew(Box::new(request)));
        assert_eq!(applied.answer.map_err(|rejection| rejection.code()), Err("try_again"), "{number}");
        assert!(domain.state.is_good(&unseen.serial));
    }
    let (mut domain, old, unseen) = renewed();
    let mut request = fresh(&mut domain, &old);
    request.prepared.as_mut().unwrap().serial = unseen.serial;
    check(&mut domain, renew(&old, request), refused("try_again"));
    let request = Renew { prepared: None, ..fresh(&mut domain, &old) };
    check(&mut domain, renew(&old, request), refused("try_again"));
}

#[test]
fn the_profile_says_which_keys_and_how_long() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.policy("profile.default.keys", "ed25519");
    let request = fresh(&mut domain, &node);
    check(&mut domain, renew(&node, request.clone()), refused("key_kind_not_allowed"));
    let request = Renew { key_kind: KeyKind::Ed25519, ..request };
    domain.policy("profile.default.lifetime", "1h");
    // Prepared under the rules of a moment ago.
    check(&mut domain, renew(&node, request), refused("try_again"));
}

#[test]
fn what_an_issuer_signed_is_not_handed_out_again_after_its_revocation() {
    let (mut domain, old, _) = renewed();
    domain.roll("i2");
    let lost = fresh(&mut domain, &old);
    check(&mut domain, renew(&old, lost.clone()), granted(RENEWED));
    let revoke = Command::RevokeIssuer {
        issuer: crate::support::issuer("i2"),
        reason: "lost".to_owned(),
        confirm: Confirmation::NotAsked,
        asks_for_holders: false,
    };
    check(&mut domain, (local(), revoke), granted(&["ca.revoked"]));
    let request = Renew { prepared: None, ..lost };
    check(&mut domain, renew(&old, request), refused("key_in_use"));
    // With another key and another issuer it goes on.
    domain.roll("i3");
    let request = fresh(&mut domain, &old);
    check(&mut domain, renew(&old, request), granted(RENEWED));
}

#[test]
fn a_renewal_keeps_who_the_node_is() {
    let (mut domain, old, new) = renewed();
    let before = domain.state.nodes[&old.node].clone();
    check(&mut domain, contact(&new), granted(TAKES_OVER));
    let after = &domain.state.nodes[&old.node];
    assert_eq!((&after.tenant, &after.profile, after.generation), (&before.tenant, &before.profile, 1));
    assert_eq!((after.state, after.enrolled_at), (NodeState::Active, before.enrolled_at));
}

#[test]
fn a_thousand_renewals_leave_no_more_than_a_few() {
    let mut domain = Domain::founded();
    domain.policy("profile.default.lifetime", "1h");
    let mut holder = domain.active();
    let (mut most, mut kept) = (0, 0);
    for round in 0..1000 {
        domain.pass(span("40m"));
        let mut next = domain.renew(&holder);
        if round % 3 == 0 {
            next = domain.renew(&holder);
        }
        check(&mut domain, contact(&next), granted(TAKES_OVER));
        holder = next;
        domain.give(Actor::Reconciler, Command::Tidy);
        let state = &domain.state;
        most = most.max(state.certificates.len()).max(state.nodes[&holder.node].serials.len());
        kept = kept.max(state.certified_keys.len());
        assert_eq!(state.certificates.len(), state.nodes[&holder.node].serials.len());
        if domain.state.client_issuer().unwrap().not_after < domain.now.plus(span("2h")) {
            domain.roll(&format!("i{round}"));
        }
    }
    assert!(most <= 5 && kept <= 5, "{most} certificates and {kept} keys at once");
    assert!(domain.state.recent.len() < 20 && domain.state.issuers.len() <= 2);
}

#[test]
fn a_host_that_renews_in_a_loop_does_not_grow_the_registry() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for _ in 0..255 {
        domain.renew(&node);
    }
    let more = fresh(&mut domain, &node);
    check(&mut domain, renew(&node, more), refused("too_many_certificates"));
    assert!(domain.state.is_good(&node.serial));
}
