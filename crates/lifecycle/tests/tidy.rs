//! Forgetting what can no longer matter.

use crate::support::{Domain, check, enroll, granted, local, refused, span};
use lifecycle::registry::event;
use lifecycle::registry::{Actor, Command, Event, Role, Tenants, TokenState};

fn tidy() -> (Actor, Command) {
    (Actor::Reconciler, Command::Tidy)
}

#[test]
fn nothing_to_tidy_is_no_event() {
    let mut domain = Domain::founded();
    domain.mint();
    domain.enroll();
    check(&mut domain, tidy(), granted(&[]));
}

#[test]
fn a_token_that_expired_unused_has_its_line_once() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.pass(span("1h"));
    check(&mut domain, tidy(), granted(&["enrollment_token.expired"]));
    assert_eq!(domain.state.tokens[&token.id].state, TokenState::Expired);
    check(&mut domain, tidy(), granted(&[]));
}

#[test]
fn what_has_ended_ends_without_being_forgotten() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.pass(span("30d"));
    let expire = || (Actor::Reconciler, Command::Expire);
    check(&mut domain, expire(), granted(&["enrollment_token.expired"]));
    check(&mut domain, expire(), granted(&[]));
    assert!(domain.state.tokens.contains_key(&token.id));
    check(&mut domain, tidy(), granted(&["registry.tidied"]));
}

#[test]
fn the_reason_of_a_refusal_stays_known_for_a_week_after_a_tokens_end() {
    let mut domain = Domain::founded();
    let (expired, used) = (domain.mint(), domain.mint());
    domain.enroll_with(used, |_| ());
    domain.pass(span("1h"));
    check(&mut domain, tidy(), granted(&["enrollment_token.expired"]));
    domain.pass(lifecycle::names::Span::from_millis(7 * 86_400_000 - 1));
    check(&mut domain, tidy(), granted(&[]));
    for (token, code) in [(expired, "token_expired"), (used, "token_used")] {
        let request = domain.request(token);
        check(&mut domain, enroll(request), refused(code));
    }
    domain.pass(lifecycle::names::Span::from_millis(1));
    check(&mut domain, tidy(), granted(&["registry.tidied"]));
    for token in [expired, used] {
        let request = domain.request(token);
        check(&mut domain, enroll(request), refused("token_invalid"));
    }
}

#[test]
fn a_certificate_is_forgotten_after_its_end_but_never_the_last_of_its_holder() {
    let mut domain = Domain::founded();
    let first = domain.enroll();
    let token = domain.mint_pinned(&first.node);
    let second = domain.enroll_with(token, |_| ());
    domain.pass(lifecycle::names::Span::from_millis(86_399_999));
    check(&mut domain, tidy(), granted(&[]));
    assert!(domain.state.is_denied(&first.serial));
    domain.pass(span("1s"));
    check(&mut domain, tidy(), granted(&["registry.tidied"]));
    assert!(!domain.state.certificates.contains_key(&first.serial));
    assert_eq!(domain.state.nodes[&first.node].serials, [second.serial]);
    check(&mut domain, tidy(), granted(&[]));
}

#[test]
fn a_removed_operators_certificate_is_denied_until_its_end() {
    let mut domain = Domain::founded();
    let alice = domain.operator("alice", Role::Viewer, Tenants::All);
    let Actor::Operator { name, serial } = alice else { unreachable!() };
    check(
        &mut domain,
        (local(), Command::RemoveOperator { name, keys_made: true }),
        granted(&["operator.removed"]),
    );
    domain.pass(span("29d"));
    check(&mut domain, tidy(), granted(&[]));
    assert!(domain.state.is_denied(&serial));
    domain.pass(span("1d"));
    check(&mut domain, tidy(), granted(&["registry.tidied"]));
    assert!(!domain.state.certificates.contains_key(&serial));
}

#[test]
fn a_key_is_forgotten_a_month_after_its_end() {
    let mut domain = Domain::founded();
    let (revoked, expired) = (domain.key(Role::Viewer, Tenants::All), domain.key(Role::Viewer, Tenants::All));
    let Actor::Key { id } = revoked else { unreachable!() };
    check(&mut domain, (local(), Command::RevokeOperatorKey { key: id }), granted(&["operator_key.revoked"]));
    domain.pass(span("30d"));
    check(&mut domain, tidy(), granted(&["registry.tidied"]));
    let left: Vec<_> = domain.state.operator_keys.keys().map(|id| Actor::Key { id: *id }).collect();
    assert_eq!(left, [expired]);
    domain.pass(span("1d"));
    check(&mut domain, tidy(), granted(&["registry.tidied"]));
    assert!(domain.state.operator_keys.is_empty() && domain.state.operator_key_by_hash.is_empty());
}

#[test]
fn one_entry_tidies_at_most_256_of_a_kind() {
    let mut domain = Domain::founded();
    for _ in 0..300 {
        domain.mint();
    }
    domain.pass(span("1h"));
    let count = |domain: &mut Domain| {
        let (actor, command) = tidy();
        domain.give(actor, command).events
    };
    assert_eq!([count(&mut domain).len(), count(&mut domain).len(), count(&mut domain).len()], [256, 44, 0]);
    domain.pass(span("7d"));
    for expected in [256, 44] {
        match count(&mut domain).as_slice() {
            [Event::Tidied(event::Tidied { tokens, .. })] => assert_eq!(tokens.len(), expected),
            other => panic!("{other:?}"),
        }
    }
    assert!(domain.state.tokens.is_empty());
}
