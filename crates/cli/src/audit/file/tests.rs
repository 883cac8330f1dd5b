use super::*;
use crate::output::Output;
use journal::audit::{Footer, chain, checkpoint_message, footer_message};
use lifecycle::names::{ClusterId, Fingerprint, RequestId, Source, Timestamp, TrustDomain, Ulid};
use lifecycle::registry::{Actor, AuditGap, Checkpoint, Command, Envelope, Event};
use pki::issuer::SigningIssuer;
use pki::pin::Pin;
use pki::sign::AuditKey;
use pki::{hierarchy, pem};

const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

fn cluster() -> ClusterId {
    ClusterId(Ulid::new(AT, [7; 10]))
}

/// A domain that can sign exports.
struct TestDomain {
    root: Vec<u8>,
    intermediate: Vec<u8>,
    certificate: Vec<u8>,
    key: AuditKey,
}

impl TestDomain {
    fn new() -> Self {
        let name = TrustDomain::parse("example").unwrap();
        let made = hierarchy::create(&name, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let issuer = SigningIssuer::new(&made.server.der, &made.server.key).unwrap();
        let (certificate, key) = hierarchy::audit_signer(&issuer, &name, [3; 16], AT).unwrap();
        let key = AuditKey::from_pkcs8(&key).unwrap();
        Self { root: made.root_der, intermediate: made.server.der, certificate, key }
    }

    /// Lines 1 to `count`, the last of which is a checkpoint over the one before.
    fn lines(&self, count: u64) -> (Vec<String>, Fingerprint) {
        let mut head = chain::origin();
        let mut lines = Vec::new();
        for seq in 1..=count {
            let event = if seq == count {
                let message = checkpoint_message(&cluster(), seq - 1, &head);
                Event::CheckpointRecorded(Checkpoint {
                    seq: seq - 1,
                    head,
                    signature: self.key.sign(&message).unwrap(),
                })
            } else {
                Event::AuditGapFound(AuditGap { from: seq, to: seq, refilled: true })
            };
            let envelope = Envelope {
                id: RequestId(cluster().0),
                actor: Actor::Reconciler,
                source: Source::Internal,
                request_id: None,
                correlation_id: None,
                command: Command::Tidy,
            };
            let mut line = Vec::new();
            head = chain::compose(&mut line, seq, &chain::moment(AT), &event, &envelope, &head).unwrap();
            lines.push(String::from_utf8(line).unwrap());
        }
        (lines, head)
    }

    fn footer(&self, last_seq: u64, head: &Fingerprint) -> String {
        let domain = TrustDomain::parse("example").unwrap();
        let message = footer_message(&cluster(), &domain, last_seq, head, AT);
        let footer = Footer {
            cluster_id: cluster(),
            domain,
            last_seq,
            head: head.hex(),
            exported_at: AT.to_string(),
            signature: hex::encode(self.key.sign(&message).unwrap()),
            certificate: pem::certificate_pem(&self.certificate),
            chain: pem::chain_pem([self.intermediate.as_slice(), &self.root]),
        };
        footer.line()
    }

    fn pin(&self) -> AuditAnchor {
        AuditAnchor::Pin(Pin::of(&self.root))
    }
}

/// What is wrong with a file of these lines: sequence and words.
fn check(lines: &[String], anchor: &AuditAnchor) -> Option<(Option<u64>, String)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.jsonl");
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let quiet = Progress::new("verifying", Output::new(true));
    let verdict = verify(&path, anchor, quiet).unwrap().report;
    assert_eq!(verdict.ok, verdict.fault.is_none());
    verdict.fault.map(|fault| (fault.seq, fault.what))
}

#[test]
fn a_whole_export_holds_by_pin_and_by_certificate() {
    let domain = TestDomain::new();
    let (mut lines, head) = domain.lines(5);
    lines.push(domain.footer(5, &head));
    assert_eq!(check(&lines, &domain.pin()), None);
    assert_eq!(check(&lines, &AuditAnchor::Pin(Pin::of(&domain.intermediate))), None);
    let roots = pem::certificates(pem::certificate_pem(&domain.root).as_bytes()).unwrap();
    assert_eq!(check(&lines, &AuditAnchor::Roots(roots)), None);
}

#[test]
fn an_export_of_another_domain_is_refused() {
    let (domain, other) = (TestDomain::new(), TestDomain::new());
    let (mut lines, head) = domain.lines(3);
    lines.push(domain.footer(3, &head));
    let (seq, what) = check(&lines, &other.pin()).unwrap();
    assert_eq!((seq, what.contains("another CA")), (None, true), "{what}");
    let roots = pem::certificates(pem::certificate_pem(&other.root).as_bytes()).unwrap();
    let (seq, what) = check(&lines, &AuditAnchor::Roots(roots)).unwrap();
    assert_eq!((seq, what.contains("another CA")), (None, true), "{what}");
}

#[test]
fn a_file_that_is_no_export_is_called_so() {
    let (_, what) = check(&["# notes".to_owned(), "more".to_owned()], &TestDomain::new().pin()).unwrap();
    assert!(what.contains("not an export"), "{what}");
}

#[test]
fn a_missing_footer_is_called_truncated() {
    let domain = TestDomain::new();
    let (lines, _) = domain.lines(3);
    let (_, what) = check(&lines, &domain.pin()).unwrap();
    assert!(what.starts_with("truncated"), "{what}");
    assert!(check(&[], &domain.pin()).is_some());
}

#[test]
fn what_was_done_to_the_lines_is_named_with_its_place() {
    let domain = TestDomain::new();
    let (lines, head) = domain.lines(5);
    let footer = domain.footer(5, &head);
    let seq_of = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        lines.push(footer.clone());
        change(&mut lines);
        check(&lines, &domain.pin()).unwrap().0
    };
    assert_eq!(seq_of(&|lines| lines[2] = lines[2].replace("true", "fals")), Some(3));
    assert_eq!(seq_of(&|lines| drop(lines.remove(1))), Some(2));
    assert_eq!(seq_of(&|lines| drop(lines.remove(4))), Some(5));
    assert_eq!(seq_of(&|lines| lines.swap(0, 1)), Some(1));
    assert_eq!(seq_of(&|lines| lines.insert(3, "{}".to_owned())), Some(4));
    let earlier = lines.iter().take(4).cloned().collect::<Vec<_>>();
    let (_, another) = domain.lines(9);
    let wrong_head = [earlier, vec![domain.footer(4, &another)]].concat();
    assert_eq!(check(&wrong_head, &domain.pin()).unwrap().0, Some(4));
}

#[test]
fn lines_after_the_footer_do_not_count_as_signed() {
    let domain = TestDomain::new();
    let (mut lines, head) = domain.lines(2);
    lines.push(domain.footer(2, &head));
    lines.extend(domain.lines(4).0.into_iter().skip(2));
    assert!(check(&lines, &domain.pin()).is_some());
}

#[test]
fn a_footer_that_names_another_domain_is_not_good() {
    let world = TestDomain::new();
    let (mut lines, head) = world.lines(3);
    lines.push(world.footer(3, &head).replace("\"domain\":\"example\"", "\"domain\":\"elsewhere\""));
    assert!(check(&lines, &world.pin()).is_some());
}
