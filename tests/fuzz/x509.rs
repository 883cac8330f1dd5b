//! Certificates, requests and their PEM.

use super::world::{AT, domain, issuer};
use lifecycle::names::{NodeId, Span, SpiffeId, TenantId};
use pki::csr::VerifiedCsr;
use pki::leaf::Issuance;
use pki::verify::{NodeIssuers, PeerCertificate};
use rustls_pki_types::CertificateDer;
use std::sync::LazyLock;

pub fn csr_pem(data: &[u8]) {
    if let Ok(request) = pki::csr::read(data) {
        certify(&request);
    }
}

pub fn csr_der(data: &[u8]) {
    if let Ok(request) = pki::csr::read_der(data) {
        certify(&request);
    }
}

/// What was accepted can be certified, and the certificate is for that key and no other name than ours.
fn certify(request: &VerifiedCsr) {
    let issuance = issuance();
    let signed =
        pki::leaf::sign_leaf(issuer(), &request.spki, &issuance).expect("an accepted key can be certified");
    let facts = pki::describe::facts(&signed.der).expect("our own certificate can be read");
    assert_eq!(facts.spki, request.spki, "the key was not copied byte for byte");
    assert_eq!(pki::digest::key_hash(&facts.spki), request.key);
    assert_eq!(facts.spiffe, Some(issuance.subject.clone()));
    assert_eq!((facts.serial, facts.fingerprint), (signed.serial, signed.fingerprint));
    let peer = ISSUERS.check(&CertificateDer::from(signed.der), AT).expect("our own certificate is accepted");
    assert_eq!(peer.spiffe, Some(issuance.subject));
}

pub fn issuance() -> Issuance {
    let node = NodeId::parse("n-1").expect("a node id");
    Issuance {
        subject: SpiffeId::agent(&domain(), &TenantId::default_tenant(), &node),
        common_name: Some("n-1".to_owned()),
        serial: [7; 16],
        signing_time: AT,
        lifetime: Span::from_hours(24),
    }
}

pub fn pem(data: &[u8]) {
    let first = pki::pem::first_certificate(data);
    if let Ok(found) = pki::pem::certificates(data) {
        assert_eq!(found.first(), first.as_ref().ok());
        let again = pki::pem::chain_pem(found.iter().map(|der| der.as_ref()));
        // Written again it may be longer than what was read, and then over the limit.
        if let Ok(read) = pki::pem::certificates(again.as_bytes()) {
            assert_eq!(read, found);
        }
    }
    if let Ok(key) = pki::pem::private_key(data) {
        let _ = pki::issuer::SigningIssuer::new(issuer().certificate(), key.secret_der());
    }
}

static ISSUERS: LazyLock<NodeIssuers> = LazyLock::new(|| {
    NodeIssuers::new([(&domain(), issuer().certificate())]).expect("the issuer is an anchor")
});

/// A certificate that holds.
static LEAF: LazyLock<CertificateDer<'static>> = LazyLock::new(|| {
    let key = pki::agent_key::HostKey::generate().expect("a key");
    let signed = pki::leaf::sign_leaf(issuer(), &key.spki(), &issuance()).expect("signs");
    CertificateDer::from(signed.der)
});

pub fn client_certificate(data: &[u8]) {
    let sent = CertificateDer::from(data);
    let read = PeerCertificate::read(&sent);
    if let Ok(peer) = ISSUERS.check(&sent, AT) {
        let whose = peer.spiffe.as_ref().map(|spiffe| &spiffe.domain);
        assert_eq!(whose, Some(&domain()), "an identity of another domain");
        assert_eq!(read.as_ref(), Ok(&peer));
        let facts = pki::describe::facts(data).expect("an accepted certificate can be described");
        assert_eq!((facts.serial, facts.spiffe), (peer.serial, peer.spiffe));
    }
    // Whatever stands among the anchors, a leaf of a good one is accepted.
    if let Ok(both) = NodeIssuers::new([(&domain(), data), (&domain(), issuer().certificate())]) {
        assert!(both.check(&LEAF, AT).is_ok(), "another anchor spoils a good one");
    }
    assert!(!pki::proof::holds(data, b"never signed", "00"));
    let _ = pki::describe::facts(data);
    let _ = pki::describe::server_names(data);
    let _ = pki::verify::raw_key(&CertificateDer::from(data));
    let _ = pki::import::read(pki::pem::certificate_pem(data).as_bytes());
    let _ = NodeIssuers::new([(&domain(), data)]);
}
