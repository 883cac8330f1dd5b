//! A node that has lost the use of its certificate, and the token that brings it back.

use crate::support::{
    Domain, Enrolled, check, confirm_keeping, contact, granted, keeping, local, node, profile, recover,
    refused, refused_with, set_policy, span,
};
use lifecycle::names::{KeyHash, KeyKind, Label, Source, TokenId};
use lifecycle::registry::{
    Actor, AlertKind, Command, DeniedSighting, Door, Keeping, Mint, NodeState, Outcome, Recover,
    RecoveryState, Refusals, RefusedRecovery, Sighting,
};

const RECOVERED: &[&str] = &["recovery.requested", "recovery.issued"];
const ROTATED: &[&str] = &["recovery_token.rotated"];
const KEPT: &[&str] = &["recovery_token.kept"];

fn mint(by: &Enrolled, kept: Option<TokenId>, mint: Option<Mint>) -> (Actor, Command) {
    let keeping = keeping(kept, mint);
    (by.actor(), Command::MintRecovery { node: by.node.clone(), keeping })
}

fn enroll_by(domain: &mut Domain, door: Door, named: Option<&str>) -> Enrolled {
    let token = domain.mint_with(|create| create.profile = named.map(profile));
    domain.enroll_with(token, |request| request.door = door)
}

fn state_of(domain: &Domain, by: &Enrolled, token: Mint) -> Option<RecoveryState> {
    domain.state.nodes[&by.node].recovery.token(token.token).map(|token| token.state.clone())
}

fn valid(domain: &Domain, by: &Enrolled) -> usize {
    domain.state.nodes[&by.node].recovery.tokens.iter().filter(|token| token.is_valid()).count()
}

/// A node with a token that it has kept, whose certificate has ended.
fn expired() -> (Domain, Enrolled, Mint) {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    check(&mut domain, confirm_keeping(&node, Some(token.token), None), granted(KEPT));
    domain.pass(span("25h"));
    (domain, node, token)
}

#[test]
fn an_expired_node_recovers_and_all_it_had_is_denied() {
    let (mut domain, old, token) = expired();
    let request = domain.recovery(token.hash);
    let serial = request.prepared.as_ref().unwrap().certificate.serial.clone();
    check(&mut domain, recover(request), granted(RECOVERED));
    assert_eq!(domain.state.nodes[&old.node].state, NodeState::Enrolled);
    assert!(domain.state.is_denied(&old.serial) && domain.state.is_good(&serial));
    let new = Enrolled { serial: serial.clone(), ..old };
    let back = &["host.confirmed", "host.active", "recovery.resolved", "certificate.seen"];
    check(&mut domain, contact(&new), granted(back));
    check(&mut domain, contact(&new), granted(&[]));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), refused("token_used"));
}

#[test]
fn the_same_token_and_key_get_the_same_certificate_until_it_is_seen() {
    let (mut domain, old, token) = expired();
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request.clone()), granted(RECOVERED));
    let serial = domain.state.nodes[&old.node].current_serial().unwrap().clone();
    let again = domain.give(Actor::Stranger, Command::Recover(Box::new(request.clone())));
    let outcome = Outcome::Recovered { node: old.node.clone(), serial: serial.clone(), replayed: true };
    assert_eq!((again.answer, again.events), (Ok(outcome), Vec::new()));
    let other = Recover { key: KeyHash::new([7; 32]), ..request.clone() };
    check(&mut domain, recover(other), refused("token_used"));
    domain.give(Actor::Node { id: old.node.clone(), serial }, Command::Contact { node: old.node.clone() });
    check(&mut domain, recover(request), refused("token_used"));
}

