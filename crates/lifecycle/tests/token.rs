//! Minting and revoking tokens.

use crate::support::{
    Domain, Minted, check, confirm_ok, enroll, granted, local, only, profile, refused, span, tenant,
};
use lifecycle::names::{Source, Span, TenantId};
use lifecycle::registry::{
    Actor, Command, CreateToken, NodeConnection, NodeState, Role, Tenants, TokenState,
};

fn mint(domain: &mut Domain, change: impl FnOnce(&mut CreateToken)) -> Command {
    let mut create = domain.token_request();
    change(&mut create);
    Command::CreateToken(create)
}

fn revoke(token: Minted) -> Command {
    Command::RevokeToken { token: token.id }
}

#[test]
fn a_token_lives_an_hour_unless_told_otherwise() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    let record = &domain.state.tokens[&token.id];
    assert_eq!(record.expires_at.since(record.created_at), Span::from_hours(1));
    assert_eq!(record.created_by, "local:root");
    assert_eq!(record.word(record.created_at), "unused");
    assert_eq!(record.word(record.expires_at), "expired");
}

#[test]
fn a_token_lives_from_ten_seconds_to_a_day() {
    let millis = |millis| Some(Span::from_millis(millis));
    for (ttl, expect) in [
        (millis(0), refused("token_ttl_too_short")),
        (millis(9_999), refused("token_ttl_too_short")),
        (millis(10_000), granted(&["enrollment_token.created"])),
        (millis(86_400_000), granted(&["enrollment_token.created"])),
        (millis(86_400_001), refused("token_ttl_too_long")),
        (millis(u64::MAX), refused("token_ttl_too_long")),
    ] {
        let mut domain = Domain::founded();
        let command = mint(&mut domain, |create| create.ttl = ttl);
        check(&mut domain, (local(), command), expect);
    }
}

#[test]
fn policy_lowers_the_longest_token_life_and_the_usual_one_with_it() {
    let mut domain = Domain::founded();
    domain.policy("token.max_ttl", "5m");
    let token = domain.mint();
    let record = &domain.state.tokens[&token.id];
    assert_eq!(record.expires_at.since(record.created_at), Span::from_minutes(5));
    let command = mint(&mut domain, |create| create.ttl = Some(span("301s")));
    check(&mut domain, (local(), command), refused("token_ttl_too_long"));
}

#[test]
fn a_token_for_a_connected_node_must_be_meant_to_replace_it() {
    let mut domain = Domain::founded();
    let (active, enrolled) = (domain.active().node, domain.enroll().node);
    let connected = Some(NodeConnection { since: domain.now, from: Source::Socket });
    for (node, connected, replace, expect) in [
        (&active, connected, false, refused("node_connected")),
        (&active, connected, true, granted(&["enrollment_token.created"])),
        (&active, None, false, granted(&["enrollment_token.created"])),
        (&enrolled, connected, false, granted(&["enrollment_token.created"])),
    ] {
        let command = mint(&mut domain, |create| {
            (create.node, create.connected, create.replace) = (Some(node.clone()), connected, replace);
        });
        check(&mut domain, (local(), command), expect);
    }
}

#[test]
fn a_token_names_only_tenants_and_profiles_that_exist() {
    let mut domain = Domain::founded();
    let command = mint(&mut domain, |create| create.tenant = tenant("nowhere"));
    check(&mut domain, (local(), command), refused("tenant_not_found"));
    let command = mint(&mut domain, |create| create.profile = Some(profile("nothing")));
    check(&mut domain, (local(), command), refused("profile_not_found"));
}

#[test]
fn another_tenants_node_cannot_be_pinned_and_is_not_told_of() {
    let mut domain = Domain::founded();
    let acme = domain.tenant("acme");
    let theirs = domain.enroll();
    let operator = domain.operator("alice", Role::Operator, only(&["acme"]));
    let pin = mint(&mut domain, |create| {
        create.tenant = acme;
        create.node = Some(theirs.node);
    });
    check(&mut domain, (operator, pin.clone()), refused("node_not_found"));
    check(&mut domain, (local(), pin), refused("node_not_found"));
}

#[test]
fn a_node_that_is_gone_cannot_be_pinned() {
    for gone in [NodeState::Revoked, NodeState::Decommissioned] {
        let mut domain = Domain::founded();
        let enrolled = domain.enroll();
        domain.end(&enrolled.node, gone);
        let pin = mint(&mut domain, |create| create.node = Some(enrolled.node));
        check(&mut domain, (local(), pin), refused("node_revoked"));
    }
}

