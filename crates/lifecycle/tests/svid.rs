//! A node that comes by an SVID of another trust domain: it is on no record, and what the registry knows of the node decides.

use crate::support::{
    Domain, check, contact, enroll, granted, hardware, local, node, recover, refused, refused_with,
    register_hardware, revoke, span,
};
use lifecycle::names::{KeyHash, NodeId, Serial};
use lifecycle::registry::{
    Actor, AlertKind, Command, Confirmation, Credential, Enroll, NodeState, Recover, Rejection, Sighting,
    by_svid, has_place_by_svid, svid_renewable,
};

fn svid(name: &str) -> Actor {
    let spiffe_id = format!("spiffe://spire.example/enlist/{name}");
    Actor::Svid { id: node(name), spiffe_id, serial: Serial::parse("5b1d").unwrap() }
}

fn registered(domain: &mut Domain, name: &str) {
    let register = register_hardware(name, hardware(&["52:54:00:12:34:56"], ""));
    let command = Command::RegisterHardware(Box::new(register));
    check(domain, (local(), command), granted(&["host.registered"]));
}

#[test]
fn a_registered_node_is_active_by_its_svid_alone() {
    let mut domain = Domain::founded();
    let arrives = || (svid("n1"), Command::Contact { node: node("n1") });
    check(&mut domain, arrives(), refused("node_not_registered"));
    registered(&mut domain, "n1");
    check(&mut domain, arrives(), granted(&["host.active"]));
    check(&mut domain, arrives(), granted(&[]));
    domain.silence(&node("n1"));
    check(&mut domain, arrives(), granted(&["host.active"]));
    check(&mut domain, (local(), revoke(&node("n1"))), granted(&["host.revoked"]));
    check(&mut domain, arrives(), refused("node_revoked"));
    assert!(by_svid(&domain.state, &node("n1")).is_err());
}

#[test]
fn an_svid_speaks_for_its_own_node_only_and_not_for_operators() {
    let mut domain = Domain::founded();
    registered(&mut domain, "n1");
    let other = domain.active();
    check(&mut domain, (svid("n1"), Command::Contact { node: other.node.clone() }), refused("forbidden"));
    check(&mut domain, (svid("n1"), revoke(&other.node)), refused("forbidden"));
}

#[test]
fn the_serial_of_an_svid_is_not_one_of_ours() {
    let mut domain = Domain::founded();
    let enrolled = domain.enroll();
    let forged = Actor::Svid {
        id: enrolled.node.clone(),
        spiffe_id: "spiffe://s/n".to_owned(),
        serial: enrolled.serial.clone(),
    };
    check(&mut domain, (forged, Command::Contact { node: enrolled.node.clone() }), granted(&[]));
    assert!(domain.state.certificates[&enrolled.serial].is_unseen(), "it confirms no certificate of ours");
    assert_eq!(domain.state.nodes[&enrolled.node].state, NodeState::Enrolled);
    check(&mut domain, contact(&enrolled), granted(&["host.confirmed", "host.active", "certificate.seen"]));
}

#[test]
fn the_node_of_an_svid_gets_a_certificate_and_no_recovery_token() {
    let mut domain = Domain::founded();
    registered(&mut domain, "n1");
    let key = KeyHash::new(domain.digest());
    let renew = domain.renewal(&node("n1"), key);
    assert!(svid_renewable(&domain.state, &renew).is_ok());
    let command = Command::Renew(Box::new(renew));
    check(&mut domain, (svid("n1"), command.clone()), granted(&["host.active", "certificate.renewed"]));
    let record = &domain.state.nodes[&node("n1")];
    assert_eq!((record.serials.len(), record.recovery.tokens.len()), (1, 0));
    // A lost answer is had again with the same key; another key takes the place of what was never seen.
    check(&mut domain, (svid("n1"), command), granted(&[]));
    let key = KeyHash::new(domain.digest());
    let renew = domain.renewal(&node("n1"), key);
    check(&mut domain, (svid("n1"), Command::Renew(Box::new(renew))), granted(&["certificate.renewed"]));
    let serials = &domain.state.nodes[&node("n1")].serials;
    assert!(domain.state.is_denied(&serials[0]) && domain.state.is_good(&serials[1]));
}

#[test]
fn policy_says_whether_an_svid_leads_to_a_certificate() {
    let mut domain = Domain::founded();
    registered(&mut domain, "n1");
    domain.policy("spire.renew", "false");
    let key = KeyHash::new(domain.digest());
    let renew = domain.renewal(&node("n1"), key);
    assert_eq!(svid_renewable(&domain.state, &renew), Err(Rejection::SvidRenewalOff));
    let command = Command::Renew(Box::new(renew));
    check(&mut domain, (svid("n1"), command.clone()), refused("svid_renewal_off"));
    // With a certificate of the domain a host renews as ever.
    let own = domain.active();
    domain.renew(&own);
    domain.policy("spire.renew", "true");
    check(&mut domain, (svid("n1"), command), granted(&["host.active", "certificate.renewed"]));
}

