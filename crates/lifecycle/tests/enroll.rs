//! A token becomes a node.

use crate::support::{
    Domain, Enrolled, Flaw, ISSUER_LIFE, Minted, SOURCE, START, check, enroll, granted, hardware, local,
    node, profile, refused, refused_with, span,
};
use lifecycle::names::{IdempotencyHash, KeyHash, KeyKind, Label, ProfileName, Span, TenantId};
use lifecycle::registry::{
    Actor, Admission, CertificateStatus, Command, Credential, Door, Enroll, Hardware, NodeChoice, NodeState,
    Outcome, Owner, Rejection, TokenState, Underlay, admit, check_token,
};
use std::sync::Arc;

const ENROLLED: &[&str] = &["host.enrolled"];
const BURNED: &[&str] = &["enrollment.refused"];

#[test]
fn a_token_becomes_an_enrolled_node_with_its_certificate_on_record() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let Enrolled { node, serial, request } = domain.enroll_with(token, |_| ());
    let record = &domain.state.nodes[&node];
    assert_eq!((record.state, record.generation, record.ever_active), (NodeState::Enrolled, 1, false));
    assert_eq!(
        (&record.tenant, &record.profile),
        (&TenantId::default_tenant(), &ProfileName::default_profile())
    );
    assert_eq!((record.token, record.serials.as_slice()), (Some(token.id), &[serial.clone()][..]));
    let (issued, certificate) = (request.prepared.unwrap().certificate, &domain.state.certificates[&serial]);
    assert_eq!(certificate.owner, Owner::Node(node.clone()));
    assert_eq!((certificate.fingerprint, certificate.key), (issued.fingerprint, request.key));
    assert_eq!(certificate.not_after, issued.not_after);
    assert_eq!(certificate.der.as_deref(), Some(&issued.der));
    assert!(domain.state.verdict(&serial, domain.now) == lifecycle::registry::Verdict::Good);
    let spent = TokenState::Used { at: domain.now, node: Some(node) };
    assert_eq!(domain.state.tokens[&token.id].state, spent);
}

#[test]
fn what_the_host_says_of_itself_is_kept_when_it_says_nothing_but_not_where_it_was() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let underlay = Underlay { ipv6: None, ipv4: Some([192, 0, 2, 9].into()), port: 51820 };
    let hardware = Hardware { cpu_cores: Some(64), memory_bytes: None, disk_bytes: None, arch: None };
    let first = domain.enroll_with(token, |request| {
        request.underlay = Some(underlay);
        request.hardware = Some(hardware.clone());
        request.hostname = Label::parse("rack-7.example").ok();
    });
    let token = domain.mint_pinned(&first.node);
    domain.enroll_with(token, |request| request.agent_version = Label::parse("0.1.0").ok());
    let record = &domain.state.nodes[&first.node];
    assert_eq!((record.underlay, record.hardware.as_ref()), (None, Some(&hardware)));
    assert_eq!(record.hostname, Label::parse("rack-7.example").ok());
    assert_eq!(record.agent_version, Label::parse("0.1.0").ok());
}

#[test]
fn an_unknown_token_is_invalid_and_tells_nothing() {
    let mut domain = Domain::founded();
    let stranger = domain.token_request();
    let token = Minted { id: stranger.token, hash: stranger.hash };
    let request = domain.request(token);
    check(&mut domain, enroll(request), refused("token_invalid"));
}

#[test]
fn a_token_is_good_until_its_last_moment_and_not_a_moment_longer() {
    for (after, expect) in [(59_999, granted(ENROLLED)), (60_000, refused("token_expired"))] {
        let mut domain = Domain::founded();
        let token = domain.mint_with(|create| create.ttl = Some(span("1m")));
        let request = domain.request(token);
        let request = domain.prepare(request);
        domain.pass(Span::from_millis(after));
        check(&mut domain, enroll(request), expect);
    }
}

#[test]
fn an_expired_token_stays_expired_after_tidying() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.pass(span("1h"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&["enrollment_token.expired"]));
    let request = domain.request(token);
    check(&mut domain, enroll(request), refused("token_expired"));
}

