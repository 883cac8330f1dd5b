//! What openssl makes, Enlist reads; what Enlist makes, openssl accepts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod bench;

use std::path::{Path, PathBuf};

use bench::{Bench, now};
use lifecycle::names::{IssuerUse, Span, SpiffeId, Timestamp, TrustDomain};
use pki::csr::{self, CsrError, KeyError, KeyKind};
use pki::hierarchy;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use pki::pem;
use pki::roll::{IntermediateError, check_intermediate, intermediate_request};
use pki::server_cert::{DEFAULT_COMMON_NAME, issue_server};
use pki::verify::{is_issued_by, is_issued_by_another};

impl Bench {
    /// A key by `genpkey` and a request for it.
    fn request(&self, key: &str, req: &str) -> Vec<u8> {
        self.run(&format!("genpkey {key} -out key.pem"));
        self.run(&format!("req -new -key key.pem -subj /CN=n-1 {req} -out csr.pem"));
        std::fs::read(self.path("csr.pem")).unwrap()
    }
}

fn domain() -> TrustDomain {
    TrustDomain::parse("probectl").unwrap()
}

fn issuance(at: Timestamp) -> Issuance {
    Issuance {
        subject: SpiffeId::parse("spiffe://probectl/tenant/default/agent/n-1").unwrap(),
        common_name: Some("worker:n-1".to_owned()),
        serial: [0xa5; 16],
        signing_time: at,
        lifetime: Span::from_hours(24),
    }
}

