//! The one verdict on a certificate, and what follows from it: revocation lists and signs of a copy.

use crate::support::{Domain, Enrolled, check, contact, granted, issuer, local, operator, revoke, span};
use lifecycle::names::{Label, Serial, Span};
use lifecycle::registry::{
    Actor, Command, Confirmation, Denial, NodeState, RevocationReason, Role, Tenants, Verdict, are_two_hosts,
    is_earlier_start, remember_start,
};

/// A node whose second certificate is in use, and both of them.
fn renewed() -> (Domain, Enrolled, Enrolled) {
    let mut domain = Domain::founded();
    let old = domain.active();
    domain.pass(span("16h"));
    let new = domain.renew(&old);
    check(&mut domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    (domain, old, new)
}

fn verdict(domain: &Domain, serial: &Serial) -> Verdict {
    domain.state.verdict(serial, domain.now)
}

fn listed(domain: &Domain) -> Vec<(Serial, RevocationReason)> {
    let by = &domain.state.issuers[&issuer("i1")];
    let entries = domain.state.revocations(by, domain.now);
    entries.map(|entry| (entry.serial, entry.reason)).collect()
}

#[test]
fn a_certificate_is_good_then_in_its_grace_then_superseded_then_expired() {
    let (mut domain, old, new) = renewed();
    let until = domain.now.plus(span("10m"));
    assert_eq!(verdict(&domain, &old.serial), Verdict::Grace { until });
    assert_eq!(verdict(&domain, &new.serial), Verdict::Good);
    assert!(listed(&domain).is_empty(), "what is accepted is on no list");
    domain.pass(span("10m"));
    assert_eq!(verdict(&domain, &old.serial), Verdict::Superseded { since: until });
    assert_eq!(listed(&domain), [(old.serial.clone(), RevocationReason::Superseded)]);
    domain.pass(span("8h"));
    assert_eq!(verdict(&domain, &old.serial), Verdict::Expired);
    assert!(listed(&domain).is_empty(), "what has expired needs no list");
}

#[test]
fn a_denial_that_comes_later_does_not_move_the_date_on_the_list() {
    let (mut domain, old, _) = renewed();
    let until = domain.now.plus(span("10m"));
    domain.pass(span("1h"));
    check(&mut domain, (local(), revoke(&old.node)), granted(&["host.revoked"]));
    let by = &domain.state.issuers[&issuer("i1")];
    let entries: Vec<_> = domain.state.revocations(by, domain.now).collect();
    let date = |serial: &Serial| entries.iter().find(|entry| entry.serial == *serial).map(|entry| entry.at);
    assert_eq!(date(&old.serial), Some(until));
    assert!(entries.iter().any(|entry| entry.at == domain.now), "the one in use, since the revocation");
}

#[test]
fn a_serial_on_no_record_is_unknown_and_not_held_against_anybody() {
    let mut domain = Domain::founded();
    let unknown = domain.serial();
    assert_eq!(verdict(&domain, &unknown), Verdict::Unknown);
    assert!(!Verdict::Unknown.is_accepted() && !Verdict::Unknown.is_refused());
}

#[test]
fn a_denial_says_what_ended_the_certificate_and_time_does_not_change_it() {
    let (mut domain, old, new) = renewed();
    check(&mut domain, (local(), revoke(&old.node)), granted(&["host.revoked"]));
    for serial in [&old.serial, &new.serial] {
        assert_eq!(verdict(&domain, serial), Verdict::Denied(Denial::NodeRevoked));
    }
    assert!(listed(&domain).iter().all(|(_, reason)| *reason == RevocationReason::Unspecified));
    domain.pass(span("30d"));
    assert_eq!(verdict(&domain, &new.serial), Verdict::Denied(Denial::NodeRevoked));

    let mut domain = Domain::founded();
    let node = domain.active();
    domain.end(&node.node, NodeState::Decommissioned);
    assert_eq!(verdict(&domain, &node.serial), Verdict::Denied(Denial::NodeDecommissioned));
    assert_eq!(listed(&domain), [(node.serial.clone(), RevocationReason::CessationOfOperation)]);

    let Actor::Operator { serial, .. } = domain.operator("alice", Role::Viewer, Tenants::All) else {
        unreachable!()
    };
    let remove = Command::RemoveOperator { name: operator("alice"), keys_made: true };
    check(&mut domain, (local(), remove), granted(&["operator.removed"]));
    assert_eq!(verdict(&domain, &serial), Verdict::Denied(Denial::OperatorRemoved));

    let other = domain.active();
    let command = Command::RevokeIssuer {
        issuer: issuer("i1"),
        reason: "lost".to_owned(),
        confirm: Confirmation::NotAsked,
        asks_for_holders: false,
    };
    check(&mut domain, (local(), command), granted(&["ca.revoked"]));
    assert_eq!(verdict(&domain, &other.serial), Verdict::Denied(Denial::IssuerRevoked));
}

#[test]
fn what_an_enrollment_replaces_is_denied_by_itself() {
    let mut domain = Domain::founded();
    let old = domain.active();
    let token = domain.mint_pinned(&old.node);
    domain.enroll_with(token, |_| ());
    assert_eq!(verdict(&domain, &old.serial), Verdict::Denied(Denial::Replaced));
    assert_eq!(listed(&domain), [(old.serial, RevocationReason::Superseded)]);
}

#[test]
fn only_a_superseded_certificate_shows_a_copy() {
    let at = Domain::founded().now;
    for (verdict, expected) in [
        (Verdict::Superseded { since: at }, true),
        (Verdict::Grace { until: at }, false),
        (Verdict::Good, false),
        (Verdict::Denied(Denial::Replaced), false),
        (Verdict::Expired, false),
        (Verdict::Unknown, false),
    ] {
        assert_eq!(verdict.shows_a_copy(), expected, "{verdict:?}");
    }
}

#[test]
fn an_agent_that_comes_back_with_an_earlier_start_is_a_copy() {
    let start = |name| Label::parse(name).unwrap();
    let mut known = Vec::new();
    for name in ["a", "b", "c", "c", "d", "e"] {
        remember_start(&mut known, &start(name));
    }
    assert_eq!(known, ["b", "c", "d", "e"].map(start), "the oldest is forgotten");
    assert!(is_earlier_start(&known, &start("b")) && is_earlier_start(&known, &start("d")));
    assert!(!is_earlier_start(&known, &start("e")), "the newest is the one that runs");
    assert!(!is_earlier_start(&known, &start("f")) && !is_earlier_start(&[], &start("a")));
}

#[test]
fn one_certificate_on_two_streams_for_a_minute_is_two_hosts() {
    let mut domain = Domain::founded();
    let (one, other) = (domain.serial(), domain.serial());
    let (early, late) = (domain.now, domain.now.plus(span("5m")));
    let after = |seconds| late.plus(Span::from_secs(seconds));
    assert!(
        !are_two_hosts((&one, early), (&one, late), after(59)),
        "a dead connection is not noticed at once"
    );
    assert!(are_two_hosts((&one, early), (&one, late), after(60)));
    assert!(!are_two_hosts((&one, early), (&other, late), after(600)), "a change from one to the next");
}
