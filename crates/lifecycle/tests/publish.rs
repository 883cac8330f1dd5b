//! Ephemeral issuers: published by their replica, replaced at each start, forgotten with their last certificate.

use crate::support::{
    Domain, activate, check, contact, enroll, granted, issuer, local, refused, replica, set_policy, span,
};
use lifecycle::names::{Fingerprint, IssuerId, ReplicaId, Timestamp};
use lifecycle::registry::{
    Actor, CertificateStatus, Command, Confirmation, EPHEMERAL_LEAF, EPHEMERAL_LIFE, IssuerKind, IssuerState,
    NodeSigner, PublishIssuer, Role, Tenants, Verdict,
};

fn ephemeral(domain: &Domain) -> Vec<(String, IssuerState)> {
    let issuers = domain.state.issuers.values().filter(|issuer| issuer.is_ephemeral());
    issuers.map(|issuer| (issuer.id.to_string(), issuer.state)).collect()
}

fn changed(domain: &mut Domain, name: &str, change: impl FnOnce(&mut PublishIssuer)) -> Command {
    let Command::PublishIssuer(mut publish) = domain.publish(name) else { unreachable!() };
    change(&mut publish);
    Command::PublishIssuer(publish)
}

fn revoke(name: &str) -> (Actor, Command) {
    let confirm = Confirmation::NotAsked;
    (
        local(),
        Command::RevokeIssuer {
            issuer: issuer(name),
            reason: "lost".to_owned(),
            confirm,
            asks_for_holders: false,
        },
    )
}

fn tidy(domain: &mut Domain) {
    domain.give(Actor::Reconciler, Command::Tidy).answer.unwrap();
}

#[test]
fn an_issuer_is_published_by_its_own_replica_and_nobody_else() {
    let mut domain = Domain::ephemeral();
    let publish = domain.publish("e2");
    for actor in [replica(2), local(), Actor::Reconciler, Actor::Stranger] {
        check(&mut domain, (actor, publish.clone()), refused("forbidden"));
    }
    let node = domain.active();
    check(&mut domain, (node.actor(), publish.clone()), refused("forbidden"));
    let admin = domain.operator("alice", Role::PlatformAdmin, Tenants::All);
    check(&mut domain, (admin, publish.clone()), refused("forbidden"));
    check(&mut domain, (replica(1), publish.clone()), granted(&["ca.published"]));
    check(&mut domain, (replica(1), publish), granted(&[]));
}

#[test]
fn a_domain_without_ephemeral_issuers_takes_none() {
    let mut domain = Domain::founded();
    let publish = domain.publish("e1");
    check(&mut domain, (replica(1), publish), refused("no_ephemeral_issuers"));
}

#[test]
fn an_issuer_that_does_not_fit_is_not_taken() {
    let bad: [fn(&mut PublishIssuer, Timestamp); 7] = [
        |publish, _| publish.issuer = issuer("i1"),
        |publish, _| publish.issuer = issuer("e1"),
        |publish, _| publish.subject = "CN=e1".to_owned(),
        |publish, at| publish.not_after = at,
        |publish, at| publish.not_before = at.plus(span("61s")),
        |publish, _| publish.not_after = publish.not_before.plus(EPHEMERAL_LIFE).plus(span("1s")),
        |publish, at| publish.not_after = at.plus(span("365d")),
    ];
    for spoil in bad {
        let mut domain = Domain::ephemeral();
        domain.active();
        let at = domain.now;
        let publish = changed(&mut domain, "e2", |publish| spoil(publish, at));
        check(&mut domain, (replica(1), publish), refused("issuer_invalid"));
    }
    let mut domain = Domain::ephemeral();
    let root = domain.state.roots[0].fingerprint;
    let of_root = changed(&mut domain, "e2", |publish| publish.fingerprint = root);
    check(&mut domain, (replica(1), of_root), refused("issuer_invalid"));
    let known = domain.state.issuers[&issuer("e1")].fingerprint;
    let again = changed(&mut domain, "e2", |publish| publish.fingerprint = known);
    check(&mut domain, (replica(1), again), refused("issuer_invalid"));
}

