//! A node that has nothing left to recover with: an operator's bundle, and the quarantine until it has proven itself.

use crate::support::{Domain, Enrolled, START, check, contact, granted, local, node, recover, refused, span};
use lifecycle::names::{Label, NodeId, Span, Timestamp};
use lifecycle::registry::{
    Actor, AlertKind, BundleClaim, BundleRecord, Command, IssueRepairBundle, Mint, NodeState, RaiseAlert,
    Recover, RecoveryKind, Rejection, Role, Tenants, check_bundle,
};

const ISSUED: &[&str] = &["host.quarantined", "repair_bundle.issued"];
const RECOVERED: &[&str] = &["recovery.requested", "recovery.issued"];
const BACK: &[&str] = &["host.confirmed", "host.active", "recovery.resolved", "certificate.seen"];

fn bundle(domain: &mut Domain, id: &NodeId, ttl: Option<Span>) -> (Mint, (Actor, Command)) {
    let mint = domain.drawn();
    let profile = Label::parse("default").unwrap();
    let issue = IssueRepairBundle { node: id.clone(), mint, ttl, profile, endpoint: None };
    (mint, (local(), Command::IssueRepairBundle(issue)))
}

fn end(id: &NodeId) -> (Actor, Command) {
    (Actor::Reconciler, Command::EndRepair { node: id.clone() })
}

/// A node under repair, and the token that an operator has.
fn repairing() -> (Domain, Enrolled, Mint) {
    let mut domain = Domain::founded();
    let (node, _) = domain.provided();
    let (token, issue) = bundle(&mut domain, &node.node, None);
    check(&mut domain, issue, granted(ISSUED));
    (domain, node, token)
}

fn recovered(domain: &mut Domain, node: &Enrolled, token: Mint) -> Enrolled {
    let request = domain.recovery(token.hash);
    let serial = request.prepared.as_ref().unwrap().certificate.serial.clone();
    check(domain, recover(request), granted(RECOVERED));
    Enrolled { serial, ..node.clone() }
}

#[test]
fn a_repaired_node_is_held_until_it_has_come_back() {
    let (mut domain, node, token) = repairing();
    check(&mut domain, end(&node.node), granted(&[]));
    // It is well, as far as anybody knows; the operator has decided.
    let new = recovered(&mut domain, &node, token);
    assert!(domain.state.nodes[&node.node].quarantined);
    check(&mut domain, end(&node.node), granted(&[]));
    check(&mut domain, contact(&new), granted(BACK));
    check(&mut domain, end(&node.node), granted(&["host.released"]));
    check(&mut domain, end(&node.node), granted(&[]));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), refused("token_used"));
}

#[test]
fn a_bundle_ends_what_the_node_had_and_the_next_bundle_ends_it() {
    let mut domain = Domain::founded();
    let (node, own) = domain.provided();
    let (first, issue) = bundle(&mut domain, &node.node, None);
    check(&mut domain, issue, granted(ISSUED));
    let (second, issue) = bundle(&mut domain, &node.node, None);
    check(&mut domain, issue, granted(&["repair_bundle.issued"]));
    for token in [own, first] {
        let request = domain.recovery(token.hash);
        check(&mut domain, recover(request), refused("token_superseded"));
    }
    let new = recovered(&mut domain, &node, second);
    check(&mut domain, contact(&new), granted(BACK));
    check(&mut domain, end(&node.node), granted(&["host.released"]));
}

#[test]
fn a_bundle_that_was_changed_is_refused() {
    let (mut domain, _, token) = repairing();
    let request = domain.recovery(token.hash);
    for bundle_ends in [None, Some(Timestamp::from_secs(1))] {
        let changed = Recover { bundle_ends, ..request.clone() };
        check(&mut domain, recover(changed), refused("repair_bundle_mismatch"));
    }
    domain.pass(span("24h"));
    check(&mut domain, recover(request), refused("token_expired"));
}

#[test]
fn what_else_a_node_is_in_quarantine_for_a_repair_does_not_end() {
    let mut domain = Domain::founded();
    let (node, _) = domain.provided();
    let quarantine = || {
        let reason = "odd".to_owned();
        (local(), Command::Quarantine { node: node.node.clone(), reason })
    };
    check(&mut domain, quarantine(), granted(&["host.quarantined"]));
    let (token, issue) = bundle(&mut domain, &node.node, None);
    check(&mut domain, issue, granted(&["repair_bundle.issued"]));
    let new = recovered(&mut domain, &node, token);
    check(&mut domain, contact(&new), granted(BACK));
    check(&mut domain, end(&node.node), granted(&[]));
    assert!(domain.state.nodes[&node.node].quarantined);
}

#[test]
fn an_operators_own_quarantine_or_a_suspicion_outlasts_the_repair() {
    let (mut domain, node, token) = repairing();
    let new = recovered(&mut domain, &node, token);
    check(&mut domain, contact(&new), granted(BACK));
    let (kind, about) = (AlertKind::CloneSuspected, Some(node.node.clone()));
    let suspect = RaiseAlert { kind, node: about, detail: "two".to_owned() };
    check(&mut domain, (Actor::Reconciler, Command::RaiseAlert(suspect)), granted(&["alert.raised"]));
    check(&mut domain, end(&node.node), granted(&[]));

    let (mut domain, node, token) = repairing();
    let new = recovered(&mut domain, &node, token);
    check(&mut domain, contact(&new), granted(BACK));
    let quarantine = Command::Quarantine { node: node.node.clone(), reason: "wait".to_owned() };
    check(&mut domain, (local(), quarantine.clone()), granted(&["host.quarantined"]));
    check(&mut domain, (local(), quarantine), granted(&[]));
    check(&mut domain, end(&node.node), granted(&[]));
}

