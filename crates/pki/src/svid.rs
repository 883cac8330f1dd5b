//! X.509-SVIDs of other trust domains, as SPIRE issues them: whose they are, and whether the CAs of that domain vouch for them.
//! Nothing of our own trust domain is ever believed from here.

use lifecycle::names::{Fingerprint, Timestamp, TrustDomain};
use rustls_pki_types::{CertificateDer, TrustAnchor};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::verify::{MAX_LEAF_BYTES, PeerCertificate, PeerError};
use crate::{describe, pem, verify, x509_time};

/// CAs between an SVID and its trust bundle that are looked at: more than SPIRE's own hierarchies have.
const INTERMEDIATES: usize = 3;
const MAX_ID: usize = 2048;

/// `spiffe://DOMAIN/PATH` of any trust domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SvidId {
    pub domain: TrustDomain,
    /// With its first slash.
    pub path: String,
}

impl SvidId {
    pub fn parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix("spiffe://").filter(|_| uri.len() <= MAX_ID)?;
        let (domain, path) = rest.split_at(rest.find('/')?);
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let is_segment = |segment: &str| {
            !segment.is_empty() && segment.bytes().all(plain) && segment != "." && segment != ".."
        };
        let whole = path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_segment));
        whole.then_some(())?;
        Some(Self { domain: TrustDomain::parse(domain).ok()?, path: path.to_owned() })
    }

    /// The one URI of a certificate that has been verified by nobody.
    pub fn claimed(leaf: &CertificateDer<'_>) -> Option<Self> {
        let leaf = EndEntityCert::try_from(leaf).ok()?;
        let mut uris = leaf.valid_uri_names();
        match (uris.next(), uris.next()) {
            (Some(uri), None) => Self::parse(uri),
            _ => None,
        }
    }
}

impl std::fmt::Display for SvidId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spiffe://{}{}", self.domain, self.path)
    }
}

/// An SVID that its trust domain vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedSvid {
    pub id: SvidId,
    /// Of the CA in the trust bundle.
    pub anchor: Fingerprint,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("{0}")]
    Pem(#[from] pem::PemError),
    #[error("certificate {number} of the bundle is no CA: {why}")]
    NotAnAnchor { number: usize, why: String },
}

#[derive(Debug, Clone)]
struct SvidAnchor {
    trust: TrustAnchor<'static>,
    fingerprint: Fingerprint,
    subject: String,
    serial: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// What is said of a CA in a trust bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorFacts {
    pub fingerprint: Fingerprint,
    pub subject: String,
    pub serial: String,
    pub not_after: Timestamp,
}

/// The CAs of one trust domain.
#[derive(Debug, Clone)]
pub struct TrustBundle {
    domain: TrustDomain,
    anchors: Vec<SvidAnchor>,
}

impl TrustBundle {
    /// All of the file or nothing of it: half a bundle would turn hosts away.
    pub fn read(domain: &TrustDomain, text: &[u8]) -> Result<Self, BundleError> {
        let mut anchors = Vec::new();
        for (number, der) in (1..).zip(pem::certificates(text)?) {
            let wrong = |why: String| BundleError::NotAnAnchor { number, why };
            let facts = describe::facts(&der).map_err(|error| wrong(error.to_string()))?;
            if !facts.is_ca {
                return Err(wrong("it may not sign certificates".to_owned()));
            }
            let trust = anchor_from_trusted_cert(&der).map_err(|error| wrong(error.to_string()))?.to_owned();
            anchors.push(SvidAnchor {
                trust,
                fingerprint: facts.fingerprint,
                subject: facts.subject,
                serial: facts.serial.to_string(),
                not_before: facts.not_before,
                not_after: facts.not_after,
            });
        }
        Ok(Self { domain: domain.clone(), anchors })
    }

