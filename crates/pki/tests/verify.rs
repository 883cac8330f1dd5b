//! Which client certificates pass, and why the others do not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use lifecycle::names::{Span, SpiffeId, Timestamp, TrustDomain};
use pki::agent_key::HostKey;
use pki::hierarchy::{self, Hierarchy};
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use pki::server_cert::issue_server;
use pki::verify::{NodeIssuers, PeerCertificate, PeerError};
use rustls_pki_types::CertificateDer;

const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Given {
    domain: TrustDomain,
    made: Hierarchy,
    issuer: SigningIssuer,
}

fn given(domain: &str) -> Given {
    let domain = TrustDomain::parse(domain).unwrap();
    let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
    Given { domain, made, issuer }
}

impl Given {
    fn leaf(&self, uri: &str) -> CertificateDer<'static> {
        let issuance = Issuance {
            subject: SpiffeId::parse(uri).unwrap(),
            common_name: Some("worker:n-1".to_owned()),
            serial: [3; 16],
            signing_time: AT,
            lifetime: Span::from_hours(24),
        };
        sign_leaf(&self.issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap().der.into()
    }

    fn issuers(&self) -> NodeIssuers {
        NodeIssuers::new([
            (&self.domain, self.made.root_der.as_slice()),
            (&self.domain, self.made.node.der.as_slice()),
        ])
        .unwrap()
    }
}

const URI: &str = "spiffe://probectl/tenant/default/agent/n-1";

fn check(
    issuers: &NodeIssuers,
    leaf: &CertificateDer<'_>,
    at: Timestamp,
) -> Result<PeerCertificate, PeerError> {
    issuers.check(leaf, at)
}

#[test]
fn a_leaf_alone_is_enough() {
    let given = given("probectl");
    let leaf = given.leaf(URI);
    let peer = check(&given.issuers(), &leaf, AT).unwrap();
    let facts = pki::describe::facts(&leaf).unwrap();
    assert_eq!(peer.serial, facts.serial);
    assert_eq!(peer.fingerprint, facts.fingerprint);
    assert_eq!(peer.not_after, facts.not_after);
    assert_eq!(peer.spiffe.map(|spiffe| spiffe.to_string()).as_deref(), Some(URI));
    assert_eq!(peer.common_name.as_deref(), Some("worker:n-1"));
}

#[test]
fn only_the_issuer_itself_vouches_for_a_leaf() {
    let given = given("probectl");
    let root_only = NodeIssuers::new([(&given.domain, given.made.root_der.as_slice())]).unwrap();
    assert_eq!(check(&root_only, &given.leaf(URI), AT), Err(PeerError::UnknownIssuer));
}

#[test]
fn a_leaf_is_found_among_many_issuers_of_the_same_name() {
    let all: Vec<Given> = (0..40).map(|_| given("probectl")).collect();
    let cas = all.iter().map(|one| (&one.domain, one.made.node.der.as_slice()));
    let issuers = NodeIssuers::new(cas).unwrap();
    for one in &all {
        assert!(check(&issuers, &one.leaf(URI), AT).is_ok());
    }
    assert_eq!(check(&issuers, &given("probectl").leaf(URI), AT), Err(PeerError::UnknownIssuer));
}

#[test]
fn what_a_revoked_issuer_signed_is_revoked() {
    let (ours, theirs) = (given("probectl"), given("probectl"));
    let mut issuers = ours.issuers();
    issuers.add_revoked(&theirs.domain, &theirs.made.node.der).unwrap();
    assert!(check(&issuers, &ours.leaf(URI), AT).is_ok());
    assert_eq!(check(&issuers, &theirs.leaf(URI), AT), Err(PeerError::RevokedIssuer));
    issuers.add_revoked(&ours.domain, &ours.made.node.der).unwrap();
    assert_eq!(check(&issuers, &ours.leaf(URI), AT), Err(PeerError::RevokedIssuer), "listed as both");
}

#[test]
fn a_leaf_that_is_too_long_or_has_an_unusual_key_costs_no_signature_check() {
    let given = given("probectl");
    let issuers = given.issuers();
    let long = vec![0x30; pki::verify::MAX_LEAF_BYTES + 1];
    assert!(matches!(check(&issuers, &long.into(), AT), Err(PeerError::Malformed(_))));
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.not_after = rcgen::date_time_ymd(2040, 1, 1);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuers = NodeIssuers::new([(&given.domain, ca.der().as_ref())]).unwrap();
    let issuer = rcgen::Issuer::new(params.clone(), ca_key);
    params.is_ca = rcgen::IsCa::NoCa;
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    let refused = check(&issuers, leaf.der(), AT).unwrap_err();
    assert!(matches!(&refused, PeerError::Malformed(why) if why.contains("only P-256")), "{refused:?}");
}