#[test]
fn a_used_token_makes_no_second_node() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.enroll_with(token, |_| ());
    let mut again = domain.request(token);
    let other = domain.mint();
    let prepared = domain.request(other);
    again.prepared = domain.prepare(prepared).prepared;
    check(&mut domain, enroll(again), refused("token_used"));
    assert_eq!(domain.state.nodes.len(), 1);
}

#[test]
fn a_revoked_token_says_so() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    check(
        &mut domain,
        (local(), Command::RevokeToken { token: token.id }),
        granted(&["enrollment_token.revoked"]),
    );
    let request = domain.request(token);
    check(&mut domain, enroll(request), refused("token_revoked"));
}

#[test]
fn a_token_alone_is_judged_as_with_its_request() {
    let mut domain = Domain::founded();
    let expired = domain.mint_with(|create| create.ttl = Some(span("10s")));
    let [good, used, revoked] = [domain.mint(), domain.mint(), domain.mint()];
    domain.pass(span("10s"));
    domain.enroll_with(used, |request| request.idempotency = idempotency(7));
    let revoke = (local(), Command::RevokeToken { token: revoked.id });
    check(&mut domain, revoke, granted(&["enrollment_token.revoked"]));
    let judge = |token: Minted, again: Option<IdempotencyHash>| {
        check_token(&domain.state, &token.hash, again.as_ref()).map(|token| token.id)
    };
    for again in [None, idempotency(7), idempotency(8)] {
        assert_eq!(judge(good, again), Ok(good.id));
        assert_eq!(judge(revoked, again), Err(Rejection::TokenRevoked));
        assert_eq!(judge(expired, again), Err(Rejection::TokenExpired));
    }
    assert_eq!(judge(used, None), Err(Rejection::TokenUsed));
    assert_eq!(judge(used, idempotency(8)), Err(Rejection::TokenUsed));
    assert_eq!(judge(used, idempotency(7)), Ok(used.id));
    let never = Minted { hash: lifecycle::names::SecretHash::new([9; 32]), ..good };
    assert_eq!(judge(never, None), Err(Rejection::TokenInvalid));
}

#[test]
fn tokens_are_refused_while_policy_does_not_accept_them() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.policy("attestors", "hardware,recovery-token");
    let request = domain.request(token);
    check(&mut domain, enroll(request), refused("attestor_not_allowed"));
    domain.policy("attestors", "join-token");
    domain.enroll_with(token, |_| ());
}

#[test]
fn a_wireguard_key_in_use_burns_the_token_and_the_trail_says_why() {
    let mut domain = Domain::founded();
    let wireguard = domain.wireguard();
    let first = domain.mint();
    domain.enroll_with(first, |request| request.wireguard = Some(wireguard));
    let token = domain.mint();
    let mut request = domain.request(token);
    request.wireguard = Some(wireguard);
    let events = check(&mut domain, enroll(request.clone()), refused_with("wireguard_key_in_use", BURNED));
    let fields = serde_json::to_value(events[0].fields()).unwrap();
    let expected = serde_json::json!([
        ["reason", "wireguard_key_in_use"],
        ["count", 1],
        ["samples", []],
        ["token_id", token.id.to_string()],
        ["token_burned", true],
    ]);
    assert_eq!(fields, expected);
    assert_eq!(domain.state.tokens[&token.id].state, TokenState::Used { at: domain.now, node: None });
    request.wireguard = None;
    let request = domain.prepare(request);
    check(&mut domain, enroll(request), refused("token_used"));
    assert_eq!(domain.state.nodes.len(), 1);
}

#[test]
fn a_pin_on_another_node_does_not_excuse_a_wireguard_key_in_use() {
    let mut domain = Domain::founded();
    let wireguard = domain.wireguard();
    let token = domain.mint();
    domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
    let other = domain.enroll();
    let token = domain.mint_pinned(&other.node);
    let mut request = domain.request(token);
    request.wireguard = Some(wireguard);
    check(&mut domain, enroll(request), refused_with("wireguard_key_in_use", BURNED));
}

#[test]
fn the_tombstone_of_a_node_keeps_its_wireguard_key() {
    let mut domain = Domain::founded();
    let wireguard = domain.wireguard();
    let token = domain.mint();
    let gone = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
    domain.confirm(&gone);
    domain.end(&gone.node, NodeState::Revoked);
    let token = domain.mint();
    let mut request = domain.request(token);
    request.wireguard = Some(wireguard);
    check(&mut domain, enroll(request), refused_with("wireguard_key_in_use", BURNED));
}

