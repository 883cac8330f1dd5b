//! A node that comes by an SVID of another trust domain: it is on no record, and what the registry knows of the node decides.

use crate::support::{
    Domain, check, contact, granted, hardware, local, node, refused, register_hardware, revoke,
};
use lifecycle::names::{KeyHash, Serial};
use lifecycle::registry::{Actor, Command, NodeState, Rejection, by_svid, has_place_by_svid, svid_renewable};

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