#[test]
fn whoever_lets_the_node_go_ends_the_bundle() {
    let (mut domain, node, token) = repairing();
    let release = Command::Release { node: node.node.clone() };
    check(&mut domain, (local(), release), granted(&["host.released"]));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), refused("token_revoked"));
}

#[test]
fn there_is_no_bundle_for_what_is_gone_unknown_or_never_had_a_certificate() {
    let mut domain = Domain::founded();
    let (_, unknown) = bundle(&mut domain, &node("nobody"), None);
    check(&mut domain, unknown, refused("node_not_found"));
    let mine = domain.active();
    for end in [NodeState::Decommissioned, NodeState::Revoked] {
        domain.end(&mine.node, end);
        let (_, gone) = bundle(&mut domain, &mine.node, None);
        check(&mut domain, gone, refused("node_revoked"));
    }
    let reinstate = Command::Reinstate { node: mine.node.clone(), as_registered: true };
    check(&mut domain, (local(), reinstate), granted(&["host.reinstated"]));
    let (_, blank) = bundle(&mut domain, &mine.node, None);
    check(&mut domain, blank, refused("no_certificate"));
}

#[test]
fn a_bundle_lives_for_a_day_or_as_long_as_is_asked_within_limits() {
    let mut domain = Domain::founded();
    let (node, _) = domain.provided();
    let (token, issue) = bundle(&mut domain, &node.node, None);
    check(&mut domain, issue, granted(ISSUED));
    let ends = domain.state.nodes[&node.node].recovery.token(token.token).unwrap().expires_at;
    assert_eq!(ends, domain.now.plus(span("24h")));
    for (ttl, code) in [("9s", "token_ttl_too_short"), ("91d", "token_ttl_too_long")] {
        let (_, issue) = bundle(&mut domain, &node.node, Some(span(ttl)));
        check(&mut domain, issue, refused(code));
    }
    domain.policy("recovery.ttl", "1h");
    let (token, issue) = bundle(&mut domain, &node.node, None);
    check(&mut domain, issue, granted(&["repair_bundle.issued"]));
    let ends = domain.state.nodes[&node.node].recovery.token(token.token).unwrap().expires_at;
    assert_eq!(ends, domain.now.plus(span("1h")));
}

#[test]
fn only_a_platform_admin_of_its_tenant_has_one() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let operator = domain.operator("alice", Role::Operator, Tenants::All);
    let (_, (_, issue)) = bundle(&mut domain, &node.node, None);
    check(&mut domain, (operator, issue.clone()), refused("forbidden"));
    check(&mut domain, (node.actor(), issue), refused("forbidden"));
}

#[test]
fn a_repair_token_is_redeemed_only_with_its_bundle_as_it_was_issued() {
    let mut domain = Domain::founded();
    let token = |kind| lifecycle::registry::RecoveryToken {
        id: lifecycle::names::TokenId(lifecycle::names::Ulid::new(START, [1; 10])),
        hash: lifecycle::names::SecretHash::new([1; 32]),
        kind,
        minted_at: START,
        expires_at: START,
        state: lifecycle::registry::RecoveryState::Valid { kept: false },
        profile: None,
    };
    let (repair, rotated) = (token(RecoveryKind::Repair), token(RecoveryKind::Rotated));
    let text = |word: &str| Some(word.to_owned());
    let issued = BundleRecord {
        seq: domain.draw(),
        hash: "ab".to_owned(),
        profile: "default".to_owned(),
        issued_by: "local:root".to_owned(),
        url: text("https://there:1"),
        ca: text("sha256:ab"),
    };
    let name = domain.state.domain.as_ref().unwrap().name.to_string();
    let said = BundleClaim {
        seq: issued.seq,
        hash: issued.hash.clone(),
        profile: issued.profile.clone(),
        expires_at: START,
        domain: Some(name),
        issued_by: Some(issued.issued_by.clone()),
        issued_at: Some(START.to_string()),
        url: issued.url.clone(),
        ca: issued.ca.clone(),
    };
    let other = || text("other");
    let changed = [
        BundleClaim { seq: issued.seq + 1, ..said.clone() },
        BundleClaim { hash: "cd".to_owned(), ..said.clone() },
        BundleClaim { profile: "other".to_owned(), ..said.clone() },
        BundleClaim { expires_at: START.plus(span("1s")), ..said.clone() },
        BundleClaim { domain: other(), ..said.clone() },
        BundleClaim { issued_by: other(), ..said.clone() },
        BundleClaim { issued_at: other(), ..said.clone() },
        BundleClaim { url: other(), ..said.clone() },
        BundleClaim { ca: other(), ..said.clone() },
    ];
    let check = |token, claimed, recorded| check_bundle(&domain.state, token, claimed, recorded);
    assert_eq!(check(&repair, Some(&said), Some(&issued)), Ok(()));
    assert_eq!(check(&rotated, None, None), Ok(()), "a token of the node's own comes with no bundle");
    for claimed in changed.iter().map(Some).chain([None]) {
        let found = check(&repair, claimed, Some(&issued));
        assert_eq!(found, Err(Rejection::RepairBundleMismatch), "{claimed:?}");
    }
    assert_eq!(check(&repair, None, None), Err(Rejection::RepairBundleMismatch));
    let none = || None;
    let of_before = BundleClaim {
        domain: none(),
        issued_by: none(),
        issued_at: none(),
        url: none(),
        ca: none(),
        ..said.clone()
    };
    assert_eq!(check(&repair, Some(&of_before), Some(&issued)), Ok(()), "an agent of before");
    let recorded_before = BundleRecord { url: None, ca: None, ..issued.clone() };
    assert_eq!(check(&repair, Some(&said), Some(&recorded_before)), Ok(()), "a bundle of before");
}
