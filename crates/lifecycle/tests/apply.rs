//! Once is once, and time goes one way.

use crate::support::{
    Domain, START, check, create_tenant, granted, local, refused, set_policy, span, tenant,
};
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::{Actor, Command, Outcome, would_apply};

#[test]
fn before_the_domain_is_founded_nothing_else_is_possible() {
    let mut domain = Domain::unfounded();
    check(&mut domain, (local(), create_tenant("acme")), refused("not_founded"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), refused("not_founded"));
    let found = domain.found();
    for actor in [Actor::Stranger, Actor::Reconciler] {
        check(&mut domain, (actor, found.clone()), refused("forbidden"));
    }
    check(&mut domain, (local(), found), granted(&["domain.founded"]));
}

#[test]
fn a_domain_is_founded_once() {
    let mut domain = Domain::founded();
    let found = domain.found();
    check(&mut domain, (local(), found), refused("already_founded"));
}

#[test]
fn a_domain_is_not_founded_on_what_cannot_hold() {
    fn bad(code: &'static str, change: impl FnOnce(&mut lifecycle::registry::InitializeDomain)) {
        let mut domain = Domain::unfounded();
        let Command::InitializeDomain(mut found) = domain.found() else { unreachable!() };
        change(&mut found);
        check(&mut domain, (local(), Command::InitializeDomain(found)), refused(code));
    }
    bad("profile_not_found", |found| found.default_profile = crate::support::profile("nothing"));
    // Bits below the prefix would make two nodes share an address.
    bad("try_again", |found| found.overlay_prefix = "fd12:3456:789a::1".parse().unwrap());
    bad("try_again", |found| found.issuer.not_after = found.root_not_after.plus(span("1s")));
}

#[test]
fn the_same_envelope_twice_answers_the_same_and_changes_nothing() {
    let mut domain = Domain::founded();
    let create = domain.token_request();
    let commands =
        [create_tenant("acme"), create_tenant("default"), Command::CreateToken(create), set_policy("x", "y")];
    for command in commands {
        let envelope = domain.envelope(local(), command);
        let first = domain.step(&envelope);
        domain.pass(span("119s"));
        let revision = domain.state.revision;
        let second = domain.step(&envelope);
        assert_eq!((second.answer, second.events.len()), (first.answer, 0));
        assert_eq!(domain.state.revision, revision);
    }
}

#[test]
fn the_same_enrollment_envelope_twice_is_one_enrollment_and_no_repeat() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let request = domain.request(token);
    let request = domain.prepare(request);
    let envelope = domain.envelope(Actor::Stranger, Command::Enroll(Box::new(request)));
    let (first, second) = (domain.step(&envelope), domain.step(&envelope));
    assert!(matches!(first.answer, Ok(Outcome::Enrolled { replayed: false, .. })));
    assert_eq!((second.answer, second.events.len()), (first.answer, 0));
}

#[test]
fn an_id_older_than_two_minutes_is_refused() {
    for (age, refused) in [(120_000, false), (120_001, true)] {
        let mut domain = Domain::founded();
        domain.pass(span("1h"));
        let drawn = domain.now.minus(Span::from_millis(age));
        let envelope = domain.envelope_drawn_at(drawn, local(), create_tenant("acme"));
        let answer = domain.step(&envelope).answer;
        assert_eq!(answer.map_err(|rejection| rejection.code()).err(), refused.then_some("request_too_old"));
        assert_eq!(domain.state.tenants.contains_key(&tenant("acme")), !refused);
    }
}

#[test]
fn an_id_is_never_applied_again_however_late_it_returns() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let envelope = domain.envelope(local(), Command::RevokeToken { token: token.id });
    domain.step(&envelope);
    for step in 0..6 {
        domain.pass(span("40s"));
        check(&mut domain, (local(), create_tenant(&format!("t{step}"))), granted(&["tenant.created"]));
        let again = domain.step(&envelope);
        assert!(again.events.is_empty());
    }
}

#[test]
fn answers_are_remembered_for_two_minutes_and_then_forgotten() {
    let mut domain = Domain::founded();
    for step in 0..10 {
        domain.pass(span("30s"));
        check(&mut domain, (local(), create_tenant(&format!("t{step}"))), granted(&["tenant.created"]));
    }
    assert_eq!(domain.state.recent.len(), 5);
}

#[test]
fn time_never_runs_backwards() {
    let mut domain = Domain::founded();
    domain.pass(span("1h"));
    domain.mint();
    let later = domain.now;
    for earlier in [START, Timestamp::from_millis(0), later.minus(Span::from_millis(1))] {
        domain.now = earlier;
        let envelope = domain.envelope_drawn_at(later, Actor::Reconciler, Command::Tidy);
        domain.step(&envelope);
        assert_eq!(domain.state.at, later);
    }
}

#[test]
fn a_token_that_expired_does_not_come_back_with_an_earlier_clock() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let request = domain.request(token);
    let request = domain.prepare(request);
    domain.pass(span("2h"));
    let late = domain.now;
    check(&mut domain, (local(), create_tenant("acme")), granted(&["tenant.created"]));
    domain.now = START;
    let envelope = domain.envelope_drawn_at(late, Actor::Stranger, Command::Enroll(Box::new(request)));
    assert_eq!(domain.step(&envelope).answer.map_err(|rejection| rejection.code()), Err("token_expired"));
}

#[test]
fn asking_what_would_happen_changes_nothing_and_is_true() {
    let mut domain = Domain::founded();
    let envelope = domain.envelope(local(), create_tenant("acme"));
    let before = domain.state.clone();
    assert_eq!(would_apply(&domain.state, &envelope, domain.now), (Ok(Outcome::Done), true));
    assert_eq!(domain.state, before);
    domain.step(&envelope);
    // Given before: the same answer, and no change.
    assert_eq!(would_apply(&domain.state, &envelope, domain.now), (Ok(Outcome::Done), false));
}