#[test]
fn a_certificate_that_ended_before_it_was_shown_is_issued_again_for_the_same_key() {
    let (mut domain, old, token) = expired();
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request.clone()), granted(RECOVERED));
    let first = domain.state.nodes[&old.node].current_serial().unwrap().clone();
    domain.pass(span("25h"));
    let stranger = domain.recovery(token.hash);
    let stranger = Recover { key: KeyHash::new([7; 32]), ..stranger };
    check(&mut domain, recover(stranger), refused("token_used"));
    let anew = domain.recovery_for(token.hash, request.key);
    check(&mut domain, recover(anew), granted(RECOVERED));
    let second = domain.state.nodes[&old.node].current_serial().unwrap().clone();
    assert!(second != first && domain.state.is_denied(&first) && domain.state.is_good(&second));
    domain.pass(span("91d"));
    let late = domain.recovery_for(token.hash, request.key);
    check(&mut domain, recover(late), refused("token_expired"));
}

#[test]
fn two_are_valid_until_the_newer_is_kept() {
    let (mut domain, node, first) = expired_not();
    let (second, third) = (domain.drawn(), domain.drawn());
    domain.pass(span("46d"));
    let node = renewed(&mut domain, node);
    // The first is kept and stays beside the second.
    check(&mut domain, mint(&node, Some(first.token), Some(second)), granted(ROTATED));
    assert_eq!(valid(&domain, &node), 2);
    // The second was lost on its way: the third takes its place, and the first is still good.
    domain.pass(span("10s"));
    check(&mut domain, mint(&node, Some(first.token), Some(third)), granted(ROTATED));
    assert_eq!(state_of(&domain, &node, second), Some(RecoveryState::Superseded));
    assert_eq!(valid(&domain, &node), 2);
    check(&mut domain, mint(&node, Some(third.token), None), granted(KEPT));
    assert_eq!(state_of(&domain, &node, first), Some(RecoveryState::Superseded));
    assert_eq!(valid(&domain, &node), 1);
    check(&mut domain, mint(&node, Some(third.token), None), granted(&[]));
    check(&mut domain, mint(&node, Some(first.token), None), granted(&[]));
    assert_eq!(valid(&domain, &node), 1);
}

/// A node with a token that it has kept and a certificate that lasts for the time of a test.
fn expired_not() -> (Domain, Enrolled, Mint) {
    let mut domain = Domain::founded();
    check(
        &mut domain,
        (local(), set_policy("profile.default.lifetime", "90d")),
        granted(&["policy.changed"]),
    );
    let (node, token) = domain.provided();
    check(&mut domain, confirm_keeping(&node, Some(token.token), None), granted(KEPT));
    (domain, node, token)
}

