//! Certificates that a step-ca signs: the intent, its result, and what becomes of an intent without one.

use crate::support::{Domain, Minted, check, granted, issuer, local, refused, replica};
use lifecycle::names::{KeyHash, ReplicaId, Serial, Span, SpiffeId, Timestamp, TrustDomain};
use lifecycle::registry::{
    Actor, AlertKind, BeginIssuance, Command, EXTERNAL_SKEW, EndIssuance, Enroll, INTENT_LAPSE,
    INTERMEDIATES, IntentEnd, IssuerState, NewStepCa, NodeSigner, Role, Tenants, TokenState,
};

fn enrollment(domain: &mut Domain, token: Minted) -> Enroll {
    let request = domain.request(token);
    domain.prepare(request)
}

fn command(request: &Enroll) -> Command {
    Command::Enroll(Box::new(request.clone()))
}

fn asked(domain: &Domain) -> Vec<Serial> {
    domain.state.intents.values().map(|intent| intent.serial.clone()).collect()
}

fn owed(domain: &Domain) -> Vec<Serial> {
    domain.state.undelivered_revocations.keys().cloned().collect()
}

fn ended(domain: &Domain, end: IntentEnd) -> Command {
    let intent = *domain.state.intents.keys().next().expect("an intent");
    Command::EndIssuance(Box::new(EndIssuance { replica: ReplicaId(1), intent, end }))
}

fn tidy(domain: &mut Domain) -> Vec<&'static str> {
    crate::support::names(&domain.give(Actor::Reconciler, Command::Tidy).events)
}

#[test]
fn an_intent_makes_no_node_and_spends_no_token_and_its_result_does() {
    let mut domain = Domain::step_ca();
    let token = domain.mint();
    let request = enrollment(&mut domain, token);
    assert!(domain.state.nodes.is_empty() && domain.state.certificates.is_empty());
    assert!(domain.state.tokens.values().all(|token| token.state == TokenState::Unused));
    assert_eq!(asked(&domain).len(), 1);
    check(&mut domain, (Actor::Stranger, command(&request)), granted(&["host.enrolled"]));
    assert_eq!((asked(&domain).len(), owed(&domain).len(), domain.state.nodes.len()), (0, 0, 1));
    let (_, step_ca) = domain.state.step_ca_issuer().expect("signs");
    assert_eq!(step_ca.intermediates, [domain.intermediate("step-1")]);
}

#[test]
fn nothing_is_recorded_that_was_not_asked_for() {
    let flaws: [fn(&mut Enroll); 6] = [
        |request| request.prepared.as_mut().unwrap().certificate.external = None,
        |request| {
            let held = &mut request.prepared.as_mut().unwrap().certificate;
            held.not_after = held.not_after.minus(Span::from_secs(1));
        },
        |request| request.key = KeyHash::new([9; 32]),
        |request| {
            let held = &mut request.prepared.as_mut().unwrap().certificate;
            held.external.as_mut().unwrap().not_before =
                held.signed_at.plus(EXTERNAL_SKEW).plus(Span::from_secs(1));
        },
        |request| {
            let held = &mut request.prepared.as_mut().unwrap().certificate;
            held.external.as_mut().unwrap().not_before =
                held.signed_at.minus(EXTERNAL_SKEW).minus(Span::from_secs(1));
        },
        |request| request.prepared.as_mut().unwrap().certificate.issuer = issuer("n1"),
    ];
    for (number, flaw) in flaws.into_iter().enumerate() {
        let mut domain = Domain::step_ca();
        let token = domain.mint();
        let mut request = enrollment(&mut domain, token);
        flaw(&mut request);
        check(&mut domain, (Actor::Stranger, command(&request)), refused("try_again"));
        assert!(domain.state.certificates.is_empty(), "{number}");
    }
}

#[test]
fn an_external_issuers_own_choice_of_not_before_is_good_within_five_minutes() {
    for shift in [0, 5 * 60 - 1] {
        let mut domain = Domain::step_ca();
        let token = domain.mint();
        let mut request = enrollment(&mut domain, token);
        let held = &mut request.prepared.as_mut().unwrap().certificate;
        held.external.as_mut().unwrap().not_before = held.signed_at.minus(Span::from_secs(shift));
        check(&mut domain, (Actor::Stranger, command(&request)), granted(&["host.enrolled"]));
    }
}

#[test]
fn an_intent_lapses_after_a_minute_and_what_may_have_been_signed_is_revoked() {
    let mut domain = Domain::step_ca();
    let token = domain.mint();
    let late = enrollment(&mut domain, token);
    let serials = asked(&domain);
    domain.pass(INTENT_LAPSE);
    // Even before it is tidied away.
    check(&mut domain, (Actor::Stranger, command(&late)), refused("try_again"));
    assert_eq!(tidy(&mut domain), ["issuance.lapsed"]);
    assert_eq!((asked(&domain), owed(&domain)), (vec![], serials.clone()));
    check(&mut domain, (Actor::Stranger, command(&late)), refused("try_again"));
    // The token is as good as it was.
    let again = enrollment(&mut domain, token);
    check(&mut domain, (Actor::Stranger, command(&again)), granted(&["host.enrolled"]));
    let delivered = Command::RecordDeliveredRevocations { serials };
    check(&mut domain, (Actor::Reconciler, delivered.clone()), granted(&["revocation.delivered"]));
    check(&mut domain, (Actor::Reconciler, delivered), granted(&[]));
    assert!(owed(&domain).is_empty());
}