#[test]
fn an_id_or_a_value_is_minted_once() {
    let mut domain = Domain::founded();
    let first = domain.mint();
    let same_id = mint(&mut domain, |create| create.token = first.id);
    check(&mut domain, (local(), same_id), refused("try_again"));
    let same_value = mint(&mut domain, |create| create.hash = first.hash);
    check(&mut domain, (local(), same_value), refused("try_again"));
}

#[test]
fn revoking_twice_is_revoking_once() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    check(&mut domain, (local(), revoke(token)), granted(&["enrollment_token.revoked"]));
    assert!(matches!(domain.state.tokens[&token.id].state, TokenState::Revoked { .. }));
    domain.pass(span("1m"));
    check(&mut domain, (local(), revoke(token)), granted(&[]));
}

#[test]
fn a_used_token_is_past_revoking() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.enroll_with(token, |_| ());
    check(&mut domain, (local(), revoke(token)), refused("token_used"));
}

#[test]
fn an_expired_token_is_past_revoking_without_complaint() {
    let mut domain = Domain::founded();
    let token = domain.mint();
    domain.pass(span("2h"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&["enrollment_token.expired"]));
    check(&mut domain, (local(), revoke(token)), granted(&[]));
}

#[test]
fn an_unknown_token_cannot_be_revoked() {
    let mut domain = Domain::founded();
    let command = Command::RevokeToken { token: domain.token_request().token };
    check(&mut domain, (local(), command), refused("token_not_found"));
}

#[test]
fn a_tenants_operator_mints_and_revokes_there_and_nowhere_else() {
    let mut domain = Domain::founded();
    let acme = domain.tenant("acme");
    let theirs = domain.mint();
    for actor in [
        domain.operator("alice", Role::Operator, only(&["acme"])),
        domain.key(Role::Operator, only(&["acme"])),
    ] {
        let here = mint(&mut domain, |create| create.tenant = acme.clone());
        let Command::CreateToken(CreateToken { token, hash, .. }) = here else { unreachable!() };
        check(&mut domain, (actor.clone(), here), granted(&["enrollment_token.created"]));
        let own = revoke(Minted { id: token, hash });
        check(&mut domain, (actor.clone(), own), granted(&["enrollment_token.revoked"]));
        let there = mint(&mut domain, |create| create.tenant = TenantId::default_tenant());
        check(&mut domain, (actor.clone(), there), refused("tenant_not_found"));
        check(&mut domain, (actor.clone(), revoke(theirs)), refused("token_not_found"));
    }
}

#[test]
fn a_viewer_cannot_tell_another_tenants_token_from_none() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let theirs = domain.mint();
    let viewer = domain.operator("vera", Role::Viewer, only(&["acme"]));
    let none = Command::RevokeToken { token: domain.token_request().token };
    check(&mut domain, (viewer.clone(), revoke(theirs)), refused("forbidden"));
    check(&mut domain, (viewer, none), refused("forbidden"));
}

#[test]
fn who_minted_is_on_record() {
    let mut domain = Domain::founded();
    let alice = domain.operator("alice", Role::Operator, Tenants::All);
    let robot = domain.key(Role::Operator, Tenants::All);
    for (actor, name) in [(alice, "user:alice".to_owned()), (robot.clone(), robot.to_string())] {
        let command = mint(&mut domain, |_| ());
        let Command::CreateToken(CreateToken { token, .. }) = command else { unreachable!() };
        check(&mut domain, (actor, command), granted(&["enrollment_token.created"]));
        assert_eq!(domain.state.tokens[&token].created_by, name);
    }
}

#[test]
fn a_token_pinned_to_a_new_name_makes_that_node() {
    let mut domain = Domain::founded();
    let token = domain.mint_pinned(&crate::support::node("rack-7"));
    let enrolled = domain.enroll_with(token, |_| ());
    assert_eq!(enrolled.node.as_str(), "rack-7");
    check(
        &mut domain,
        (enrolled.actor(), confirm_ok(&enrolled.node)),
        granted(&["host.confirmed", "host.active", "certificate.seen"]),
    );
    check(&mut domain, enroll(enrolled.request), refused("token_used"));
}
