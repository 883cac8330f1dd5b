//! What a host trusts over the years: a new root in the place of the old one, issuers that a root denies, and what verifies nodes.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use api::agent::{Bundle, EndpointProfile};
use lifecycle::names::{Span, Timestamp};
use pki::crl::sign_root_list;
use pki::hierarchy::{CrossSignedRoot, new_root, new_root_key};
use pki::issuer::SigningIssuer;
use pki::{describe, pem};
use tonic::Status;
use world::host::Host;
use world::plane::Plane;
use world::running::{Running, until};
use world::tls::Domain;

fn enrolled() -> (Arc<Plane>, Host) {
    let (plane, host) = (Plane::start(), Host::new());
    let run = host.enroll(&plane, "good", &[]);
    assert_eq!(run.exit, 0, "{run:?}");
    (plane, host)
}

fn connected() -> (Arc<Plane>, Host, Running) {
    let (plane, host) = enrolled();
    let run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    (plane, host, run)
}

fn now() -> Timestamp {
    Timestamp::from_secs(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs())
}

fn root(domain: &Domain) -> SigningIssuer {
    let key = pem::private_key(domain.made.root_key_pem.as_bytes()).unwrap();
    SigningIssuer::new(&domain.made.root_der, key.secret_der()).unwrap()
}

/// The list of a domain's root that denies these certificates.
fn list(domain: &Domain, number: u64, denied: &[&[u8]]) -> String {
    let denied: Vec<_> = denied.iter().map(|der| (describe::facts(der).unwrap().serial, now())).collect();
    let (at, root) = (now(), root(domain));
    pem::crl_pem(&sign_root_list(&root, &denied, number, at, at.plus(Span::from_days(1))).unwrap())
}

fn successor(domain: &Domain) -> CrossSignedRoot {
    let key = new_root_key().unwrap();
    new_root(&root(domain), &key, now(), Span::from_days(3000), [[7; 16], [8; 16]]).unwrap()
}

fn stored(host: &Host, name: &str) -> String {
    fs::read_to_string(host.path(format!("identity/current/{name}"))).unwrap_or_default()
}

fn generation(host: &Host) -> String {
    fs::read_link(host.path("identity/current")).unwrap().to_str().unwrap().to_owned()
}

/// Sends it, and waits until the host has read it and all before it.
fn send(plane: &Plane, bundle: Bundle) {
    let id = format!("p-{}", plane.record().lives.evidence.len());
    let profile = EndpointProfile { id: id.clone(), ..EndpointProfile::default() };
    let record = plane.record();
    record.lives.send_trust(bundle);
    // Messages are read in their order, and evidence of this one follows.
    record.lives.send_profile(profile);
    drop(record);
    plane.wait("evidence", |record| record.lives.evidence.iter().any(|said| said.endpoint_profile_id == id));
}

#[test]
fn a_control_plane_whose_issuer_the_root_denies_is_refused_from_the_next_connection_on() {
    let (plane, host, mut run) = connected();
    let denying = list(&plane.domain, 5, &[&plane.domain.made.server.der]);
    let bundle =
        Bundle { version: 2, pem: plane.root_pem(), root_crls: denying.clone(), ..Bundle::default() };
    plane.record().lives.send_trust(bundle);
    until("the list is kept", || stored(&host, "root-crls.pem") == denying);
    let status = host.status().document();
    let fingerprint = status["trust"]["roots"][0].as_str().unwrap().to_owned();
    assert_eq!(status["trust"]["crl_numbers"][&fingerprint], 5);
    assert_eq!(status["trust"]["bundle_version"], 2);
    let hellos = plane.record().lives.hellos.len();
    plane.record().lives.cut(&Status::unavailable("going away"));
    until("it says why", || run.log().contains("on the revocation list of the root"));
    assert!(run.log().contains("server_tls_untrusted"), "{}", run.log());
    // Nor is a secret sent there: not the recovery token, and not by a pin.
    let recovered = host.run(&["recover", "--json"]);
    assert_eq!(recovered.exit, 1, "the daemon runs");
    assert_eq!(run.stop(), 0);
    let recovered = host.run(&["recover", "--json"]);
    assert_eq!(
        (recovered.exit, recovered.code().as_str()),
        (4, "recovery_enrollment_blocked"),
        "{recovered:?}"
    );
    let anew = host.enroll(&plane, "another", &["--replace", "--timeout", "1s"]);
    assert_eq!((anew.exit, anew.code().as_str()), (4, "server_tls_untrusted"), "{anew:?}");
    let record = plane.record();
    assert_eq!((record.lives.hellos.len(), record.recoveries.len(), record.enrolls), (hellos, 0, 1));
}

#[test]
fn a_list_gives_way_to_a_newer_one_of_its_root_and_to_no_other() {
    let (plane, host, mut run) = connected();
    let domain = &plane.domain;
    let node = domain.made.node.der.as_slice();
    let offer = |version, root_crls: &str| Bundle {
        version,
        pem: plane.root_pem(),
        root_crls: root_crls.to_owned(),
        ..Bundle::default()
    };
    let newest = list(domain, 9, &[node]);
    send(&plane, offer(2, &newest));
    assert_eq!(stored(&host, "root-crls.pem"), newest);
    let meta = fs::metadata(host.path("identity/current/root-crls.pem")).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o644);
    let foreign = list(&Domain::found(now()), 10, &[]);
    for older in [list(domain, 8, &[]), list(domain, 9, &[]), foreign, "garbage".to_owned(), String::new()] {
        send(&plane, offer(2, &older));
        assert_eq!(stored(&host, "root-crls.pem"), newest, "{older}");
    }
    assert_eq!(run.log().matches("revocation list of a root is not kept").count(), 1, "{}", run.log());
    // Also across a restart, and where the bundle beside it is refused.
    assert_eq!(run.stop(), 0);
    let _run = Running::start(&host);
    plane.wait("connected again", |record| {
        record.lives.hellos.last().is_some_and(|(_, hello)| hello.bundle_version == 2)
    });
    let newer = list(domain, 10, &[node]);
    let refused = Bundle { pem: Plane::start().root_pem(), ..offer(3, &newer) };
    send(&plane, refused);
    assert_eq!(stored(&host, "root-crls.pem"), newer);
    assert_eq!(host.status().document()["trust"]["bundle_version"], 2);
}