#[test]
fn of_two_results_for_one_token_the_second_is_revoked() {
    let mut domain = Domain::step_ca();
    let token = domain.mint();
    let (first, second) = (enrollment(&mut domain, token), enrollment(&mut domain, token));
    check(&mut domain, (Actor::Stranger, command(&first)), granted(&["host.enrolled"]));
    check(&mut domain, (Actor::Stranger, command(&second)), refused("token_used"));
    let serial = second.prepared.unwrap().certificate.serial;
    let end = ended(&domain, IntentEnd::NotRecorded { serial: serial.clone() });
    check(&mut domain, (replica(1), end.clone()), granted(&["issuance.ended"]));
    assert_eq!(owed(&domain), [serial]);
    check(&mut domain, (replica(1), end), granted(&[]));
}

#[test]
fn a_refusal_ends_an_intent_and_leaves_nothing_to_revoke() {
    let mut domain = Domain::step_ca();
    let token = domain.mint();
    let request = enrollment(&mut domain, token);
    let end = ended(&domain, IntentEnd::NotSigned);
    check(&mut domain, (replica(1), end), granted(&["issuance.ended"]));
    assert_eq!((asked(&domain), owed(&domain)), (vec![], vec![]));
    check(&mut domain, (Actor::Stranger, command(&request)), refused("try_again"));
}

#[test]
fn an_issuer_that_misbehaves_raises_an_alert_and_has_to_revoke_what_it_signed() {
    let mut domain = Domain::step_ca();
    let token = domain.mint();
    enrollment(&mut domain, token);
    let asked = asked(&domain);
    let other = Serial::parse("abc").unwrap();
    let end =
        ended(&domain, IntentEnd::Misbehaved { serial: Some(other.clone()), what: "another key".to_owned() });
    check(&mut domain, (replica(1), end), granted(&["issuance.ended", "alert.raised"]));
    let alert = domain.state.open_alert(AlertKind::IssuerMisbehaved, None).expect("an alert");
    assert_eq!(alert.detail, "issuer c1: another key");
    assert!(owed(&domain).contains(&other) && asked.iter().all(|serial| owed(&domain).contains(serial)));
}

#[test]
fn what_is_denied_is_passed_on_until_it_has_expired() {
    let mut domain = Domain::step_ca();
    let node = domain.active();
    check(
        &mut domain,
        (local(), Command::Revoke { node: node.node.clone(), reason: "stolen".to_owned() }),
        granted(&["host.revoked"]),
    );
    assert_eq!(owed(&domain), [node.serial]);
    domain.pass(Span::from_days(400));
    assert!(tidy(&mut domain).contains(&"registry.tidied"));
    assert!(owed(&domain).is_empty());
}

#[test]
fn what_the_domain_signed_itself_is_owed_by_nobody() {
    let mut domain = Domain::founded();
    let node = domain.active();
    check(
        &mut domain,
        (local(), Command::Revoke { node: node.node.clone(), reason: "stolen".to_owned() }),
        granted(&["host.revoked"]),
    );
    assert!(owed(&domain).is_empty());
}

#[test]
fn a_recovery_and_a_renewal_take_the_same_way() {
    let mut domain = Domain::step_ca();
    let node = domain.active();
    let key = KeyHash::new([7; 32]);
    let renew = domain.renewal(&node.node, key);
    assert_eq!(asked(&domain).len(), 1);
    let events = granted(&["certificate.renewed"]);
    check(&mut domain, (node.actor(), Command::Renew(Box::new(renew))), events);
    assert!(asked(&domain).is_empty());
    assert_eq!(domain.state.nodes[&node.node].serials.len(), 2);
}

#[test]
fn only_its_own_replica_asks_and_only_for_nodes() {
    let mut domain = Domain::step_ca();
    let name = TrustDomain::parse("fleet.example").unwrap();
    let begin = |subject, not_after: Timestamp| {
        Command::BeginIssuance(Box::new(BeginIssuance {
            replica: ReplicaId(1),
            issuer: issuer("c1"),
            serial: Serial::parse("77").unwrap(),
            key: KeyHash::new([1; 32]),
            subject,
            not_after,
        }))
    };
    let agent = SpiffeId::parse("spiffe://fleet.example/tenant/default/agent/a").unwrap();
    let end = domain.now.plus(Span::from_days(1));
    let good = begin(agent.clone(), end);
    let admin = domain.operator("alice", Role::PlatformAdmin, Tenants::All);
    for actor in [replica(2), local(), Actor::Reconciler, Actor::Stranger, admin] {
        check(&mut domain, (actor, good.clone()), refused("forbidden"));
    }
    let of_replica = begin(SpiffeId::replica(&name, ReplicaId(1)), end);
    check(&mut domain, (replica(1), of_replica), refused("try_again"));
    let outlives = begin(agent, domain.now.plus(Span::from_days(36500)));
    check(&mut domain, (replica(1), outlives), refused("try_again"));
    check(&mut domain, (replica(1), good.clone()), granted(&["issuance.begun"]));
    // The same serial again.
    check(&mut domain, (replica(1), good), refused("try_again"));
}