#[test]
fn a_pin_on_a_node_that_is_gone_burns_the_token() {
    for gone in [NodeState::Revoked, NodeState::Decommissioned] {
        let mut domain = Domain::founded();
        let enrolled = domain.enroll();
        let token = domain.mint_pinned(&enrolled.node);
        domain.end(&enrolled.node, gone);
        let request = domain.request(token);
        check(&mut domain, enroll(request.clone()), refused_with("node_revoked", BURNED));
        check(&mut domain, enroll(request), refused("token_used"));
        assert_eq!(domain.state.nodes[&enrolled.node].state, gone);
    }
}

#[test]
fn a_kind_of_key_that_the_profile_does_not_allow_leaves_the_token_good() {
    let mut domain = Domain::founded();
    domain.policy("profile.default.keys", "p256,p384");
    let token = domain.mint();
    for kind in [KeyKind::Ed25519, KeyKind::Rsa] {
        let mut request = domain.request(token);
        request.key_kind = kind;
        check(&mut domain, enroll(request), refused("key_kind_not_allowed"));
    }
    domain.enroll_with(token, |request| request.key_kind = KeyKind::P384);
}

#[test]
fn a_requested_id_that_is_taken_leaves_the_token_good() {
    let mut domain = Domain::founded();
    let (taken, gone) = (domain.enroll(), domain.enroll());
    domain.end(&gone.node, NodeState::Revoked);
    let token = domain.mint();
    for wanted in [taken.node, gone.node] {
        let mut request = domain.request(token);
        request.requested_node = Some(wanted);
        check(&mut domain, enroll(request), refused("node_id_in_use"));
    }
    let enrolled = domain.enroll_with(token, |request| request.requested_node = Some(node("worker-1")));
    assert_eq!(enrolled.node, node("worker-1"));
}

#[test]
fn a_pin_comes_before_a_requested_id() {
    let mut domain = Domain::founded();
    let token = domain.mint_pinned(&node("pinned"));
    let enrolled = domain.enroll_with(token, |request| request.requested_node = Some(node("wanted")));
    assert_eq!(enrolled.node, node("pinned"));
}

#[test]
fn a_pin_on_a_name_that_another_tenant_took_meanwhile_is_refused_and_not_burned() {
    let mut domain = Domain::founded();
    let acme = domain.tenant("acme");
    let token = domain.mint_with(|create| {
        create.tenant = acme;
        create.node = Some(node("rack-7"));
    });
    let faster = domain.mint_pinned(&node("rack-7"));
    domain.enroll_with(faster, |_| ());
    let request = domain.request(token);
    check(&mut domain, enroll(request), refused("node_id_in_use"));
    assert_eq!(domain.state.tokens[&token.id].state, TokenState::Unused);
}

#[test]
fn a_door_has_a_profile_of_its_own_and_the_tokens_profile_comes_first() {
    for (door, of_door) in [
        (Door::Native, "default"),
        (Door::Plfm, "plfm"),
        (Door::Pact, "pact"),
        (Door::Probectl, "probectl"),
        (Door::Taskrun, "taskrun"),
    ] {
        let mut domain = Domain::founded();
        let token = domain.mint();
        let enrolled = domain.enroll_with(token, |request| request.door = door);
        assert_eq!(domain.state.nodes[&enrolled.node].profile, profile(of_door));
        let token = domain.mint_with(|create| create.profile = Some(profile("taskrun-prod")));
        let enrolled = domain.enroll_with(token, |request| request.door = door);
        assert_eq!(domain.state.nodes[&enrolled.node].profile, profile("taskrun-prod"));
    }
}

#[test]
fn a_token_of_a_tenant_makes_nodes_of_that_tenant() {
    let mut domain = Domain::founded();
    let acme = domain.tenant("acme");
    let token = domain.mint_with(|create| create.tenant = acme.clone());
    let request = domain.request(token);
    let (tenant, profile) = (acme.clone(), ProfileName::default_profile());
    assert_eq!(
        admit(&domain.state, &request, &SOURCE),
        Ok(Admission::Fresh { tenant, profile, node: NodeChoice::Free })
    );
    let enrolled = domain.enroll_with(token, |_| ());
    assert_eq!(domain.state.nodes[&enrolled.node].tenant, acme);
}

