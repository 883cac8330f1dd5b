//! What wants an operator's attention.

use crate::support::{
    Domain, Enrolled, check, confirm_ok, granted, local, node, only, refused, revoke, span,
};
use lifecycle::names::{AlertId, Span};
use lifecycle::registry::{Actor, AlertKind, Command, NodeState, RaiseAlert, Role, Silence};

const RAISED: &[&str] = &["alert.raised"];

fn raise(kind: AlertKind, about: Option<&Enrolled>, detail: &str) -> (Actor, Command) {
    let node = about.map(|of| of.node.clone());
    (Actor::Reconciler, Command::RaiseAlert(RaiseAlert { kind, node, detail: detail.to_owned() }))
}

fn only_alert(domain: &Domain) -> AlertId {
    assert_eq!(domain.state.alerts.len(), 1);
    *domain.state.alerts.keys().next().unwrap()
}

#[test]
fn an_open_alert_counts_what_is_new_and_keeps_its_id() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for (detail, events, count) in [("one", RAISED, 1), ("one", &[], 1), ("two", RAISED, 2)] {
        check(&mut domain, raise(AlertKind::CloneSuspected, Some(&node), detail), granted(events));
        let alert = &domain.state.alerts[&only_alert(&domain)];
        assert_eq!((alert.count, alert.detail.as_str()), (count, detail));
    }
    check(&mut domain, raise(AlertKind::IssuerExpiring, None, "30 d"), granted(RAISED));
    assert_eq!(domain.state.alerts.len(), 2);
}

#[test]
fn acknowledging_and_clearing_twice_is_once() {
    let mut domain = Domain::founded();
    check(&mut domain, raise(AlertKind::IssuerExpiring, None, "30 d"), granted(RAISED));
    let alert = only_alert(&domain);
    let acknowledge = || (local(), Command::AcknowledgeAlert { alert, dated: true });
    let clear = || (Actor::Reconciler, Command::ClearAlert { alert });
    check(&mut domain, acknowledge(), granted(&["alert.acknowledged"]));
    check(&mut domain, acknowledge(), granted(&[]));
    check(&mut domain, raise(AlertKind::IssuerExpiring, None, "7 d"), granted(RAISED));
    assert!(domain.state.alerts[&alert].acknowledged);
    check(&mut domain, clear(), granted(&["alert.cleared"]));
    check(&mut domain, clear(), granted(&[]));
    check(&mut domain, acknowledge(), refused("alert_not_found"));
}

#[test]
fn nothing_is_raised_about_who_is_gone_or_unknown() {
    let mut domain = Domain::founded();
    let gone = domain.active();
    domain.end(&gone.node, NodeState::Revoked);
    let unknown = Enrolled { node: node("nobody"), ..gone.clone() };
    for about in [gone, unknown] {
        check(&mut domain, raise(AlertKind::CloneSuspected, Some(&about), "two"), granted(&[]));
    }
}

#[test]
fn an_enrollment_confirmed_meanwhile_is_not_stuck() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for kind in [AlertKind::EnrollmentStuck, AlertKind::EnrollmentNotPersisted] {
        check(&mut domain, raise(kind, Some(&node), "10m"), granted(&[]));
    }
    let stuck = domain.enroll();
    check(&mut domain, raise(AlertKind::EnrollmentStuck, Some(&stuck), "10m"), granted(RAISED));
    let first = &["host.confirmed", "host.active", "alert.cleared", "certificate.seen"];
    check(&mut domain, (stuck.actor(), confirm_ok(&stuck.node)), granted(first));
}

#[test]
fn a_machine_is_claimed_elsewhere_only_while_it_is_active_here() {
    let mut domain = Domain::founded();
    let (here, coming) = (domain.active(), domain.enroll());
    check(&mut domain, raise(AlertKind::ClaimedElsewhere, Some(&here), "in b"), granted(RAISED));
    check(&mut domain, raise(AlertKind::ClaimedElsewhere, Some(&coming), "in b"), granted(&[]));
    domain.end(&here.node, NodeState::Decommissioned);
    assert!(domain.state.alerts.is_empty());
}

#[test]
fn what_is_settled_by_the_end_of_a_node_is_cleared_except_the_suspicion_of_a_copy() {
    let mut domain = Domain::founded();
    let node = domain.enroll();
    for kind in [AlertKind::EnrollmentStuck, AlertKind::CloneSuspected] {
        check(&mut domain, raise(kind, Some(&node), "look"), granted(RAISED));
    }
    check(&mut domain, (local(), revoke(&node.node)), granted(&["host.revoked", "alert.cleared"]));
    assert_eq!(domain.state.alerts[&only_alert(&domain)].kind, AlertKind::CloneSuspected);
}

