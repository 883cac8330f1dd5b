//! The signed end of an export: who vouches for it, and where the trail must end.

use api::rest::audit::AuditFault;
use journal::audit::{Footer, footer_message};
use lifecycle::names::{ClusterId, Fingerprint, Timestamp};
use pki::pin::Pin;
use pki::sign::AuditKeyError;
use pki::{pem, sign};

/// Certificates as they come out of a PEM file.
type Certificates = Vec<rustls_pki_types::CertificateDer<'static>>;

/// What the signature must lead to.
#[derive(Debug, Clone)]
pub enum AuditAnchor {
    Roots(Certificates),
    Pin(Pin),
}

/// A footer whose signature is good and leads to the anchor.
#[derive(Debug)]
pub struct VerifiedFooter {
    pub cluster: ClusterId,
    /// The audit key's certificate, DER.
    pub certificate: Vec<u8>,
    last_seq: u64,
    head: Fingerprint,
}

/// What is wrong with a footer, for the report.
#[derive(Debug)]
pub struct Flaw {
    pub what: String,
    /// What to do, where the lines are not the matter.
    pub remedy: Option<&'static str>,
}

impl<T: Into<String>> From<T> for Flaw {
    fn from(what: T) -> Self {
        Self { what: what.into(), remedy: None }
    }
}

impl Flaw {
    fn other_ca() -> Self {
        Self {
            what: "the file was signed under another CA than the given one".to_owned(),
            remedy: Some("give the CA certificate or the CA pin of the control plane that wrote the export"),
        }
    }
}

impl VerifiedFooter {
    pub fn of(line: &str, anchor: &AuditAnchor) -> Result<Self, Flaw> {
        let footer = Footer::read(line).ok_or_else(|| Flaw {
            what: "truncated: the signed footer is missing".to_owned(),
            remedy: Some(super::CUT_OFF),
        })?;
        let unreadable = |what: &str| format!("the footer's {what} cannot be read");
        let head = fingerprint(&footer.head).ok_or_else(|| unreadable("head"))?;
        let at = Timestamp::parse(&footer.exported_at).map_err(|_| unreadable("time"))?;
        let signature = hex::decode(&footer.signature).map_err(|_| unreadable("signature"))?;
        let own = pem::certificates(footer.certificate.as_bytes()).map_err(|_| unreadable("certificate"))?;
        let own = own.first().ok_or_else(|| unreadable("certificate"))?;
        let chain = pem::certificates(footer.chain.as_bytes()).map_err(|_| unreadable("chain"))?;
        let roots = match anchor {
            AuditAnchor::Roots(roots) => roots.clone(),
            AuditAnchor::Pin(pin) => {
                chain.iter().filter(|certificate| pin.matches(certificate)).cloned().collect()
            }
        };
        if roots.is_empty() {
            return Err(Flaw::other_ca());
        }
        sign::verify_audit_chain(own, &chain, &roots, at).map_err(|error| match error {
            // The chain ends with the root, so a given CA that is not in it is another one.
            AuditKeyError::Chain(_) if !roots.iter().any(|root| chain.contains(root)) => Flaw::other_ca(),
            error => Flaw::from(format!("the footer: {error}")),
        })?;
        let message = footer_message(&footer.cluster_id, &footer.domain, footer.last_seq, &head, at);
        if !sign::verify_audit(own, &message, &signature) {
            return Err("the signature of the footer is not valid".into());
        }
        Ok(Self { cluster: footer.cluster_id, certificate: own.to_vec(), last_seq: footer.last_seq, head })
    }

    /// Whether the lines end where the footer says.
    pub fn end(&self, last: u64, hash: &Fingerprint) -> Result<(), AuditFault> {
        let fault = |seq, what| Err(AuditFault { seq: Some(seq), what });
        if last < self.last_seq {
            let what = format!("lines {} to {} are missing before the footer", last + 1, self.last_seq);
            return fault(last + 1, what);
        }
        if last > self.last_seq {
            return fault(self.last_seq + 1, format!("the footer ends the trail at line {}", self.last_seq));
        }
        if *hash != self.head {
            return fault(last, format!("line {last} is not the one that the footer was signed for"));
        }
        Ok(())
    }
}

pub fn fingerprint(digits: &str) -> Option<Fingerprint> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(Fingerprint::new(bytes))
}
