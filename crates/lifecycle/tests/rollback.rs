//! A directory that was put back from an older copy, and that an operator accepts: no token of before is good.

use crate::support::{
    Domain, Enrolled, check, confirm_keeping, granted, keeping, local, recover, refused, span,
};
use lifecycle::names::Label;
use lifecycle::registry::{
    AcceptRollback, Actor, Command, IssueRepairBundle, Mint, NodeState, Recover, RecoveryState,
};

const ACCEPTED: &[&str] = &["directory.rollback_accepted"];
const RECOVERED: &[&str] = &["recovery.requested", "recovery.issued"];

fn accept(voids_recovery: bool) -> (Actor, Command) {
    let accept = AcceptRollback { directory_seq: 1, anchor_seq: Some(2), voids_recovery };
    (Actor::Reconciler, Command::AcceptRollback(accept))
}

fn is_refused(domain: &mut Domain, token: Mint) {
    let request = domain.recovery(token.hash);
    check(domain, recover(request), refused("token_revoked"));
}

/// A node that is well and has kept its token.
fn well() -> (Domain, Enrolled, Mint) {
    let mut domain = Domain::founded();
    let (node, token) = domain.provided();
    check(&mut domain, confirm_keeping(&node, Some(token.token), None), granted(&["recovery_token.kept"]));
    (domain, node, token)
}

#[test]
fn no_recovery_token_of_before_is_good_and_the_node_may_have_another() {
    let (mut domain, node, token) = well();
    check(&mut domain, accept(true), granted(ACCEPTED));
    is_refused(&mut domain, token);
    // Over its own certificate, while that is good.
    let next = domain.drawn();
    let command =
        Command::MintRecovery { node: node.node.clone(), keeping: keeping(Some(token.token), Some(next)) };
    check(&mut domain, (node.actor(), command), granted(&["recovery_token.rotated"]));
    domain.pass(span("25h"));
    is_refused(&mut domain, token);
    let request = domain.recovery(next.hash);
    check(&mut domain, recover(request), granted(RECOVERED));
}

#[test]
fn no_repair_bundle_of_before_is_good_and_the_node_stays_in_quarantine_until_the_next() {
    let (mut domain, node, _) = well();
    let issue = |mint| {
        let profile = Label::parse("default").unwrap();
        let issue = IssueRepairBundle { node: node.node.clone(), mint, ttl: None, profile, endpoint: None };
        (local(), Command::IssueRepairBundle(issue))
    };
    let (old, new) = (domain.drawn(), domain.drawn());
    check(&mut domain, issue(old), granted(&["host.quarantined", "repair_bundle.issued"]));
    check(&mut domain, accept(true), granted(ACCEPTED));
    is_refused(&mut domain, old);
    assert!(domain.state.nodes[&node.node].quarantined);
    check(&mut domain, issue(new), granted(&["repair_bundle.issued"]));
    let request = domain.recovery(new.hash);
    check(&mut domain, recover(request), granted(RECOVERED));
}

/// What was done with its certificate in the part that is lost, nobody knows.
#[test]
fn a_token_that_was_used_for_a_certificate_that_nobody_has_shown_gives_no_other() {
    let (mut domain, old, token) = well();
    domain.pass(span("25h"));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request.clone()), granted(RECOVERED));
    check(&mut domain, accept(true), granted(ACCEPTED));
    check(&mut domain, recover(request.clone()), refused("token_revoked"));
    domain.pass(span("25h"));
    let again = Recover { key: request.key, ..domain.recovery(token.hash) };
    check(&mut domain, recover(again), refused("token_revoked"));
    assert_eq!(domain.state.nodes[&old.node].state, NodeState::Enrolled);
}

/// A log of before is applied as it was.
#[test]
fn a_rollback_that_was_accepted_before_voids_none() {
    let (mut domain, node, token) = well();
    check(&mut domain, accept(false), granted(ACCEPTED));
    let kept = domain.state.nodes[&node.node].recovery.token(token.token).unwrap();
    assert_eq!(kept.state, RecoveryState::Valid { kept: true });
    domain.pass(span("25h"));
    let request = domain.recovery(token.hash);
    check(&mut domain, recover(request), granted(RECOVERED));
}