#[test]
fn a_copied_identity_is_quarantined_where_policy_says_so() {
    let mut domain = Domain::founded();
    let (first, second) = (domain.active(), domain.active());
    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&first), "two"), granted(RAISED));
    assert!(!domain.state.nodes[&first.node].quarantined);
    domain.policy("clone", "quarantine");
    let taken = &["alert.raised", "host.quarantined"];
    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&second), "two"), granted(taken));
    assert!(domain.state.nodes[&second.node].quarantined);
    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&second), "three"), granted(RAISED));
    let stuck = domain.enroll();
    check(&mut domain, raise(AlertKind::EnrollmentStuck, Some(&stuck), "10m"), granted(RAISED));
    assert!(!domain.state.nodes[&stuck.node].quarantined);
}

#[test]
fn only_the_control_plane_raises_and_clears() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let (actor, raise) = raise(AlertKind::CloneSuspected, Some(&node), "two");
    check(&mut domain, (actor, raise.clone()), granted(RAISED));
    let clear = Command::ClearAlert { alert: only_alert(&domain) };
    for actor in [local(), node.actor(), Actor::Stranger] {
        check(&mut domain, (actor.clone(), raise.clone()), refused("forbidden"));
        check(&mut domain, (actor, clear.clone()), refused("forbidden"));
    }
}

#[test]
fn another_tenants_alert_does_not_exist() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let node = domain.active();
    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&node), "two"), granted(RAISED));
    let acknowledge = Command::AcknowledgeAlert { alert: only_alert(&domain), dated: true };
    let bob = domain.operator("bob", Role::Operator, only(&["acme"]));
    check(&mut domain, (bob, acknowledge.clone()), refused("alert_not_found"));
    let carol = domain.operator("carol", Role::Operator, only(&["default"]));
    check(&mut domain, (carol, acknowledge), granted(&["alert.acknowledged"]));
}

#[test]
fn a_suspicion_ends_with_release_or_a_new_life_and_not_with_an_enrollment() {
    let suspected = || {
        let mut domain = Domain::founded();
        let of = domain.active();
        check(&mut domain, raise(AlertKind::CloneSuspected, Some(&of), "two"), granted(RAISED));
        (domain, of)
    };
    let (mut domain, of) = suspected();
    let release = || (local(), Command::Release { node: of.node.clone() });
    check(&mut domain, release(), granted(&["alert.cleared"]));
    check(&mut domain, release(), granted(&[]));

    let (mut domain, of) = suspected();
    let token = domain.mint_pinned(&of.node);
    domain.enroll_with(token, |_| ());
    let open: Vec<_> = domain.state.alerts.values().map(|alert| alert.kind).collect();
    assert_eq!(open, [AlertKind::CloneSuspected, AlertKind::NodeReplaced]);

    let (mut domain, of) = suspected();
    domain.end(&of.node, NodeState::Revoked);
    assert_eq!(domain.state.alerts.len(), 1, "it is worth knowing why");
    let reinstate = (local(), Command::Reinstate { node: of.node.clone(), as_registered: true });
    check(&mut domain, reinstate, granted(&["host.reinstated", "alert.cleared"]));
}

#[test]
fn an_acknowledged_suspicion_is_laid_to_rest_after_a_quiet_day() {
    let mut domain = Domain::founded();
    let of = domain.active();
    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&of), "two"), granted(RAISED));
    let alert = only_alert(&domain);
    let tidy = || (Actor::Reconciler, Command::Tidy);
    domain.pass(span("12h"));
    check(
        &mut domain,
        (local(), Command::AcknowledgeAlert { alert, dated: true }),
        granted(&["alert.acknowledged"]),
    );
    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&of), "three"), granted(RAISED));
    domain.pass(span("23h"));
    check(&mut domain, tidy(), granted(&[]));
    check(
        &mut domain,
        (local(), Command::Quarantine { node: of.node.clone(), reason: "odd".into() }),
        granted(&["host.quarantined"]),
    );
    domain.pass(span("2h"));
    check(&mut domain, tidy(), granted(&[]));
    check(
        &mut domain,
        (local(), Command::Release { node: of.node.clone() }),
        granted(&["host.released", "alert.cleared"]),
    );

    check(&mut domain, raise(AlertKind::CloneSuspected, Some(&of), "two"), granted(RAISED));
    domain.pass(span("2d"));
    check(&mut domain, tidy(), granted(&[]));
    let alert = only_alert(&domain);
    let acknowledge = Command::AcknowledgeAlert { alert, dated: true };
    check(&mut domain, (local(), acknowledge), granted(&["alert.acknowledged"]));
    domain.pass(span("23h"));
    check(&mut domain, tidy(), granted(&[]));
    domain.pass(span("1h"));
    check(&mut domain, tidy(), granted(&["alert.cleared"]));
}