fn idempotency(number: u8) -> Option<IdempotencyHash> {
    Some(IdempotencyHash::new([number; 32]))
}

/// A node whose host named an idempotency key, and which has not been heard of since.
fn lost_reply() -> (Domain, Enrolled) {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let enrolled = domain.enroll_with(token, |request| request.idempotency = idempotency(1));
    domain.pass(span("10m"));
    (domain, enrolled)
}

fn ask_again(enrolled: &Enrolled, change: impl FnOnce(&mut Enroll)) -> (Actor, Command) {
    let mut request = Enroll { prepared: None, ..enrolled.request.clone() };
    change(&mut request);
    enroll(request)
}

#[test]
fn after_a_lost_reply_the_same_certificate_is_given_again() {
    let (mut domain, enrolled) = lost_reply();
    for _ in 0..2 {
        let (actor, command) = ask_again(&enrolled, |_| ());
        let answer = domain.give(actor, command).answer;
        let (node, serial) = (enrolled.node.clone(), enrolled.serial.clone());
        assert_eq!(answer, Ok(Outcome::Enrolled { node, serial, replayed: true }));
        domain.pass(span("10m"));
    }
    assert!(domain.state.certificates[&enrolled.serial].der.is_some());
}

#[test]
fn whoever_asks_differently_after_a_lost_reply_has_used_the_token() {
    let (domain, enrolled) = lost_reply();
    let other_key = ask_again(&enrolled, |request| request.key = KeyHash::new([7; 32]));
    let other_idempotency = ask_again(&enrolled, |request| request.idempotency = idempotency(2));
    let no_idempotency = ask_again(&enrolled, |request| request.idempotency = None);
    for when in [other_key, other_idempotency, no_idempotency] {
        check(&mut domain.clone(), when, refused("token_used"));
    }
}

#[test]
fn without_an_idempotency_key_at_first_there_is_no_repeat() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    check(&mut domain, ask_again(&enrolled, |_| ()), refused("token_used"));
}

#[test]
fn a_confirmed_enrollment_is_not_repeated() {
    let (mut domain, enrolled) = lost_reply();
    domain.confirm(&enrolled);
    check(&mut domain, ask_again(&enrolled, |_| ()), refused("token_used"));
}

#[test]
fn after_the_tokens_end_an_enrollment_is_not_repeated() {
    let (mut domain, enrolled) = lost_reply();
    domain.pass(span("50m"));
    check(&mut domain, ask_again(&enrolled, |_| ()), refused("token_used"));
}

#[test]
fn an_enrollment_that_a_later_one_replaced_is_not_repeated() {
    let (mut domain, enrolled) = lost_reply();
    let token = domain.mint_pinned(&enrolled.node);
    domain.enroll_with(token, |request| request.idempotency = idempotency(1));
    check(&mut domain, ask_again(&enrolled, |_| ()), refused("token_used"));
}

#[test]
fn a_revoked_nodes_enrollment_is_not_repeated() {
    let (mut domain, enrolled) = lost_reply();
    domain.end(&enrolled.node, NodeState::Revoked);
    check(&mut domain, ask_again(&enrolled, |_| ()), refused("token_used"));
}

#[test]
fn enrolling_again_with_a_pinned_token_denies_every_older_serial() {
    let mut domain = Domain::founded();
    let first = domain.enroll();
    domain.confirm(&first);
    let mut older = vec![first.serial.clone()];
    for _ in 0..3 {
        let token = domain.mint_pinned(&first.node);
        let again = domain.enroll_with(token, |_| ());
        assert_eq!(again.node, first.node);
        for serial in &older {
            assert!(domain.state.is_denied(serial));
            assert_eq!(domain.state.certificates[serial].status, CertificateStatus::Denied);
            assert_eq!(domain.state.certificates[serial].der, None);
        }
        assert!(!domain.state.is_denied(&again.serial));
        let record = &domain.state.nodes[&first.node];
        assert_eq!((record.state, record.ever_active), (NodeState::Enrolled, true));
        assert_eq!(record.current_serial(), Some(&again.serial));
        older.push(again.serial);
    }
}