#[test]
fn a_new_root_is_taken_with_its_cross_certificate_and_stored_without_it() {
    let (plane, host, _run) = connected();
    let old = plane.root_pem();
    let CrossSignedRoot { root_der, cross_der } = successor(&plane.domain);
    let (new, cross) = (pem::certificate_pem(&root_der), pem::certificate_pem(&cross_der));
    // The same root certified by somebody else of the same name, and by nobody.
    let forged = pem::certificate_pem(&successor(&Domain::found(now())).cross_der);
    for (version, wrong) in [(2, format!("{old}{new}{forged}")), (3, format!("{old}{new}")), (4, new.clone())]
    {
        send(&plane, Bundle { version, pem: wrong, ..Bundle::default() });
        assert_eq!(stored(&host, "bundle.pem"), old);
        assert_eq!(host.status().document()["trust"]["bundle_version"], 1);
    }
    send(&plane, Bundle { version: 5, pem: format!("{old}{new}{cross}"), ..Bundle::default() });
    assert_eq!(stored(&host, "bundle.pem"), format!("{old}{new}"));
    send(&plane, Bundle { version: 6, pem: format!("{new}{cross}"), ..Bundle::default() });
    assert_eq!(stored(&host, "bundle.pem"), new);
    plane.wait("evidence of it", |record| record.lives.evidence.iter().any(|said| said.bundle_version == 6));
    // The old root does not come back, by its own cross-certificate least of all; that it is offered is no alarm.
    send(&plane, Bundle { version: 7, pem: format!("{old}{new}{cross}"), ..Bundle::default() });
    assert_eq!(stored(&host, "bundle.pem"), new);
    send(&plane, Bundle { version: 8, pem: old, ..Bundle::default() });
    assert_eq!(stored(&host, "bundle.pem"), new);
    assert_eq!(host.status().document()["trust"]["bundle_version"], 7);
}

#[test]
fn what_verifies_nodes_is_kept_apart_and_one_change_is_one_generation() {
    let (plane, host) = (Plane::start(), Host::new());
    let link = host.dir().with_file_name("node-issuers.pem");
    host.settings(&format!("[files]\nnode_issuers = {:?}\n", link.to_str().unwrap()));
    assert_eq!(host.enroll(&plane, "good", &[]).exit, 0);
    let issuer = pem::certificate_pem(&plane.domain.made.node.der);
    // A control plane of an older version says nothing of it.
    assert_eq!(fs::read_to_string(&link).unwrap(), format!("{issuer}{}", plane.root_pem()));
    let mut run = Running::start(&host);
    plane.wait("connected", |record| !record.lives.evidence.is_empty());
    assert_eq!(plane.record().lives.hellos[0].1.node_issuers_version, Some(0));
    let before = generation(&host);
    let other = pem::certificate_pem(&Domain::found(now()).made.node.der);
    let offer = |node_issuers: String, node_issuers_version, root_crls: String| Bundle {
        version: 1,
        pem: plane.root_pem(),
        root_crls,
        node_issuers,
        node_issuers_version,
    };
    let issuers = format!("{issuer}{other}{}", plane.root_pem());
    plane.record().lives.send_trust(offer(issuers.clone(), 4, String::new()));
    until("they are kept", || fs::read_to_string(&link).unwrap() == issuers);
    assert_eq!(stored(&host, "bundle.pem"), plane.root_pem(), "never by what to trust the control plane");
    let number = |name: &str| name.parse::<u64>().unwrap();
    let after = generation(&host);
    assert_eq!(number(&after), number(&before) + 1);
    // The same again changes nothing; a leaf and garbage are not taken; what the root denies is left out.
    let leaf = stored(&host, "cert.pem");
    for wrong in [issuers.clone(), leaf, "garbage".to_owned()] {
        plane.record().lives.send_trust(offer(
            wrong.clone(),
            if wrong == issuers { 4 } else { 5 },
            String::new(),
        ));
    }
    let denying = list(&plane.domain, 1, &[&plane.domain.made.node.der]);
    plane.record().lives.send_trust(offer(issuers, 6, denying));
    let left = format!("{other}{}", plane.root_pem());
    until("what is denied is gone", || fs::read_to_string(&link).unwrap() == left);
    assert_eq!(number(&generation(&host)), number(&after) + 1);
    assert_eq!(run.stop(), 0);
    let _run = Running::start(&host);
    plane.wait("the version remembered", |record| {
        record.lives.hellos.last().is_some_and(|(_, hello)| hello.node_issuers_version == Some(6))
    });
}

#[test]
fn a_directory_without_lists_is_good_and_one_with_spoilt_lists_is_not() {
    let (plane, host, mut run) = connected();
    assert!(!host.path("identity/current/root-crls.pem").exists());
    assert_eq!(run.stop(), 0);
    fs::write(host.path("identity/current/root-crls.pem"), list(&plane.domain, 1, &[])).unwrap();
    assert_eq!(host.status().document()["state"], "enrolled");
    fs::write(host.path("identity/current/root-crls.pem"), "-----BEGIN X509 CRL-----\n!\n").unwrap();
    assert_eq!(host.status().document()["reasons"][0], "identity_damaged");
}