/// A roll is the other way in, and must not let a CA in that no key of the domain stands behind.
#[test]
fn no_roll_and_no_founding_brings_in_an_ephemeral_issuer() {
    let mut domain = Domain::ephemeral();
    let prepare = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), prepare), granted(&["ca.requested"]));
    let mut next = domain.next_issuer("i2");
    next.kind = IssuerKind::Ephemeral;
    check(&mut domain, (local(), Command::CertifyRoll(Box::new(next))), refused("issuer_invalid"));
    let mut domain = Domain::unfounded();
    let Command::InitializeDomain(mut found) = domain.found_with(NodeSigner::Ephemeral) else {
        unreachable!()
    };
    found.issuer.kind = IssuerKind::Ephemeral;
    check(&mut domain, (local(), Command::InitializeDomain(found)), refused("try_again"));
}

#[test]
fn nodes_are_signed_by_it_and_operators_by_the_domains_issuer() {
    let mut domain = Domain::ephemeral();
    let node = domain.active();
    domain.operator("alice", Role::Viewer, Tenants::All);
    let of = |domain: &Domain, serial| domain.state.certificates[serial].issuer.clone();
    assert_eq!(of(&domain, &node.serial), issuer("e1"));
    let operator = domain.state.operators.values().next().unwrap().serial.clone().unwrap();
    assert_eq!(of(&domain, &operator), issuer("i1"));
    let token = domain.mint();
    let request = domain.request(token);
    let mut request = domain.prepare(request);
    request.prepared.as_mut().unwrap().certificate.issuer = issuer("i1");
    check(&mut domain, enroll(request), refused("try_again"));
    let Command::AddOperator(mut add) = domain.add_operator("bob", Role::Viewer, Tenants::All) else {
        unreachable!()
    };
    add.certificate.as_mut().unwrap().issuer = issuer("e1");
    check(&mut domain, (local(), Command::AddOperator(add)), refused("try_again"));
}

#[test]
fn a_restart_strands_no_node_and_the_next_certificate_is_of_the_new_issuer() {
    let mut domain = Domain::ephemeral();
    let version = domain.state.bundle_version;
    let node = domain.active();
    domain.published("e2");
    assert_eq!(
        ephemeral(&domain),
        [("e1".to_owned(), IssuerState::Retiring), ("e2".to_owned(), IssuerState::Active)]
    );
    check(&mut domain, contact(&node), granted(&[]));
    let renewed = domain.renew(&node);
    assert_eq!(domain.state.certificates[&renewed.serial].issuer, issuer("e2"));
    assert_eq!(domain.state.bundle_version, version, "nothing that hosts trust has changed");
    assert_eq!(domain.state.adoption(), (1, 1));
}

#[test]
fn a_thousand_restarts_leave_the_issuers_that_have_certificates() {
    let mut domain = Domain::ephemeral();
    let node = domain.active();
    for start in 0..1000 {
        domain.published(&format!("s{start}"));
        assert!(ephemeral(&domain).len() <= 2);
    }
    check(&mut domain, contact(&node), granted(&[]));
    let renewed = domain.renew(&node);
    check(&mut domain, contact(&renewed), granted(&["certificate.seen", "certificate.superseded"]));
    // What it had before ends by itself; with it, what signed that.
    domain.pass(span("1d"));
    tidy(&mut domain);
    assert_eq!(ephemeral(&domain).len(), 1);
    assert!(domain.state.issuers.contains_key(&issuer("i1")));
}

#[test]
fn an_issuer_is_an_anchor_until_its_last_certificate_has_ended() {
    let mut domain = Domain::ephemeral();
    let node = domain.active();
    domain.end(&node.node, lifecycle::registry::NodeState::Revoked);
    domain.published("e2");
    domain.pass(span("23h"));
    tidy(&mut domain);
    assert_eq!(domain.state.issuers[&issuer("e1")].state, IssuerState::Retiring);
    assert_eq!(domain.state.certificates[&node.serial].status, CertificateStatus::Denied);
    let version = domain.state.ephemeral_version;
    domain.pass(span("1h"));
    tidy(&mut domain);
    assert_eq!(ephemeral(&domain), [("e2".to_owned(), IssuerState::Active)]);
    assert!(domain.state.ephemeral_version > version);
    assert!(domain.state.verdict(&node.serial, domain.now).is_denied());
}

#[test]
fn there_is_a_bound_on_how_many_are_trusted() {
    let mut domain = Domain::ephemeral();
    for start in 1..1024 {
        domain.enroll();
        domain.published(&format!("s{start}"));
        domain.pass(span("20s"));
    }
    domain.enroll();
    let publish = domain.publish("one-more");
    check(&mut domain, (replica(1), publish), refused("too_many_issuers"));
    domain.pass(span("1d"));
    tidy(&mut domain);
    tidy(&mut domain);
    domain.published("again");
    assert!(ephemeral(&domain).len() < 1024);
}