#[test]
fn what_was_prepared_wrongly_is_not_granted_and_consumes_nothing() {
    for flaw in Flaw::ALL {
        let mut domain = Domain::founded();
        if flaw == Flaw::OutlivesIssuer {
            domain.now = START.plus(ISSUER_LIFE).minus(span("12h"));
        }
        domain.enroll();
        let server = lifecycle::registry::ServerCertificate {
            serial: domain.serial(),
            fingerprint: lifecycle::names::Fingerprint::new(domain.digest()),
            issuer: crate::support::issuer("i1"),
            not_after: domain.now.plus(span("1h")),
            replica: lifecycle::names::ReplicaId::FIRST,
        };
        let record = (Actor::Reconciler, Command::RecordServerCertificate(server));
        check(&mut domain, record, granted(&["server_certificate.issued"]));
        let token = domain.mint_pinned(&node("rack-7"));
        let request = domain.request(token);
        let good = domain.prepare(request);
        let mut bad = good.clone();
        assert!(flaw.spoil(&domain, &mut bad), "{flaw:?}");
        let applied = domain.give(Actor::Stranger, Command::Enroll(Box::new(bad)));
        assert_eq!(applied.answer.map_err(|rejection| rejection.code()), Err("try_again"), "{flaw:?}");
        check(&mut domain, enroll(good), granted(ENROLLED));
    }
}

#[test]
fn a_certificate_may_be_a_minute_ahead_or_five_behind() {
    for shift in [Ok(span("60s")), Err(span("300s"))] {
        let mut domain = Domain::founded();
        let token = domain.mint();
        let request = domain.request(token);
        let mut request = domain.prepare(request);
        let certificate = &mut request.prepared.as_mut().unwrap().certificate;
        certificate.signed_at = match shift {
            Ok(ahead) => domain.now.plus(ahead),
            Err(behind) => domain.now.minus(behind),
        };
        certificate.not_after = certificate.signed_at.plus(span("1d"));
        check(&mut domain, enroll(request), granted(ENROLLED));
    }
}

#[test]
fn a_name_that_was_free_when_prepared_and_is_taken_now_is_prepared_again() {
    let mut domain = Domain::founded();
    let (slow, fast) = (domain.mint(), domain.mint_pinned(&node("rack-7")));
    let request = domain.request(slow);
    let mut request = domain.prepare(request);
    let prepared = request.prepared.as_mut().unwrap();
    prepared.node = node("rack-7");
    let name = prepared.certificate.subject.domain.clone();
    prepared.certificate.subject = lifecycle::names::SpiffeId::agent(&name, &prepared.tenant, &prepared.node);
    domain.enroll_with(fast, |_| ());
    check(&mut domain, enroll(request), refused("try_again"));
}

#[test]
fn no_certificate_outlives_its_issuer_however_late_it_is_asked_for() {
    let mut domain = Domain::founded();
    domain.pass(span("364d"));
    domain.pass(span("12h"));
    let enrolled = domain.enroll();
    let end = domain.state.client_issuer().unwrap().not_after;
    assert_eq!(domain.state.certificates[&enrolled.serial].not_after, end);
}

#[test]
fn only_a_host_with_a_wireguard_key_gets_an_overlay_address() {
    let mut domain = Domain::founded();
    let without = domain.enroll();
    assert_eq!(domain.state.nodes[&without.node].address, None);
    for expected in ["fd12:3456:789a::100", "fd12:3456:789a::101"] {
        let wireguard = domain.wireguard();
        let token = domain.mint();
        let with = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
        assert_eq!(domain.state.nodes[&with.node].address, expected.parse().ok());
    }
}

#[test]
fn a_host_keeps_its_overlay_address_when_it_enrolls_again() {
    let mut domain = Domain::founded();
    let wireguard = domain.wireguard();
    let token = domain.mint();
    let first = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
    let address = domain.state.nodes[&first.node].address;
    for again in [wireguard, domain.wireguard()] {
        let token = domain.mint_pinned(&first.node);
        domain.enroll_with(token, |request| request.wireguard = Some(again));
        assert_eq!(domain.state.nodes[&first.node].address, address);
    }
    assert_eq!(domain.state.addresses.held.len(), 1);
}