    pub fn anchors(&self) -> impl Iterator<Item = AnchorFacts> + '_ {
        self.anchors.iter().map(|anchor| AnchorFacts {
            fingerprint: anchor.fingerprint,
            subject: anchor.subject.clone(),
            serial: anchor.serial.clone(),
            not_after: anchor.not_after,
        })
    }

    pub fn holds(&self, anchor: &Fingerprint) -> bool {
        self.anchors.iter().any(|held| held.fingerprint == *anchor)
    }

    /// Verifies path, time, use and identity at this moment. `chain` is what came with the leaf.
    pub fn check(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        at: Timestamp,
    ) -> Result<PeerCertificate, PeerError> {
        if leaf.len() > MAX_LEAF_BYTES || chain.iter().any(|ca| ca.len() > MAX_LEAF_BYTES) {
            return Err(PeerError::Malformed(format!("longer than {MAX_LEAF_BYTES} bytes")));
        }
        let certificate = EndEntityCert::try_from(leaf).map_err(verify::refusal)?;
        let id =
            SvidId::claimed(leaf).ok_or_else(|| PeerError::Malformed("it is no X.509-SVID".to_owned()))?;
        if id.domain != self.domain {
            return Err(PeerError::WrongTrustDomain);
        }
        if !verify::states_extended_use(leaf)? {
            return Err(PeerError::NotClientAuth);
        }
        let chain: Vec<CertificateDer<'_>> =
            chain.iter().take(INTERMEDIATES).map(|ca| CertificateDer::from(ca.as_ref())).collect();
        // webpki ignores an anchor's dates.
        let current = |anchor: &&SvidAnchor| anchor.not_before <= at && at <= anchor.not_after;
        let trusted: Vec<TrustAnchor<'_>> =
            self.anchors.iter().filter(current).map(|anchor| anchor.trust.clone()).collect();
        let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::client_auth());
        let path = certificate
            .verify_for_usage(algorithms, &trusted, &chain, x509_time::unix_time(at), usage, None, None)
            .map_err(verify::refusal)?;
        let (subject, key) = (&path.anchor().subject, &path.anchor().subject_public_key_info);
        let signer = self
            .anchors
            .iter()
            .find(|held| held.trust.subject == *subject && held.trust.subject_public_key_info == *key);
        let anchor = signer.ok_or(PeerError::UnknownIssuer)?.fingerprint;
        let read = PeerCertificate::read(leaf)?;
        Ok(PeerCertificate { spiffe: None, svid: Some(VerifiedSvid { id, anchor }), ..read })
    }
}

/// What an SVID says of itself, for the host that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SvidFacts {
    pub id: SvidId,
    pub serial: lifecycle::names::Serial,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub spki: Vec<u8>,
}

/// Reads an SVID without verifying it: whoever is shown it does that.
pub fn facts(leaf: &CertificateDer<'_>) -> Option<SvidFacts> {
    let facts = describe::facts(leaf).ok().filter(|facts| !facts.is_ca)?;
    Some(SvidFacts {
        id: SvidId::claimed(leaf)?,
        serial: facts.serial,
        fingerprint: facts.fingerprint,
        not_before: facts.not_before,
        not_after: facts.not_after,
        spki: facts.spki,
    })
}

/// The certificates of a DER sequence without anything between them, as the Workload API sends them; nothing if it is not that, or
/// is more than `most`.
pub fn split(ders: &[u8], most: usize) -> Option<Vec<CertificateDer<'static>>> {
    let (mut rest, mut found) = (ders, Vec::new());
    while !rest.is_empty() {
        let (after, _) = X509Certificate::from_der(rest).ok()?;
        let length = rest.len().checked_sub(after.len()).filter(|length| *length > 0)?;
        found.push(CertificateDer::from(rest.get(..length)?.to_vec()));
        rest = after;
        (found.len() <= most).then_some(())?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_spiffe_allows() {
        for good in ["spiffe://a.example/enlist/n-1", "spiffe://a/x/y/Z_9.z"] {
            assert_eq!(SvidId::parse(good).map(|id| id.to_string()).as_deref(), Some(good));
        }
        for bad in [
            "spiffe://a.example",
            "spiffe://a.example/",
            "spiffe://A.example/n",
            "spiffe://a.example/n/",
            "spiffe://a.example//n",
            "spiffe://a.example/../n",
            "spiffe://a.example/n?x=1",
            "spiffe://a.example/n%2f",
            "spiffe://a.example:8443/n",
            "spiffe://user@a.example/n",
            "https://a.example/n",
            "",
        ] {
            assert_eq!(SvidId::parse(bad), None, "{bad}");
        }
        assert_eq!(SvidId::parse(&format!("spiffe://a/{}", "n".repeat(MAX_ID))), None);
    }
}