const P256: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";
const P384: &str = "-algorithm EC -pkeyopt ec_paramgen_curve:P-384";

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn every_accepted_key_and_digest_becomes_a_certificate_that_openssl_verifies() {
    let bench = Bench::new();
    let at = now();
    let made = hierarchy::create(&domain(), at, [[1; 16], [2; 16], [3; 16]]).unwrap();
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
    bench.write("root.pem", &pem::certificate_pem(&made.root_der));
    bench.write("intermediate.pem", &pem::certificate_pem(&made.node.der));
    for (key, digest, kind) in [
        (P256, "-sha256", KeyKind::P256),
        (P256, "-sha384", KeyKind::P256),
        (P256, "-sha512", KeyKind::P256),
        (P384, "-sha256", KeyKind::P384),
        (P384, "-sha384", KeyKind::P384),
        (P384, "-sha512", KeyKind::P384),
        ("-algorithm RSA -pkeyopt rsa_keygen_bits:2048", "-sha256", KeyKind::Rsa),
        ("-algorithm RSA -pkeyopt rsa_keygen_bits:2048", "-sha384", KeyKind::Rsa),
        ("-algorithm RSA -pkeyopt rsa_keygen_bits:3072", "-sha512", KeyKind::Rsa),
        ("-algorithm ED25519", "-batch", KeyKind::Ed25519),
    ] {
        let request =
            csr::read(&bench.request(key, digest)).unwrap_or_else(|error| panic!("{key} {digest}: {error}"));
        assert_eq!((request.kind, request.common_name.as_deref()), (kind, Some("n-1")));
        let signed = sign_leaf(&issuer, &request.spki, &issuance(at)).unwrap();
        bench.write("leaf.pem", &pem::certificate_pem(&signed.der));
        bench.run(
            "verify -x509_strict -purpose sslclient -CAfile root.pem -untrusted intermediate.pem leaf.pem",
        );
        let (key, certificate) =
            (bench.run("pkey -in key.pem -pubout"), bench.run("x509 -in leaf.pem -noout -pubkey"));
        assert_eq!(key, certificate, "the key is copied byte for byte");
        let serial = bench.run("x509 -in leaf.pem -noout -serial").to_lowercase();
        assert_eq!(serial.trim(), format!("serial={}", signed.serial));
    }
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn weak_keys_and_digests_are_refused() {
    let bench = Bench::new();
    let rsa = |bits| format!("-algorithm RSA -pkeyopt rsa_keygen_bits:{bits}");
    for (key, digest, expected) in [
        (rsa(1024), "-sha256", CsrError::Key(KeyError::RsaSize(1024))),
        (rsa(2048), "-sha1", CsrError::SignatureAlgorithm),
        (rsa(2048), "-md5", CsrError::SignatureAlgorithm),
        (rsa(2048), "-sha224", CsrError::SignatureAlgorithm),
        (rsa(2048), "-sigopt rsa_padding_mode:pss", CsrError::SignatureAlgorithm),
        (P256.to_owned(), "-sha1", CsrError::SignatureAlgorithm),
        (P256.to_owned() + " -pkeyopt ec_param_enc:explicit", "-sha256", CsrError::Key(KeyError::Kind)),
        (P256.replace("P-256", "P-521"), "-sha512", CsrError::Key(KeyError::Kind)),
        (P256.replace("P-256", "secp256k1"), "-sha256", CsrError::Key(KeyError::Kind)),
        ("-algorithm ED448".to_owned(), "-batch", CsrError::Key(KeyError::Kind)),
    ] {
        assert_eq!(csr::read(&bench.request(&key, digest)), Err(expected), "{key} {digest}");
    }
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn what_a_request_asks_for_is_ignored() {
    let bench = Bench::new();
    let wish = "-addext 1.2.3.4.5=critical,ASN1:UTF8String:x -addext basicConstraints=CA:TRUE \
                -addext subjectAltName=URI:spiffe://probectl/tenant/default/agent/another,DNS:another";
    let request = csr::read(&bench.request(P256, &format!("{wish} -subj /CN=another"))).unwrap();
    let at = now();
    let made = hierarchy::create(&domain(), at, [[1; 16], [2; 16], [3; 16]]).unwrap();
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
    let signed = sign_leaf(&issuer, &request.spki, &issuance(at)).unwrap();
    bench.write("leaf.pem", &pem::certificate_pem(&signed.der));
    let text = bench.run("x509 -in leaf.pem -noout -text");
    assert!(!text.contains("another") && !text.contains("1.2.3.4.5") && !text.contains("CA:TRUE"), "{text}");
    assert!(text.contains("spiffe://probectl/tenant/default/agent/n-1"), "{text}");
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn a_request_with_a_bad_signature_is_refused() {
    let bench = Bench::new();
    bench.request(P256, "-sha256");
    bench.run("req -in csr.pem -outform DER -out csr.der");
    let mut der = std::fs::read(bench.path("csr.der")).unwrap();
    let last = der.len() - 1;
    der[last] ^= 1;
    assert_eq!(csr::read_der(&der), Err(CsrError::Signature));
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn the_certificates_say_what_they_should() {
    let bench = Bench::new();
    let at = now();
    let made = hierarchy::create(&domain(), at, [[1; 16], [2; 16], [3; 16]]).unwrap();
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
    let request = csr::read(&bench.request(P256, "-sha256")).unwrap();
    let leaf = sign_leaf(&issuer, &request.spki, &issuance(at)).unwrap();
    let nameless =
        sign_leaf(&issuer, &request.spki, &Issuance { common_name: None, ..issuance(at) }).unwrap();
    let names = ["localhost", "cp-1.example", "10.0.0.1", "fd00::1"];
    let server_issuer = SigningIssuer::new(&made.server.der, &made.server.key).unwrap();
    let server =
        issue_server(&server_issuer, &names, DEFAULT_COMMON_NAME, [4; 16], at, Span::from_days(30)).unwrap();
    let (audit, _) = hierarchy::audit_signer(&server_issuer, &domain(), [5; 16], at).unwrap();
    for (name, der) in [
        ("root", &made.root_der),
        ("intermediate", &made.node.der),
        ("server-intermediate", &made.server.der),
        ("leaf", &leaf.der),
        ("nameless", &nameless.der),
        ("server", &server.signed.der),
        ("audit", &audit),
    ] {
        bench.write(&format!("{name}.pem"), &pem::certificate_pem(der));
    }
    keep(bench.0.path());
    let chain =
        "-x509_strict -CAfile root.pem -untrusted intermediate.pem -untrusted server-intermediate.pem";
    bench.run("verify -x509_strict -CAfile root.pem intermediate.pem");
    bench.run("verify -x509_strict -CAfile root.pem server-intermediate.pem");
    bench.run(&format!("verify {chain} -purpose sslclient leaf.pem"));
    bench.run(&format!("verify {chain} -purpose sslclient nameless.pem"));
    bench.run(&format!("verify {chain} -purpose sslserver -verify_hostname cp-1.example server.pem"));
    bench.run(&format!("verify {chain} -purpose sslserver -verify_ip fd00::1 server.pem"));
    bench.run(&format!("verify {chain} audit.pem"));
    for (purpose, name) in
        [("sslserver", "leaf"), ("sslclient", "server"), ("sslclient", "audit"), ("sslserver", "audit")]
    {
        let (accepted, text) = bench.try_run(&format!("verify {chain} -purpose {purpose} {name}.pem"));
        assert!(!accepted, "{name} passes for {purpose}: {text}");
    }
    let says = |name: &str, expected: &[&str]| {
        let text = bench.run(&format!("x509 -in {name}.pem -noout -text"));
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        expected.iter().for_each(|part| assert!(flat.contains(part), "{name} lacks {part}\n{text}"));
    };
    says(
        "root",
        &[
            "critical CA:TRUE, pathlen:1",
            "critical Certificate Sign, CRL Sign",
            "CN = probectl Enlist Root CA",
        ],
    );
    let issuer_says = ["critical CA:TRUE, pathlen:0", "critical Certificate Sign, CRL Sign"];
    says("intermediate", &issuer_says);
    says("server-intermediate", &issuer_says);
    says("intermediate", &["Extended Key Usage: TLS Web Client Authentication X509v3"]);
    says("server-intermediate", &["Extended Key Usage: TLS Web Server Authentication X509v3"]);
    says(
        "leaf",
        &[
            "Subject: CN = worker:n-1",
            "X509v3 Extended Key Usage: TLS Web Client Authentication X509v3",
            "X509v3 Key Usage: critical Digital Signature X509v3",
            "X509v3 Subject Alternative Name: URI:spiffe://probectl/tenant/default/agent/n-1",
            "X509v3 Basic Constraints: critical CA:FALSE",
        ],
    );
    says(
        "nameless",
        &["Subject: Subject Public Key", "X509v3 Subject Alternative Name: critical URI:spiffe://"],
    );
    says(
        "server",
        &[
            "CN = enlist-control-plane",
            "X509v3 Extended Key Usage: TLS Web Server Authentication X509v3",
            "DNS:localhost, DNS:cp-1.example, IP Address:10.0.0.1, IP Address:FD00:0:0:0:0:0:0:1",
        ],
    );
    says("audit", &["CN = probectl Enlist Audit", "1.3.6.1.5.5.7.3.36"]);
}

/// For a linter to look at: `ENLIST_KEEP_CERTIFICATES=<directory>`.
fn keep(from: &Path) {
    let Some(to) = std::env::var_os("ENLIST_KEEP_CERTIFICATES").map(PathBuf::from) else { return };
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn an_imported_ca_of_any_kind_and_name_signs() {
    let bench = Bench::new();
    let spki = csr::read(&bench.request(P256, "-sha256")).unwrap().spki;
    for (key, subject) in [
        (P256, "/DC=org/DC=example/DC=corp/O=Example/OU=a/OU=b/CN=Imported"),
        (P384, "/C=DE/O=Käse-Söhne/CN=Imported/emailAddress=pki@example.org"),
        ("-algorithm RSA -pkeyopt rsa_keygen_bits:2048", "/O=Example+CN=multi-valued"),
        ("-algorithm ED25519", "/serialNumber=1"),
    ] {
        bench.run(&format!("genpkey {key} -out ca-key.pem"));
        bench.run(&format!(
            "req -x509 -new -utf8 -multivalue-rdn -key ca-key.pem -subj {subject} -days 30 -out ca.pem"
        ));
        let certificate = pem::certificates(&std::fs::read(bench.path("ca.pem")).unwrap()).unwrap().remove(0);
        let key = pem::private_key(&std::fs::read(bench.path("ca-key.pem")).unwrap()).unwrap();
        let issuer = SigningIssuer::new(&certificate, key.secret_der()).unwrap();
        let signed = sign_leaf(&issuer, &spki, &issuance(now())).unwrap();
        bench.write("leaf.pem", &pem::certificate_pem(&signed.der));
        bench.run("verify -purpose sslclient -CAfile ca.pem leaf.pem");
    }
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn openssl_grants_a_request_for_an_intermediate_as_it_stands() {
    let bench = Bench::new();
    let at = now();
    let made = hierarchy::create(&domain(), at, [[1; 16], [2; 16], [3; 16]]).unwrap();
    let waiting = intermediate_request(&domain(), IssuerUse::Node).unwrap();
    bench.write("root.pem", &pem::certificate_pem(&made.root_der));
    bench.write("root-key.pem", &made.root_key_pem);
    bench.write("csr.pem", &waiting.csr_pem);
    let check = |line: &str| {
        bench.run(&format!(
            "x509 -req -in csr.pem -CA root.pem -CAkey root-key.pem -out new.pem -set_serial 9 {line}"
        ));
        let der = pem::certificates(&std::fs::read(bench.path("new.pem")).unwrap()).unwrap().remove(0);
        check_intermediate(&der, &[&made.root_der], &waiting.spki, IssuerUse::Node, at).map(|_| der)
    };
    let der = check("-days 300 -copy_extensions copyall -sha512").unwrap();
    bench.run("verify -x509_strict -CAfile root.pem new.pem");
    let other = hierarchy::create(&domain(), at, [[4; 16], [5; 16], [6; 16]]).unwrap();
    let verified = |root: &[u8]| (is_issued_by(&der, root), is_issued_by_another(&der, root));
    assert_eq!(verified(&made.root_der), (true, false));
    assert_eq!(verified(&other.root_der), (false, true), "of the same name, with another key");
    let issuer = SigningIssuer::new(&der, &waiting.key).unwrap();
    let spki = csr::read(&bench.request(P256, "-sha256")).unwrap().spki;
    let leaf = sign_leaf(&issuer, &spki, &issuance(now())).unwrap();
    bench.write("leaf.pem", &pem::certificate_pem(&leaf.der));
    bench.run("verify -purpose sslclient -CAfile root.pem -untrusted new.pem leaf.pem");
    bench.write("csr.pem", &waiting.csr_pem);
    assert_eq!(check("-days 300").unwrap_err(), IntermediateError::NotCa);
    let weak = check("-days 300 -copy_extensions copyall -sha1");
    assert!(matches!(weak.unwrap_err(), IntermediateError::ForeignRoot(_)));
}

#[test]
#[ignore = "needs openssl: `bash tests/run` installs it"]
fn keys_are_read_in_the_forms_openssl_writes() {
    let bench = Bench::new();
    bench.run("ecparam -name prime256v1 -genkey -out sec1.pem");
    let sec1 = std::fs::read_to_string(bench.path("sec1.pem")).unwrap();
    assert!(sec1.contains("EC PARAMETERS"), "{sec1}");
    bench.run("pkcs8 -topk8 -nocrypt -in sec1.pem -out pkcs8.pem");
    let pkcs8 = std::fs::read_to_string(bench.path("pkcs8.pem")).unwrap();
    let read = |text: &str| pki::agent_key::HostKey::from_pem(text.as_bytes()).unwrap();
    assert_eq!(read(&sec1).spki(), read(&pkcs8).spki());
    bench.write("again.pem", &read(&sec1).to_pem());
    assert_eq!(bench.run("pkey -in again.pem -pubout"), bench.run("pkey -in sec1.pem -pubout"));
    bench.run("genrsa -traditional -out pkcs1.pem 2048");
    bench.run("req -x509 -new -key pkcs1.pem -subj /CN=ca -days 2 -out ca.pem");
    let certificate = pem::certificates(&std::fs::read(bench.path("ca.pem")).unwrap()).unwrap().remove(0);
    let key = pem::private_key(&std::fs::read(bench.path("pkcs1.pem")).unwrap()).unwrap();
    assert!(SigningIssuer::new(&certificate, key.secret_der()).is_ok());
}