#[test]
fn no_domain_has_a_step_ca_that_does_not_sign_or_that_hosts_would_trust() {
    let mut domain = Domain::unfounded();
    let Command::InitializeDomain(found) = domain.found_step_ca() else { unreachable!() };
    let flaws: [fn(&mut lifecycle::registry::InitializeDomain); 5] = [
        |found| found.step_ca = None,
        |found| found.node_signer = NodeSigner::DomainIssuer,
        |found| found.step_ca.as_mut().unwrap().issuer.fingerprint = found.root_fingerprint,
        |found| found.step_ca.as_mut().unwrap().issuer.sealed_key = Vec::new(),
        |found| found.step_ca.as_mut().unwrap().access.url = String::new(),
    ];
    for flaw in flaws {
        let mut flawed = found.clone();
        flaw(&mut flawed);
        check(&mut domain, (local(), Command::InitializeDomain(flawed)), refused("try_again"));
    }
    check(&mut domain, (local(), Command::InitializeDomain(found)), granted(&["domain.founded"]));
}

#[test]
fn intermediates_are_bounded() {
    let mut domain = Domain::step_ca();
    for number in 0..=INTERMEDIATES {
        let token = domain.mint();
        let mut request = enrollment(&mut domain, token);
        let chain = vec![domain.intermediate(&format!("ca-{number}"))];
        request.prepared.as_mut().unwrap().certificate.external.as_mut().unwrap().chain = chain;
        let expect = if number < INTERMEDIATES { granted(&["host.enrolled"]) } else { refused("try_again") };
        check(&mut domain, (Actor::Stranger, command(&request)), expect);
    }
}

#[test]
fn another_address_or_key_changes_the_issuer_and_another_root_is_another_issuer() {
    let mut domain = Domain::step_ca();
    let token = domain.mint();
    let request = enrollment(&mut domain, token);
    check(&mut domain, (Actor::Stranger, command(&request)), granted(&["host.enrolled"]));
    let first = domain.state.step_ca_issuer().expect("signs").0.clone();
    let change = |new: &NewStepCa| Command::ChangeStepCa(Box::new(new.clone()));
    let mut moved = domain.new_step_ca();
    moved.issuer.fingerprint = first.fingerprint;
    moved.issuer.sealed_key = b"sealed anew".to_vec();
    moved.access.url = "https://ca-2.example".to_owned();
    check(&mut domain, (local(), change(&moved)), granted(&["ca.step_ca_changed"]));
    let (signs, step_ca) = domain.state.step_ca_issuer().expect("signs");
    assert_eq!((&signs.id, &step_ca.access), (&first.id, &moved.access));
    assert_eq!(step_ca.intermediates.len(), 1, "what it has signed stays good");
    let mut another = domain.new_step_ca();
    another.issuer.id = issuer("c2");
    check(&mut domain, (local(), change(&another)), granted(&["ca.step_ca_changed"]));
    assert_eq!(domain.state.step_ca_issuer().expect("signs").0.id, another.issuer.id);
    assert_eq!(domain.state.issuers[&first.id].state, IssuerState::Retiring);
    assert!(domain.state.certificates.keys().all(|serial| domain.state.is_good(serial)));
    // Back to the first one.
    check(&mut domain, (local(), change(&moved)), granted(&["ca.step_ca_changed"]));
    assert_eq!(domain.state.step_ca_issuer().expect("signs").0.id, first.id);
}

#[test]
fn what_is_no_step_ca_is_not_taken_for_one() {
    let mut domain = Domain::step_ca();
    let good = domain.new_step_ca();
    let flaws: [fn(&mut NewStepCa); 5] = [
        |new| new.issuer.sealed_key.clear(),
        |new| new.access.url.clear(),
        |new| new.issuer.not_after = Timestamp::from_secs(1),
        // The id of another CA, and the certificate of another.
        |new| new.issuer.id = issuer("n1"),
        |new| new.access.provisioner = "x".repeat(1000),
    ];
    for flaw in flaws {
        let mut new = good.clone();
        flaw(&mut new);
        check(&mut domain, (local(), Command::ChangeStepCa(Box::new(new))), refused("issuer_invalid"));
    }
    let mut other = Domain::founded();
    let new = other.new_step_ca();
    check(&mut other, (local(), Command::ChangeStepCa(Box::new(new))), refused("issuer_invalid"));
    // Not more roots than can be looked at.
    for number in 0..INTERMEDIATES {
        let mut new = domain.new_step_ca();
        new.issuer.id = issuer(&format!("r{number}"));
        let expected = if number + 1 < INTERMEDIATES { None } else { Some("too_many_issuers") };
        let answer = domain.give(local(), Command::ChangeStepCa(Box::new(new))).answer;
        assert_eq!(answer.err().map(|refused| refused.code()), expected, "{number}");
    }
}
