//! Lists of revoked certificates, as openssl reads and obeys them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod bench;

use bench::{Bench, now};
use lifecycle::names::{Serial, Span, SpiffeId, Timestamp, TrustDomain};
use pki::agent_key::HostKey;
use pki::crl::{Contents, CrlError, CrlReason, LIFETIME, Revoked, sign_crl};
use pki::hierarchy;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use pki::pem;

fn founded(bench: &Bench) -> SigningIssuer {
    let domain = TrustDomain::parse("probectl").unwrap();
    let made = hierarchy::create(&domain, now(), [[1; 16], [2; 16], [3; 16]]).unwrap();
    bench.write("root.pem", &pem::certificate_pem(&made.root_der));
    bench.write("ca.pem", &pem::certificate_pem(&made.node.der));
    SigningIssuer::new(&made.node.der, &made.node.key).unwrap()
}

/// Writes a leaf to a file of that name.
fn leaf(bench: &Bench, issuer: &SigningIssuer, name: &str, serial: u8) -> Serial {
    let issuance = Issuance {
        subject: SpiffeId::parse("spiffe://probectl/tenant/default/agent/n-1").unwrap(),
        common_name: None,
        serial: [serial; 16],
        signing_time: now(),
        lifetime: Span::from_hours(24),
    };
    let signed = sign_leaf(issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap();
    bench.write(name, &pem::certificate_pem(&signed.der));
    signed.serial
}

fn revoked(serial: Serial, at: Timestamp, reason: CrlReason) -> Revoked {
    Revoked { serial, at, reason }
}

/// Signs a list and writes it to `crl.pem`.
fn list(bench: &Bench, issuer: &SigningIssuer, number: u64, revoked: Vec<Revoked>) {
    let this_update = now();
    let contents = Contents { revoked, number, this_update, next_update: this_update.plus(LIFETIME) };
    bench.write("crl.pem", &pem::crl_pem(&sign_crl(issuer, contents).unwrap()));
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn a_revoked_leaf_is_refused_and_its_neighbour_is_not() {
    let bench = Bench::new();
    let issuer = founded(&bench);
    let bad = leaf(&bench, &issuer, "bad.pem", 5);
    leaf(&bench, &issuer, "good.pem", 6);
    let verify = "verify -x509_strict -crl_check -CRLfile crl.pem -CAfile root.pem -untrusted ca.pem -purpose sslclient";
    list(&bench, &issuer, 1, vec![]);
    bench.run(&format!("{verify} bad.pem good.pem"));
    list(&bench, &issuer, 2, vec![revoked(bad, now(), CrlReason::KeyCompromise)]);
    bench.run(&format!("{verify} good.pem"));
    let (accepted, text) = bench.try_run(&format!("{verify} bad.pem"));
    assert!(!accepted && text.contains("certificate revoked"), "{text}");
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn a_list_says_what_rfc_5280_asks_for() {
    let bench = Bench::new();
    let issuer = founded(&bench);
    let at = now();
    let serial = |text| Serial::parse(text).unwrap();
    let reasons = [
        ("f00", CrlReason::Superseded, "Superseded"),
        ("1", CrlReason::Unspecified, ""),
        ("80", CrlReason::KeyCompromise, "Key Compromise"),
        (
            "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5",
            CrlReason::CessationOfOperation,
            "Cessation Of Operation",
        ),
        ("10000", CrlReason::PrivilegeWithdrawn, "Privilege Withdrawn"),
        ("fff", CrlReason::AffiliationChanged, "Affiliation Changed"),
    ];
    let entries = reasons.iter().map(|(text, reason, _)| revoked(serial(text), at, *reason)).collect();
    list(&bench, &issuer, 4711, entries);
    let text = flat(&bench.run("crl -in crl.pem -noout -text"));
    let key_id = flat(&bench.run("x509 -in ca.pem -noout -ext subjectKeyIdentifier"));
    let key_id = key_id.rsplit(' ').next().unwrap();
    for part in ["Version 2 (0x1)", "X509v3 CRL Number: 4711", key_id] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let places: Vec<_> = ["01", "80", "0F00", "0FFF", "010000", "A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5"]
        .iter()
        .map(|serial| {
            text.find(&format!("Serial Number: {serial} ")).unwrap_or_else(|| panic!("{serial}: {text}"))
        })
        .collect();
    assert!(places.is_sorted(), "{text}");
    for (_, _, words) in reasons {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(text.matches("Reason Code").count(), reasons.len() - 1, "an unspecified reason is left out");
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn an_empty_list_names_nobody() {
    let bench = Bench::new();
    let issuer = founded(&bench);
    for number in [0, 127, 128, u64::MAX] {
        list(&bench, &issuer, number, vec![]);
        let text = flat(&bench.run("crl -in crl.pem -CAfile ca.pem -noout -text"));
        assert!(text.contains("verify OK") && text.contains("No Revoked Certificates"), "{text}");
        let shown = bench.run("crl -in crl.pem -noout -crlnumber");
        assert_eq!(u64::from_str_radix(shown.trim().trim_start_matches("crlNumber=0x"), 16), Ok(number));
    }
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn an_imported_ca_of_any_kind_and_name_signs_lists() {
    let bench = Bench::new();
    for (key, subject) in [
        (
            "-algorithm EC -pkeyopt ec_paramgen_curve:P-256",
            "/DC=org/DC=example/DC=corp/O=Example/CN=Imported",
        ),
        ("-algorithm EC -pkeyopt ec_paramgen_curve:P-384", "/C=DE/O=Käse-Söhne/CN=Imported"),
        ("-algorithm RSA -pkeyopt rsa_keygen_bits:2048", "/O=Example+CN=multi-valued"),
        ("-algorithm ED25519", "/serialNumber=1"),
    ] {
        let issuer = imported(&bench, key, subject, "keyCertSign,cRLSign");
        let bad = leaf(&bench, &issuer, "bad.pem", 5);
        leaf(&bench, &issuer, "good.pem", 6);
        list(&bench, &issuer, 1, vec![revoked(bad, now(), CrlReason::Superseded)]);
        let text = bench.run("crl -in crl.pem -CAfile ca.pem -noout");
        assert!(text.contains("verify OK"), "{key}: {text}");
        bench.run("verify -crl_check -CRLfile crl.pem -CAfile ca.pem good.pem");
        let (accepted, text) = bench.try_run("verify -crl_check -CRLfile crl.pem -CAfile ca.pem bad.pem");
        assert!(!accepted && text.contains("certificate revoked"), "{key}: {text}");
    }
}

fn imported(bench: &Bench, key: &str, subject: &str, usage: &str) -> SigningIssuer {
    bench.run(&format!("genpkey {key} -out ca-key.pem"));
    let request = "req -x509 -new -utf8 -multivalue-rdn -key ca-key.pem -days 30 -out ca.pem";
    bench.run(&format!("{request} -subj {subject} -addext keyUsage=critical,{usage}"));
    let certificate = pem::certificates(&std::fs::read(bench.path("ca.pem")).unwrap()).unwrap().remove(0);
    let key = pem::private_key(&std::fs::read(bench.path("ca-key.pem")).unwrap()).unwrap();
    SigningIssuer::new(&certificate, key.secret_der()).unwrap()
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn a_ca_without_the_right_to_signs_no_list() {
    let bench = Bench::new();
    let issuer = imported(&bench, "-algorithm ED25519", "/CN=leaves-only", "keyCertSign");
    let at = now();
    let contents = Contents { revoked: vec![], number: 1, this_update: at, next_update: at.plus(LIFETIME) };
    assert_eq!(sign_crl(&issuer, contents), Err(CrlError::MayNotSign));
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn a_long_list_is_read_whole() {
    let bench = Bench::new();
    let issuer = founded(&bench);
    let at = now();
    let count = 20_000;
    let many = (0..count).rev().map(|n| {
        revoked(Serial::parse(&format!("40{n:030x}")).unwrap(), at, CrlReason::CessationOfOperation)
    });
    list(&bench, &issuer, 1, many.collect());
    let text = bench.run("crl -in crl.pem -CAfile ca.pem -noout -text");
    assert!(text.contains("verify OK"));
    assert_eq!(text.matches("Serial Number: 40").count(), count);
}