fn renewed(domain: &mut Domain, node: Enrolled) -> Enrolled {
    let new = domain.renew(&node);
    check(domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    new
}

#[test]
fn a_token_lasts_until_it_is_half_over_and_a_renewal_always_brings_the_next() {
    let (mut domain, node, token) = expired_not();
    let next = domain.drawn();
    domain.pass(span("44d"));
    check(&mut domain, confirm_keeping(&node, Some(token.token), Some(next)), granted(&[]));
    let key = KeyHash::new(domain.digest());
    let mut renewal = domain.renewal(&node.node, key);
    renewal.keeping = keeping(Some(token.token), Some(next));
    let events = &["certificate.renewed", "recovery_token.rotated"];
    check(&mut domain, (node.actor(), Command::Renew(Box::new(renewal.clone()))), granted(events));
    // Its answer was lost. Asked again at once, no other is minted; a little later one is.
    let later = domain.drawn();
    renewal.keeping.mint = Some(later);
    check(&mut domain, (node.actor(), Command::Renew(Box::new(renewal.clone()))), granted(&[]));
    domain.pass(span("10s"));
    check(&mut domain, (node.actor(), Command::Renew(Box::new(renewal))), granted(ROTATED));
    assert!(domain.state.nodes[&node.node].recovery.token(token.token).unwrap().is_valid());
}

#[test]
fn a_host_that_has_lost_its_token_is_given_another() {
    let (mut domain, node, _) = expired_not();
    domain.pass(span("10s"));
    let next = domain.drawn();
    check(&mut domain, mint(&node, None, Some(next)), granted(ROTATED));
    // In a loop, one in ten seconds.
    let more = domain.drawn();
    check(&mut domain, mint(&node, None, Some(more)), granted(&[]));
}

#[test]
fn a_superseded_certificate_is_given_nothing_and_ends_nothing() {
    let (mut domain, old, _) = expired_not();
    let next = domain.drawn();
    domain.pass(span("46d"));
    let new = renewed(&mut domain, old.clone());
    check(&mut domain, mint(&new, None, Some(next)), granted(ROTATED));
    domain.pass(span("10s"));
    let stolen = domain.drawn();
    check(&mut domain, mint(&old, None, Some(stolen)), granted(&[]));
    check(&mut domain, confirm_keeping(&old, Some(next.token), Some(stolen)), granted(&[]));
    assert_eq!(state_of(&domain, &new, next), Some(RecoveryState::Valid { kept: false }));
    check(&mut domain, mint(&new, Some(next.token), None), granted(KEPT));
}

#[test]
fn signs_of_life_say_what_is_kept() {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    let heard = Sighting { recovery_kept: Some(token.token), ..domain.sighting(&node.node) };
    let events = &["host.seen", "recovery_token.kept"];
    let twice = Command::Observe(vec![heard.clone(), heard.clone()]);
    let applied = domain.give(Actor::Reconciler, twice);
    assert_eq!(applied.events.iter().filter(|event| event.name() == events[1]).count(), 1);
    check(&mut domain, (Actor::Reconciler, Command::Observe(vec![heard])), granted(&[]));
}

#[test]
fn a_node_in_quarantine_is_given_none_and_cannot_use_what_it_has() {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    let quarantine = Command::Quarantine { node: node.node.clone(), reason: "odd".to_owned() };
    check(&mut domain, (local(), quarantine), granted(&["host.quarantined"]));
    domain.pass(span("1h"));
    let more = domain.drawn();
    check(&mut domain, mint(&node, None, Some(more)), granted(&[]));
    domain.pass(span("24h"));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request.clone()), refused("node_quarantined"));
    let release = Command::Release { node: node.node.clone() };
    check(&mut domain, (local(), release), granted(&["host.released"]));
    check(&mut domain, recover(request), granted(RECOVERED));
}

#[test]
fn a_node_that_has_not_confirmed_is_given_none() {
    let mut domain = Domain::founded();
    let node = domain.enroll();
    let token = domain.drawn();
    check(&mut domain, mint(&node, None, Some(token)), granted(&[]));
}

#[test]
fn a_node_that_is_well_does_not_recover_and_an_operator_is_told_once_a_minute() {
    let mut domain = Domain::founded();
    let (well, token) = domain.provided();
    let told = || refused_with("recovery_not_needed", &["alert.raised"]);
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request.clone()), told());
    check(&mut domain, recover(request.clone()), refused("recovery_not_needed"));
    domain.pass(span("1m"));
    check(&mut domain, recover(request), told());
    let alert = domain.state.open_alert(AlertKind::RecoveryNotNeeded, Some(&well.node)).unwrap();
    assert_eq!((alert.count, domain.state.alerts.len()), (2, 1));
    // Silent for the grace period, it may need it. What a replica heard since counts.
    domain.pass(span("4m"));
    let request = domain.recovery(token.hash);
    let heard = Recover { heard: Some(domain.now), ..request.clone() };
    check(&mut domain, recover(heard), told());
    check(&mut domain, recover(request), granted(RECOVERED));
}