#[test]
fn revoking_one_denies_what_it_signed_and_another_takes_its_place() {
    let mut domain = Domain::ephemeral();
    let node = domain.active();
    domain.published("e2");
    let newer = domain.active();
    check(&mut domain, revoke("e2"), granted(&["ca.revoked"]));
    assert_eq!(domain.state.ephemeral_issuer(ReplicaId(1)), None);
    assert!(matches!(domain.state.verdict(&newer.serial, domain.now), Verdict::Denied(_)));
    check(&mut domain, contact(&node), granted(&[]));
    let token = domain.mint();
    let request = domain.request(token);
    let mut request = domain.prepare(request);
    request.prepared.as_mut().unwrap().certificate.issuer = issuer("e2");
    check(&mut domain, enroll(request), refused("try_again"));
    domain.published("e3");
    domain.enroll();
    assert!(domain.state.is_denied(&newer.serial));
    domain.pass(span("30d"));
    tidy(&mut domain);
    assert!(domain.state.is_denied(&newer.serial), "while it is on record, so is why it is denied");
}

#[test]
fn revoking_the_one_that_signs_is_confirmed() {
    let mut domain = Domain::ephemeral();
    domain.active();
    let revoke = |confirm: Option<&str>| {
        let confirm = Confirmation::Asked(confirm.map(str::to_owned));
        (
            local(),
            Command::RevokeIssuer {
                issuer: issuer("e1"),
                reason: String::new(),
                confirm,
                asks_for_holders: false,
            },
        )
    };
    check(&mut domain, revoke(None), refused("confirmation_needed"));
    check(&mut domain, revoke(Some("e1")), granted(&["ca.revoked"]));
}

/// Each replica has its own; a roll concerns neither.
#[test]
fn replicas_do_not_replace_each_others_and_a_roll_replaces_none() {
    let mut domain = Domain::ephemeral();
    domain.active();
    let other = changed(&mut domain, "other", |publish| publish.replica = ReplicaId(2));
    check(&mut domain, (replica(2), other), granted(&["ca.published"]));
    domain.roll("i2");
    let signs = |name: &str| domain.state.node_issuer(&issuer(name)).is_some();
    assert!(signs("e1") && signs("other") && !signs("i1") && !signs("i2"));
    assert_eq!(domain.state.client_issuer().map(|issuer| issuer.id.as_str()), Some("i2"));
    check(&mut domain, (local(), activate("e1", true)), refused("issuer_not_prepared"));
    assert_eq!(domain.state.client_issuer().map(|issuer| issuer.id.as_str()), Some("i2"));
}

#[test]
fn no_profile_lives_longer_than_the_issuer_allows() {
    let mut domain = Domain::ephemeral();
    let lifetimes = domain.state.policy.profiles.values().map(|profile| profile.lifetime);
    assert_eq!(lifetimes.max(), Some(EPHEMERAL_LEAF));
    let set = |value: &str| (local(), set_policy("profile.plfm.lifetime", value));
    check(&mut domain, set("8d"), refused("policy_value_invalid"));
    check(&mut domain, (local(), set_policy("profile.new.lifetime", "90d")), refused("policy_value_invalid"));
    check(&mut domain, set("6d"), granted(&["policy.changed"]));
    let mut sealed = Domain::founded();
    check(&mut sealed, set("80d"), granted(&["policy.changed"]));
}

#[test]
fn the_audit_line_names_replica_and_issuer_and_no_key() {
    let mut domain = Domain::ephemeral();
    let publish = changed(&mut domain, "e2", |publish| publish.fingerprint = Fingerprint::new([7; 32]));
    let applied = domain.give(replica(1), publish);
    let fields = serde_json::to_value(
        applied.events[0]
            .fields()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<std::collections::BTreeMap<_, _>>(),
    )
    .unwrap();
    assert_eq!(fields["replica_id"], "1");
    assert_eq!(fields["issuer"], "e2");
    assert_eq!(fields["issuer_fingerprint"], format!("SHA256:{}", "07".repeat(32)));
    assert_eq!(fields["before"], "e1");
    assert_eq!(fields["forgotten"], serde_json::json!(["e1"]));
    assert_eq!(replica(1).to_string(), "replica:1");
    let known: Vec<IssuerId> = domain.state.issuers.keys().cloned().collect();
    assert_eq!(known, [issuer("e2"), issuer("i1")]);
}