#[test]
fn whoever_has_an_svid_takes_no_place_from_the_renewals_of_the_host() {
    let mut domain = Domain::founded();
    let host = domain.active();
    let id = host.node.clone();
    for _ in 0..16 {
        assert_eq!(has_place_by_svid(&domain.state, &id), Ok(()));
        let key = KeyHash::new(domain.digest());
        let renew = domain.renewal(&id, key);
        let shown = (svid(id.as_str()), Command::Renew(Box::new(renew)));
        check(&mut domain, shown, granted(&["certificate.renewed"]));
    }
    let full = Err(Rejection::TooManyCertificates { node: id.clone() });
    assert_eq!(has_place_by_svid(&domain.state, &id), full);
    // The host's own renewal replaces what nobody has shown, and is replaced by nobody.
    let next = domain.renew(&host);
    check(&mut domain, contact(&next), granted(&["certificate.seen", "certificate.superseded"]));
    assert!(domain.state.is_good(&next.serial));
}

/// Somebody who knows what the machine is known by.
fn stranger(domain: &mut Domain) -> (Actor, Command) {
    let token = domain.mint();
    let claimed = hardware(&["52:54:00:12:34:56"], "");
    let request = Enroll { credential: Credential::Hardware(claimed), ..domain.request(token) };
    enroll(domain.prepare(request))
}

/// A heartbeat on a stream that shows an SVID.
fn heard_by_svid(domain: &mut Domain, id: &NodeId) {
    let sighting = Sighting { by_svid: true, ..domain.sighting(id) };
    check(domain, (Actor::Reconciler, Command::Observe(vec![sighting])), granted(&["host.seen"]));
}

fn open_to_hardware() -> Domain {
    let mut domain = Domain::founded();
    domain.policy("attestors", "join-token,hardware,recovery-token");
    registered(&mut domain, "n1");
    domain
}

#[test]
fn the_hardware_of_a_node_that_lives_by_its_svid_takes_no_place() {
    let mut domain = open_to_hardware();
    check(&mut domain, (svid("n1"), Command::Contact { node: node("n1") }), granted(&["host.active"]));
    let first = stranger(&mut domain);
    check(&mut domain, first, refused_with("already_active", &["alert.raised"]));
    heard_by_svid(&mut domain, &node("n1"));
    // Nobody could be heard for a while: it is active until it is found silent.
    domain.pass(span("1h"));
    let again = stranger(&mut domain);
    check(&mut domain, again, refused("already_active"));
    domain.silence(&node("n1"));
    let late = stranger(&mut domain);
    check(&mut domain, late, granted(&["host.enrolled", "host.active"]));
}

#[test]
fn a_certificate_that_ended_makes_no_place_free_while_its_node_is_heard() {
    let mut domain = open_to_hardware();
    let first = stranger(&mut domain);
    check(&mut domain, first, granted(&["host.enrolled", "host.active"]));
    domain.pass(span("25h"));
    heard_by_svid(&mut domain, &node("n1"));
    let again = stranger(&mut domain);
    check(&mut domain, again, refused_with("already_active", &["alert.raised"]));
}

#[test]
fn a_machine_whose_issuer_was_revoked_enrolls_again_at_once_unless_it_lives_by_its_svid() {
    for by_svid in [false, true] {
        let mut domain = open_to_hardware();
        let first = stranger(&mut domain);
        check(&mut domain, first, granted(&["host.enrolled", "host.active"]));
        domain.pass(span("1m"));
        domain.streams(&node("n1"));
        let issuer = domain.state.issuers.keys().next().unwrap().clone();
        domain.roll("next");
        let (reason, confirm) = ("lost".to_owned(), Confirmation::NotAsked);
        let revoke = Command::RevokeIssuer { issuer, reason, confirm, asks_for_holders: false };
        check(&mut domain, (local(), revoke), granted(&["ca.revoked"]));
        domain.pass(span("1s"));
        if by_svid {
            heard_by_svid(&mut domain, &node("n1"));
        }
        let again = stranger(&mut domain);
        let expect = match by_svid {
            true => refused_with("already_active", &["alert.raised"]),
            false => granted(&["host.enrolled", "host.active"]),
        };
        check(&mut domain, again, expect);
    }
}

#[test]
fn a_token_that_replaces_a_node_that_lives_by_its_svid_is_reported() {
    let mut domain = open_to_hardware();
    check(&mut domain, (svid("n1"), Command::Contact { node: node("n1") }), granted(&["host.active"]));
    let token = domain.mint_pinned(&node("n1"));
    let request = domain.request(token);
    let request = domain.prepare(request);
    check(&mut domain, enroll(request), granted(&["host.enrolled", "alert.raised"]));
    assert!(domain.state.open_alert(AlertKind::NodeReplaced, Some(&node("n1"))).is_some());
}

#[test]
fn a_recovery_token_of_a_node_that_lives_by_its_svid_is_not_needed() {
    let mut domain = Domain::founded();
    let (before, token) = domain.provided();
    domain.pass(span("25h"));
    heard_by_svid(&mut domain, &before.node);
    let request = domain.recovery(token.hash);
    let strict = Recover { strict: true, svid_counts: true, ..request.clone() };
    check(&mut domain, recover(strict), refused("recovery_not_needed"));
    check(&mut domain, recover(request), granted(&["recovery.requested", "recovery.issued"]));
}
