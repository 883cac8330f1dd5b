//! X.509-SVIDs of other trust domains, as SPIRE issues them: whose they are, and whether the CAs of that domain vouch for them.
//! Nothing of our own trust domain is ever believed from here.

use lifecycle::names::{Fingerprint, Timestamp, TrustDomain};
use rustls_pki_types::{CertificateDer, TrustAnchor};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::roll::is_signed_by;
use crate::verify::{MAX_LEAF_BYTES, PeerCertificate, PeerError, SIGNATURE_CHECKS};
use crate::{der, describe, pem, verify, x509_time};

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
    spki: Vec<u8>,
    /// As the CA certificate states it.
    key_id: Option<Vec<u8>>,
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

impl SvidAnchor {
    /// Whether the CA is within its dates, which webpki does not ask.
    fn is_current(&self, at: Timestamp) -> bool {
        self.not_before <= at && at <= self.not_after
    }
}

/// A way from an SVID to a CA of the bundle, as the certificates on it name each other.
struct SvidPath<'a> {
    /// The intermediates, by their place among those that were sent; the one that may have signed the SVID first.
    through: Vec<usize>,
    anchor: &'a SvidAnchor,
}

/// Whom a certificate names as its issuer.
struct IssuerName<'a> {
    name: Option<&'a [u8]>,
    key_id: Option<&'a [u8]>,
}

impl<'a> IssuerName<'a> {
    fn of(certificate: &'a X509Certificate<'_>) -> Self {
        Self { name: der::content(certificate.issuer().as_raw()), key_id: verify::issuer_key_id(certificate) }
    }

    /// Whether this CA may be meant; if so, whether its key is named as well.
    fn fits(&self, subject: Option<&[u8]>, key_id: Option<&[u8]>) -> Option<bool> {
        let is_named = subject.is_some() && subject == self.name;
        match (self.key_id, key_id) {
            (Some(stated), Some(own)) => (is_named && stated == own).then_some(true),
            (None, _) | (_, None) => is_named.then_some(false),
        }
    }
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
            let parsed = verify::parsed(&der).map_err(|error| wrong(error.to_string()))?;
            anchors.push(SvidAnchor {
                trust,
                spki: facts.spki,
                key_id: verify::own_key_id(&parsed).map(<[u8]>::to_vec),
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

    /// Whether a CA is in the bundle and within its dates.
    pub fn holds(&self, anchor: &Fingerprint, at: Timestamp) -> bool {
        self.anchors.iter().any(|held| held.fingerprint == *anchor && held.is_current(at))
    }

    /// Verifies path, time, use and identity at this moment. `chain` is what came with the leaf. The certificate is good for as long as
    /// every CA on its path.
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
        let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::client_auth());
        let verify = |anchors: &[TrustAnchor<'_>], through: &[CertificateDer<'_>]| {
            let at = x509_time::unix_time(at);
            let path = certificate.verify_for_usage(algorithms, anchors, through, at, usage, None, None);
            path.map(drop).map_err(verify::refusal)
        };
        // Without an anchor nothing is verified; webpki still says whether it is the dates or the use.
        match verify(&[], &[]) {
            Ok(()) | Err(PeerError::UnknownIssuer) => {}
            Err(refused) => return Err(refused),
        }
        let parsed = verify::parsed(leaf)?;
        let sent = chain.iter().take(INTERMEDIATES);
        let sent: Vec<_> = sent.filter_map(|ca| Some((ca, verify::parsed(ca).ok()?))).collect();
        let mut paths = Vec::new();
        self.find_paths(&parsed, &sent, at, &[], &mut paths);
        let signed = paths.into_iter().find(|path| path.is_signed(leaf, &sent));
        let SvidPath { through, anchor } = signed.ok_or(PeerError::UnknownIssuer)?;
        let through: Vec<_> = through.iter().filter_map(|index| sent.get(*index)).collect();
        // Every signature is good: what is left are the rules for paths.
        let ders: Vec<CertificateDer<'_>> =
            through.iter().map(|(der, _)| CertificateDer::from(der.as_ref())).collect();
        verify(std::slice::from_ref(&anchor.trust), &ders)?;
        let read = PeerCertificate::read(leaf)?;
        let ends = through.iter().map(|(_, ca)| x509_time::timestamp(ca.validity().not_after));
        let not_after = ends.fold(read.not_after.min(anchor.not_after), Timestamp::min);
        let svid = Some(VerifiedSvid { id, anchor: anchor.fingerprint });
        Ok(PeerCertificate { spiffe: None, svid, not_after, ..read })
    }

    /// The ways from a certificate to the bundle by names and key identifiers, those that name the key first. No signature is checked
    /// here, and so many ways are found as signatures of strangers are worth a check. Of one CA that is in the bundle several times,
    /// the last to end is taken.
    fn find_paths<'a>(
        &'a self,
        from: &X509Certificate<'_>,
        sent: &[(&CertificateDer<'_>, X509Certificate<'_>)],
        at: Timestamp,
        through: &[usize],
        found: &mut Vec<SvidPath<'a>>,
    ) {
        let issuer = IssuerName::of(from);
        for names_the_key in [true, false] {
            for anchor in self.anchors.iter().filter(|anchor| anchor.is_current(at)) {
                let subject = Some(anchor.trust.subject.as_ref());
                if issuer.fits(subject, anchor.key_id.as_deref()) != Some(names_the_key) {
                    continue;
                }
                let is_full = found.len() >= SIGNATURE_CHECKS;
                let same = |path: &&mut SvidPath<'a>| {
                    path.through == through && verify::is_same_ca(&path.anchor.trust, &anchor.trust)
                };
                match found.iter_mut().find(same) {
                    Some(path) if path.anchor.not_after < anchor.not_after => path.anchor = anchor,
                    None if !is_full => found.push(SvidPath { through: through.to_vec(), anchor }),
                    Some(_) | None => {}
                }
            }
            for (index, (_, ca)) in sent.iter().enumerate() {
                let subject = der::content(ca.subject().as_raw());
                if found.len() < SIGNATURE_CHECKS
                    && !through.contains(&index)
                    && issuer.fits(subject, verify::own_key_id(ca)) == Some(names_the_key)
                {
                    self.find_paths(ca, sent, at, &[through, &[index]].concat(), found);
                }
            }
        }
    }
}

impl SvidPath<'_> {
    /// Checks the signatures from the bundle downwards: what a stranger signed is never the key of the next check.
    fn is_signed(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[(&CertificateDer<'_>, X509Certificate<'_>)],
    ) -> bool {
        let mut key = self.anchor.spki.as_slice();
        for (der, ca) in self.through.iter().rev().filter_map(|index| sent.get(*index)) {
            if !is_signed_by(der, key) {
                return false;
            }
            key = ca.public_key().raw;
        }
        is_signed_by(leaf, key)
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