#[test]
fn a_token_of_another_node_an_unknown_one_and_one_that_is_over_are_refused() {
    let (mut domain, _, token) = expired();
    let request = domain.recovery(token.hash);
    let other = Recover { node: Some(node("someone-else")), ..request.clone() };
    check(&mut domain, recover(other), refused("not_your_node"));
    let unknown = domain.drawn();
    let unknown = Recover { token: unknown.hash, ..request.clone() };
    check(&mut domain, recover(unknown), refused("token_invalid"));
    let ed = Recover { key_kind: KeyKind::Ed25519, ..request.clone() };
    domain.policy("profile.default.keys", "p256");
    check(&mut domain, recover(ed), refused("key_kind_not_allowed"));
    domain.policy("attestors", "join-token");
    check(&mut domain, recover(request.clone()), refused("attestor_not_allowed"));
    domain.policy("attestors", "join-token,recovery-token");
    check(&mut domain, recover(Recover { prepared: None, ..request }), refused("try_again"));
    domain.pass(span("90d"));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), refused("token_expired"));
}

#[test]
fn the_key_of_another_node_is_refused() {
    let (mut domain, _, token) = expired();
    let other = domain.enroll();
    let mut request = domain.recovery(token.hash);
    request.key = domain.state.certificates[&other.serial].key;
    check(&mut domain, recover(request), refused("key_in_use"));
}

#[test]
fn a_node_that_is_gone_or_begins_anew_leaves_its_tokens_behind() {
    for end in [NodeState::Revoked, NodeState::Decommissioned] {
        let (mut domain, old, token) = expired();
        domain.end(&old.node, end);
        let request = domain.recovery(token.hash);
        check(&mut domain, recover(request.clone()), refused("node_revoked"));
        let reinstate = Command::Reinstate { node: old.node.clone(), as_registered: true };
        check(&mut domain, (local(), reinstate), granted(&["host.reinstated"]));
        check(&mut domain, recover(request), refused("token_revoked"));
    }
    let (mut domain, old, token) = expired();
    let pinned = domain.mint_pinned(&old.node);
    domain.enroll_with(pinned, |_| ());
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), refused("token_revoked"));
}

#[test]
fn using_either_of_two_ends_both_and_the_last_few_are_remembered() {
    let (mut domain, node, first) = expired_not();
    domain.pass(span("50d"));
    let second = domain.drawn();
    check(&mut domain, mint(&node, Some(first.token), Some(second)), granted(ROTATED));
    let request = domain.recovery(first.hash);
    check(&mut domain, recover(request), granted(RECOVERED));
    let request = domain.recovery(second.hash);
    check(&mut domain, recover(request), refused("token_superseded"));
    let serial = domain.state.nodes[&node.node].current_serial().unwrap().clone();
    let node = Enrolled { serial, ..node };
    for _ in 0..9 {
        domain.pass(span("10s"));
        let next = domain.drawn();
        domain.give(node.actor(), confirm_keeping(&node, None, Some(next)).1);
    }
    let record = &domain.state.nodes[&node.node].recovery.tokens;
    assert_eq!(record.iter().filter(|token| !token.is_valid()).count(), 4);
    let request = domain.recovery(first.hash);
    check(&mut domain, recover(request), refused("token_invalid"));
}

#[test]
fn a_node_that_was_enrolled_without_recovery_is_given_no_token() {
    for (door, profile_name, minted) in [
        (Door::Native, None, true),
        (Door::Native, Some("probectl"), false),
        (Door::Plfm, Some("default"), false),
        (Door::Probectl, None, false),
        (Door::Taskrun, None, false),
    ] {
        let mut domain = Domain::founded();
        let node = enroll_by(&mut domain, door, profile_name);
        let token = domain.drawn();
        check(&mut domain, contact(&node), granted(&["host.confirmed", "host.active", "certificate.seen"]));
        let expected: &[&str] = if minted { ROTATED } else { &[] };
        check(&mut domain, mint(&node, None, Some(token)), granted(expected));
        check(&mut domain, confirm_keeping(&node, None, Some(token)), granted(&[]));
        assert_eq!(
            domain.state.nodes[&node.node].keeps_recovery_tokens(),
            minted,
            "{door:?} {profile_name:?}"
        );
    }
}

