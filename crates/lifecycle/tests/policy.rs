//! Changing policy.

use crate::support::{Domain, check, enroll, granted, local, profile, refused, set_policy, span};
use lifecycle::registry::Event;
use lifecycle::registry::event;

#[test]
fn a_change_of_policy_tells_the_old_and_the_new() {
    let mut domain = Domain::founded();
    let when = (local(), set_policy("profile.default.lifetime", "2h"));
    let events = check(&mut domain, when, granted(&["policy.changed"]));
    let change = Event::PolicyChanged(event::PolicyChanged {
        key: "profile.default.lifetime".to_owned(),
        old: Some("1d".to_owned()),
        new: "2h".to_owned(),
    });
    assert_eq!(events, [change]);
    assert_eq!(domain.state.policy.profiles[&profile("default")].lifetime, span("2h"));
}

#[test]
fn setting_what_is_set_changes_nothing() {
    let mut domain = Domain::founded();
    for (key, value) in domain.state.policy.list() {
        check(&mut domain, (local(), set_policy(&key, &value)), granted(&[]));
    }
}

#[test]
fn a_key_that_does_not_exist_is_named() {
    let mut domain = Domain::founded();
    for key in ["", "token", "token.min_ttl", "profile.default", "profile.default.colour", "profile..cn"] {
        check(&mut domain, (local(), set_policy(key, "1")), refused("policy_key_unknown"));
    }
}

#[test]
fn a_value_out_of_bounds_is_refused() {
    let mut domain = Domain::founded();
    for (key, value) in [
        ("attestors", ""),
        ("attestors", "join-token,magic"),
        ("enroll.max_per_minute", "-1"),
        ("enroll.max_per_minute", "1000001"),
        ("failures.per_minute", "many"),
        ("overlay.cooldown", "0s"),
        ("token.default_ttl", "9s"),
        ("token.default_ttl", "25h"),
        ("token.max_ttl", "9s"),
        ("token.max_ttl", "25h"),
        ("profile.default.lifetime", "59s"),
        ("profile.default.lifetime", "91d"),
        ("profile.default.renew_at", "1/1"),
        ("profile.default.renew_before", "0s"),
        ("profile.default.keys", "p256,dsa"),
        ("profile.default.keys", ""),
        ("profile.default.cn", "tab\there"),
    ] {
        check(&mut domain, (local(), set_policy(key, value)), refused("policy_value_invalid"));
    }
}

#[test]
fn the_longest_token_life_is_never_raised_again() {
    let mut domain = Domain::founded();
    domain.policy("token.max_ttl", "2h");
    check(&mut domain, (local(), set_policy("token.max_ttl", "3h")), refused("policy_value_invalid"));
    check(&mut domain, (local(), set_policy("token.default_ttl", "3h")), refused("policy_value_invalid"));
}

#[test]
fn a_domain_has_at_most_64_profiles() {
    let mut domain = Domain::founded();
    let room = 64 - domain.state.policy.profiles.len();
    for number in 0..room {
        domain.policy(&format!("profile.p{number}.lifetime"), "1h");
    }
    let one_more = (local(), set_policy("profile.more.lifetime", "1h"));
    check(&mut domain, one_more, refused("policy_value_invalid"));
    domain.policy("profile.p0.lifetime", "2h");
}

#[test]
fn a_certificate_prepared_before_its_profile_was_shortened_is_prepared_again() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let request = domain.request(token);
    let request = domain.prepare(request);
    domain.policy("profile.default.lifetime", "1h");
    check(&mut domain, enroll(request), refused("try_again"));
    domain.enroll_with(token, |_| ());
}