#[test]
fn commands_of_older_versions_come_to_what_they_came_to() {
    let suspected = || {
        let mut domain = Domain::founded();
        let of = domain.active();
        check(&mut domain, raise(AlertKind::CloneSuspected, Some(&of), "two"), granted(RAISED));
        (domain, of)
    };
    let (mut domain, of) = suspected();
    let token = domain.mint_pinned(&of.node);
    domain.enroll_with(token, |request| request.replacement_alerts = false);
    assert!(domain.state.alerts.is_empty(), "the enrollment ended the suspicion, and raised nothing");

    let (mut domain, _) = suspected();
    domain.pass(span("2d"));
    let acknowledge = Command::AcknowledgeAlert { alert: only_alert(&domain), dated: false };
    check(&mut domain, (local(), acknowledge), granted(&["alert.acknowledged"]));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&["alert.cleared"]));
}

#[test]
fn taking_the_place_of_an_active_node_is_reported() {
    let mut domain = Domain::founded();
    let of = domain.active();
    let token = domain.mint_pinned(&of.node);
    domain.enroll_with(token, |_| ());
    let alert = &domain.state.alerts[&only_alert(&domain)];
    assert_eq!((alert.kind, alert.node.as_ref()), (AlertKind::NodeReplaced, Some(&of.node)));
    assert!(alert.detail.contains(&token.id.to_string()), "{}", alert.detail);
    // Nobody has shown the certificate of the one that came: it is no living node.
    let token = domain.mint_pinned(&of.node);
    domain.enroll_with(token, |_| ());
    assert_eq!(domain.state.alerts[&only_alert(&domain)].count, 1);
}

#[test]
fn a_certificate_that_nobody_renews_is_told_before_and_at_its_end() {
    let mut domain = Domain::founded();
    let of = domain.active();
    let held = domain.state.certificates[&of.serial].clone();
    let about = |domain: &Domain| domain.state.expiring(&domain.state.nodes[&of.node], domain.now);
    domain.pass(held.renew_at.since(domain.now));
    assert_eq!(about(&domain), None, "it may be renewing now");
    check(&mut domain, raise(AlertKind::CertExpiring, Some(&of), "early"), granted(&[]));
    domain.pass(Span::from_millis(held.not_after.since(held.renew_at).millis() / 2));
    let before = about(&domain).unwrap();
    check(&mut domain, raise(AlertKind::CertExpiring, Some(&of), &before), granted(RAISED));
    domain.pass(span("1s"));
    assert_eq!(about(&domain), Some(before));

    let next = domain.renew(&of);
    assert!(domain.state.alerts.is_empty() && about(&domain).is_none());
    let held = domain.state.certificates[&next.serial].clone();
    domain.pass(held.not_after.since(domain.now));
    let ended = about(&domain).unwrap();
    assert!(ended.contains("ended at"), "{ended}");
    check(&mut domain, raise(AlertKind::CertExpiring, Some(&of), &ended), granted(RAISED));
    domain.end(&of.node, NodeState::Decommissioned);
    assert!(domain.state.alerts.is_empty() && about(&domain).is_none());
}

#[test]
fn long_silence_counts_from_when_the_node_could_have_been_heard() {
    let mut domain = Domain::founded();
    domain.policy("profile.default.lifetime", "90d");
    let of = domain.active();
    domain.streams(&of.node);
    domain.pass(span("2d"));
    // The control plane was away as well: it hears since a moment ago.
    let listening_since = domain.now;
    domain.pass(span("5m"));
    let silence = Silence { nodes: vec![of.node.clone()], listening_since };
    let mark = (Actor::Reconciler, Command::MarkInactive(silence));
    check(&mut domain, mark, granted(&["host.inactive"]));
    let about = |domain: &Domain| domain.state.silent_for_long(&domain.state.nodes[&of.node], domain.now);
    assert_eq!(about(&domain), None, "an outage of the site is no silence of the node");
    domain.pass(span("23h"));
    check(&mut domain, raise(AlertKind::NodeSilent, Some(&of), "early"), granted(&[]));
    domain.pass(span("55m"));
    let detail = about(&domain).unwrap();
    check(&mut domain, raise(AlertKind::NodeSilent, Some(&of), &detail), granted(RAISED));
    let seen = (of.actor(), Command::Contact { node: of.node.clone() });
    check(&mut domain, seen, granted(&["host.active", "alert.cleared"]));
    domain.policy("liveness.silent_after", "0");
    assert_eq!(about(&domain), None);
}