#[test]
fn a_node_that_keeps_its_identity_in_memory_is_given_no_token() {
    let mut domain = Domain::founded();
    let token = domain.mint_with(|_| {});
    let node = domain.enroll_with(token, |request| request.memory_storage = true);
    check(&mut domain, contact(&node), granted(&["host.confirmed", "host.active", "certificate.seen"]));
    let recovery = domain.drawn();
    check(&mut domain, mint(&node, None, Some(recovery)), granted(&[]));
    check(&mut domain, confirm_keeping(&node, None, Some(recovery)), granted(&[]));
    assert!(!domain.state.nodes[&node.node].keeps_recovery_tokens());
}

#[test]
fn a_request_of_before_names_no_recovery_profile_and_is_answered_as_before() {
    let mut domain = Domain::founded();
    let node = enroll_by(&mut domain, Door::Probectl, None);
    check(&mut domain, contact(&node), granted(&["host.confirmed", "host.active", "certificate.seen"]));
    let keeping = Keeping { mint: Some(domain.drawn()), ..Keeping::default() };
    let command = Command::MintRecovery { node: node.node.clone(), keeping };
    let events = domain.give(node.actor(), command).events;
    assert_eq!(events.iter().map(lifecycle::registry::Event::name).collect::<Vec<_>>(), ROTATED);
}

#[test]
fn a_token_is_good_under_its_own_recovery_profile_only() {
    let (mut domain, _, token) = expired();
    let request = domain.recovery(token.hash);
    let under = |name: &str| Recover { profile: Label::parse(name).ok(), ..request.clone() };
    check(&mut domain, recover(under("elsewhere")), refused("token_invalid"));
    check(&mut domain, recover(under("default")), granted(RECOVERED));
}

#[test]
fn a_token_is_due_when_the_recovery_profile_is_another_one() {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    let next = domain.drawn();
    check(&mut domain, mint(&node, Some(token.token), Some(next)), granted(KEPT));
    let profile = Label::parse("site-b").ok();
    let keeping = Keeping { kept: Some(token.token), mint: Some(next), profile };
    check(
        &mut domain,
        (node.actor(), Command::MintRecovery { node: node.node.clone(), keeping }),
        granted(ROTATED),
    );
}

#[test]
fn revoked_tokens_are_refused_and_the_node_may_have_another() {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    let revoke = || (local(), Command::RevokeRecoveryTokens { node: node.node.clone() });
    check(&mut domain, revoke(), granted(&["recovery_token.revoked"]));
    check(&mut domain, revoke(), granted(&[]));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), refused("token_revoked"));
    let next = domain.drawn();
    check(&mut domain, mint(&node, Some(token.token), Some(next)), granted(ROTATED));
    assert_eq!(valid(&domain, &node), 1);
}

/// A log of before is applied as it was: only who asks now is refused.
#[test]
fn a_token_that_was_given_to_a_node_without_recovery_is_worth_nothing() {
    for door in [Door::Plfm, Door::Probectl, Door::Taskrun] {
        let mut domain = Domain::founded();
        let node = enroll_by(&mut domain, door, None);
        let token = domain.drawn();
        domain.give(node.actor(), contact(&node).1);
        let keeping = Keeping { kept: None, mint: Some(token), profile: None };
        let given = (node.actor(), Command::MintRecovery { node: node.node.clone(), keeping });
        check(&mut domain, given, granted(ROTATED));
        domain.pass(span("89d"));
        let request = domain.recovery(token.hash);
        let now = Recover { strict: true, ..request.clone() };
        check(&mut domain, recover(now), refused("token_invalid"));
        check(&mut domain, recover(request), granted(RECOVERED));
    }
}