/// A stolen host whose identity went to another machine must not be a peer again through that machine's.
#[test]
fn a_host_that_enrolls_again_without_a_key_leaves_the_overlay() {
    let mut domain = Domain::founded();
    let stolen = domain.wireguard();
    let token = domain.mint();
    let first = domain.enroll_with(token, |request| request.wireguard = Some(stolen));
    domain.confirm(&first);
    let token = domain.mint_pinned(&first.node);
    let again = domain.enroll_with(token, |_| ());
    domain.confirm(&again);
    let record = &domain.state.nodes[&first.node];
    assert_eq!((record.wireguard, record.address), (None, None));
    assert!(domain.state.addresses.held.is_empty());
    let token = domain.mint();
    let request = domain.request(token);
    let request = Enroll { wireguard: Some(stolen), ..request };
    check(&mut domain, enroll(request), refused_with("wireguard_key_in_use", BURNED));
}

#[test]
fn no_worker_takes_a_name_that_is_a_word_of_the_paths() {
    let mut domain = Domain::founded();
    for word in ["enroll", "enroll-tokens", "import"] {
        let token = domain.mint();
        let request = domain.request(token);
        let request = Enroll { requested_node: Some(node(word)), ..request };
        check(&mut domain, enroll(request), refused("node_id_in_use"));
    }
}

#[test]
fn a_wireguard_key_given_up_by_its_node_is_free_again() {
    let mut domain = Domain::founded();
    let (old, new) = (domain.wireguard(), domain.wireguard());
    let token = domain.mint();
    let first = domain.enroll_with(token, |request| request.wireguard = Some(old));
    let token = domain.mint_pinned(&first.node);
    domain.enroll_with(token, |request| request.wireguard = Some(new));
    let token = domain.mint();
    let second = domain.enroll_with(token, |request| request.wireguard = Some(old));
    assert_eq!(domain.state.wireguard_keys[&old.key], second.node);
    assert_eq!(domain.state.wireguard_keys[&new.key], first.node);
}

#[test]
fn an_address_that_was_given_back_rests_before_another_host_gets_it() {
    let mut domain = Domain::founded();
    domain.policy("overlay.cooldown", "10m");
    let wireguard = domain.wireguard();
    let token = domain.mint();
    let first = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
    let address = Arc::make_mut(domain.state.nodes.get_mut(&first.node).unwrap()).address.take().unwrap();
    let now = domain.now;
    domain.state.addresses.release(address, now);
    for (minutes, comes_back) in [(9, false), (1, true)] {
        domain.pass(Span::from_minutes(minutes));
        let wireguard = domain.wireguard();
        let token = domain.mint();
        let next = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
        assert_eq!(domain.state.nodes[&next.node].address == Some(address), comes_back);
    }
}

#[test]
fn no_more_enrollments_a_minute_than_policy_allows() {
    let mut domain = Domain::founded();
    domain.policy("enroll.max_per_minute", "2");
    domain.enroll();
    domain.pass(span("30s"));
    domain.enroll();
    let token = domain.mint();
    let request = domain.request(token);
    check(&mut domain, enroll(request.clone()), refused("rate_limited"));
    domain.pass(Span::from_millis(29_999));
    check(&mut domain, enroll(request.clone()), refused("rate_limited"));
    domain.pass(Span::from_millis(1));
    let request = domain.prepare(Enroll { prepared: None, ..request });
    // The registry's own time stands still until a command comes: the clock alone admits nobody.
    assert_eq!(request.prepared, None);
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&[]));
    let request = domain.prepare(request);
    check(&mut domain, enroll(request), granted(ENROLLED));
}

#[test]
fn the_limit_a_minute_does_not_stop_the_repeat_of_a_lost_reply() {
    let (mut domain, enrolled) = lost_reply();
    domain.policy("enroll.max_per_minute", "1");
    domain.enroll();
    check(&mut domain, ask_again(&enrolled, |_| ()), granted(&[]));
}

/// A recovery token is redeemed by its own command; hardware is for those domains whose policy names it.
#[test]
fn a_credential_that_is_no_token_is_refused_before_anything_else() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    for credential in
        [Credential::Hardware(hardware(&["02:00:00:00:00:01"], "")), Credential::Recovery(token.hash)]
    {
        let request = Enroll { credential, ..domain.request(token) };
        let command = Command::Enroll(Box::new(request));
        check(&mut domain, (Actor::Stranger, command), refused("attestor_not_allowed"));
    }
}