#[test]
fn time_is_told_apart_from_everything_else() {
    let given = given("probectl");
    let issuers = given.issuers();
    let leaf = given.leaf(URI);
    assert!(check(&issuers, &leaf, AT.minus(Span::from_secs(60))).is_ok());
    assert_eq!(check(&issuers, &leaf, AT.minus(Span::from_secs(61))), Err(PeerError::NotYetValid));
    assert!(check(&issuers, &leaf, AT.plus(Span::from_hours(24))).is_ok());
    let late = AT.plus(Span::from_secs(86_401));
    assert_eq!(check(&issuers, &leaf, late), Err(PeerError::Expired));
}

#[test]
fn a_stranger_is_unknown_whatever_names_it_uses() {
    let (ours, theirs) = (given("probectl"), given("probectl"));
    assert_eq!(check(&ours.issuers(), &theirs.leaf(URI), AT), Err(PeerError::UnknownIssuer));
    let nobody = NodeIssuers::new([]).unwrap();
    assert_eq!(check(&nobody, &ours.leaf(URI), AT), Err(PeerError::UnknownIssuer));
}

#[test]
fn an_issuer_vouches_for_its_own_domain_only() {
    let (ours, theirs) = (given("probectl"), given("other"));
    let both = NodeIssuers::new([
        (&ours.domain, ours.made.node.der.as_slice()),
        (&theirs.domain, theirs.made.node.der.as_slice()),
    ])
    .unwrap();
    assert!(check(&both, &ours.leaf(URI), AT).is_ok());
    assert_eq!(check(&both, &theirs.leaf(URI), AT), Err(PeerError::WrongTrustDomain));
}

#[test]
fn certificates_for_other_uses_are_no_node_certificates() {
    let given = given("probectl");
    let issuers = given.issuers();
    let server = issue_server(&given.issuer, &["localhost"], "x", [5; 16], AT, Span::from_days(1)).unwrap();
    assert_eq!(check(&issuers, &server.signed.der.into(), AT), Err(PeerError::NotClientAuth));
    let (audit, _) = hierarchy::audit_signer(&given.issuer, &given.domain, [6; 16], AT).unwrap();
    assert_eq!(check(&issuers, &audit.into(), AT), Err(PeerError::NotClientAuth));
    let ca = CertificateDer::from(given.made.node.der.as_slice());
    assert!(matches!(check(&issuers, &ca, AT), Err(PeerError::Malformed(_) | PeerError::UnknownIssuer)));
}

#[test]
fn an_expired_ca_vouches_for_nobody() {
    let domain = TrustDomain::parse("probectl").unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = |end: i32| {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(end, 1, 1);
        params.self_signed(&key).unwrap().der().to_vec()
    };
    let (short, long) = (ca(2021), ca(2040));
    let issuer = SigningIssuer::new(&long, key.serialized_der()).unwrap();
    let issuance = Issuance {
        subject: SpiffeId::parse(URI).unwrap(),
        common_name: None,
        serial: [8; 16],
        signing_time: AT,
        lifetime: Span::from_days(90),
    };
    let leaf = sign_leaf(&issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap().der.into();
    let only_short = NodeIssuers::new([(&domain, short.as_slice())]).unwrap();
    assert_eq!(check(&only_short, &leaf, AT), Err(PeerError::UnknownIssuer));
    let both = NodeIssuers::new([(&domain, short.as_slice()), (&domain, long.as_slice())]).unwrap();
    assert!(check(&both, &leaf, AT).is_ok());
}

#[test]
fn a_leaf_of_an_ephemeral_ca_passes() {
    let domain = TrustDomain::parse("probectl").unwrap();
    let issuer = pki::ephemeral::create(&domain, [7; 16], AT).unwrap();
    let ca = issuer.certificate();
    let issuance = Issuance {
        subject: SpiffeId::parse(URI).unwrap(),
        common_name: None,
        serial: [8; 16],
        signing_time: AT,
        lifetime: Span::from_days(1),
    };
    let leaf = sign_leaf(&issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap().der.into();
    assert!(check(&NodeIssuers::new([(&domain, ca)]).unwrap(), &leaf, AT).is_ok());
}

#[test]
fn no_damaged_certificate_passes_or_panics() {
    let given = given("probectl");
    let issuers = given.issuers();
    let leaf = given.leaf(URI);
    for place in 0..leaf.len() {
        let mut changed = leaf.to_vec();
        changed[place] ^= 0x55;
        assert!(check(&issuers, &changed.into(), AT).is_err(), "changed at {place}");
        assert!(check(&issuers, &leaf[..place].into(), AT).is_err(), "cut at {place}");
    }
}