#[test]
fn a_revoked_token_whose_certificate_nobody_has_shown_gives_no_other() {
    let (mut domain, old, token) = expired();
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request.clone()), granted(RECOVERED));
    let revoke = || (local(), Command::RevokeRecoveryTokens { node: old.node.clone() });
    check(&mut domain, revoke(), granted(&["recovery_token.revoked"]));
    check(&mut domain, revoke(), granted(&[]));
    check(&mut domain, recover(request.clone()), refused("token_revoked"));
    domain.pass(span("25h"));
    let again = Recover { key: request.key, ..domain.recovery(token.hash) };
    check(&mut domain, recover(again), refused("token_revoked"));
}

#[test]
fn every_token_that_was_not_needed_is_counted_in_the_alert() {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    let request = Recover { strict: true, ..domain.recovery(token.hash) };
    check(&mut domain, recover(request), refused("recovery_not_needed"));
    for count in [1, 20] {
        let refusals = Refusals {
            reason: "recovery_not_needed".to_owned(),
            network: None,
            count,
            samples: Vec::new(),
            recovery: Some(RefusedRecovery { node: Some(node.node.clone()) }),
            alert: Some(AlertKind::RecoveryNotNeeded),
            renewal: None,
        };
        let command = (Actor::Reconciler, Command::RecordRefusals(refusals));
        check(&mut domain, command, granted(&["recovery.refused", "alert.raised"]));
    }
    let alert = domain.state.open_alert(AlertKind::RecoveryNotNeeded, Some(&node.node)).unwrap();
    assert_eq!(alert.count, 21);
}

#[test]
fn a_denied_certificate_that_comes_back_raises_an_alert_that_counts() {
    let (mut domain, old, token) = expired();
    let seen = |serial: &lifecycle::names::Serial, count| {
        let (node, serial, source) = (old.node.clone(), serial.clone(), Source::Internal);
        let seen = DeniedSighting { node, serial, source, count, of_gone_nodes: true };
        (Actor::Reconciler, Command::RecordDeniedCertificate(seen))
    };
    check(&mut domain, seen(&old.serial, 1), granted(&[]));
    let request = domain.recovery(token.hash);
    let new = request.prepared.as_ref().unwrap().certificate.serial.clone();
    check(&mut domain, recover(request), granted(RECOVERED));
    check(&mut domain, seen(&new, 1), granted(&[]));
    for count in [1, 4] {
        check(&mut domain, seen(&old.serial, count), granted(&["alert.raised"]));
    }
    let kind = AlertKind::DeniedCertificateSeen;
    let alert = domain.state.open_alert(kind, Some(&old.node)).unwrap();
    assert_eq!(alert.count, 5);
    assert!(alert.detail.contains(old.serial.as_str()), "{}", alert.detail);
    domain.pass(span("2d"));
    domain.give(Actor::Reconciler, Command::Tidy);
    let id = domain.state.open_alert(kind, Some(&old.node)).expect("nobody has looked at it").id;
    check(
        &mut domain,
        (local(), Command::AcknowledgeAlert { alert: id, dated: true }),
        granted(&["alert.acknowledged"]),
    );
    domain.pass(span("25h"));
    domain.give(Actor::Reconciler, Command::Tidy);
    assert!(domain.state.open_alert(kind, Some(&old.node)).is_none());
}

#[test]
fn the_certificate_of_a_revoked_node_that_comes_back_raises_an_alert_that_counts() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let seen = |of_gone_nodes| {
        let (id, serial, source) = (node.node.clone(), node.serial.clone(), Source::Internal);
        let seen = DeniedSighting { node: id, serial, source, count: 1, of_gone_nodes };
        (Actor::Reconciler, Command::RecordDeniedCertificate(seen))
    };
    check(&mut domain, seen(true), granted(&[]));
    domain.end(&node.node, NodeState::Revoked);
    // As the log holds it from programs that reported replaced certificates alone.
    check(&mut domain, seen(false), granted(&[]));
    for count in [1, 2] {
        check(&mut domain, seen(true), granted(&["alert.raised"]));
        let alert = domain.state.open_alert(AlertKind::DeniedCertificateSeen, Some(&node.node)).unwrap();
        assert_eq!(alert.count, count);
    }
}
