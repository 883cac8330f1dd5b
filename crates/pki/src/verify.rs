//! Verification of client certificates: chain, time, usage, and the SPIFFE ID within its trust domain.

use lifecycle::names::{Fingerprint, Serial, SpiffeId, Timestamp, TrustDomain};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, TrustAnchor};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::nom::Parser as _;
use x509_parser::oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE;
use x509_parser::prelude::FromDer as _;

use crate::{describe, x509_time};

/// A host's verified certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    /// None in one that was made elsewhere: whose that is, the record says.
    pub spiffe: Option<SpiffeId>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub common_name: Option<String>,
}

impl PeerCertificate {
    /// Reads a certificate that has been verified already, without verifying it again.
    pub fn read(leaf: &CertificateDer<'_>) -> Result<Self, PeerError> {
        let spiffe = EndEntityCert::try_from(leaf).ok().and_then(|leaf| identity(&leaf).ok());
        peer(&parsed(leaf)?, leaf, spiffe)
    }
}

/// The key of a certificate that webpki cannot read, such as one of version 1.
pub fn raw_key(leaf: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    match EndEntityCert::try_from(leaf) {
        Ok(_) => None,
        Err(_) => Some(describe::facts(leaf).ok()?.spki.into()),
    }
}

/// Each has its own TLS alert: an agent must be able to tell a wrong clock from a wrong control plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("the certificate has expired")]
    Expired,
    #[error("the certificate is not valid yet")]
    NotYetValid,
    #[error("no known issuer has signed this certificate")]
    UnknownIssuer,
    #[error("malformed certificate: {0}")]
    Malformed(String),
    #[error("the certificate's identity is of another trust domain than its issuer")]
    WrongTrustDomain,
    #[error("the certificate is not for client authentication")]
    NotClientAuth,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not usable as a trust anchor: {0}")]
pub struct AnchorError(String);

struct DomainAnchor {
    domain: TrustDomain,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// The CAs by which nodes are verified. A host may send its leaf alone, so intermediates are anchors too;
/// that also makes the common case one signature check.
pub struct NodeIssuers {
    /// In step with `anchors`; apart because webpki wants a slice.
    trust: Vec<TrustAnchor<'static>>,
    anchors: Vec<DomainAnchor>,
}

impl NodeIssuers {
    /// Each CA certificate vouches for identities of its own trust domain only.
    pub fn new<'a>(cas: impl IntoIterator<Item = (&'a TrustDomain, &'a [u8])>) -> Result<Self, AnchorError> {
        let (mut trust, mut anchors) = (Vec::new(), Vec::new());
        for (domain, der) in cas {
            let facts = describe::facts(der).map_err(|error| AnchorError(error.to_string()))?;
            let certificate = CertificateDer::from(der);
            let anchor =
                anchor_from_trusted_cert(&certificate).map_err(|error| AnchorError(error.to_string()))?;
            trust.push(anchor.to_owned());
            anchors.push(DomainAnchor {
                domain: domain.clone(),
                not_before: facts.not_before,
                not_after: facts.not_after,
            });
        }
        Ok(Self { trust, anchors })
    }

    /// Verifies chain, time, use and identity at this moment.
    pub fn check(
        &self,
        leaf: &CertificateDer<'_>,
        sent_intermediates: &[CertificateDer<'_>],
        at: Timestamp,
    ) -> Result<PeerCertificate, PeerError> {
        let certificate = EndEntityCert::try_from(leaf).map_err(refusal)?;
        let path = certificate.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &self.trust,
            sent_intermediates,
            x509_time::unix_time(at),
            KeyUsage::client_auth(),
            None,
            None,
        );
        let path = path.map_err(refusal)?;
        let spiffe = identity(&certificate)?;
        self.check_anchor(path.anchor(), &spiffe, at)?;
        let parsed = parsed(leaf)?;
        // webpki lets a certificate without any stated use pass for every use.
        if !parsed.iter_extensions().any(|extension| extension.oid == OID_X509_EXT_EXTENDED_KEY_USAGE) {
            return Err(PeerError::NotClientAuth);
        }
        peer(&parsed, leaf, Some(spiffe))
    }

    /// Whether the CA at the end of the path is itself within its dates, which webpki does not ask, and may
    /// speak for this domain. The same CA may be listed more than once, with other dates.
    fn check_anchor(&self, end: &TrustAnchor<'_>, spiffe: &SpiffeId, at: Timestamp) -> Result<(), PeerError> {
        let same = |anchor: &TrustAnchor<'_>| {
            anchor.subject == end.subject && anchor.subject_public_key_info == end.subject_public_key_info
        };
        let mut current = self
            .trust
            .iter()
            .zip(&self.anchors)
            .filter(|(trust, anchor)| same(trust) && anchor.not_before <= at && at <= anchor.not_after)
            .peekable();
        if current.peek().is_none() {
            return Err(PeerError::UnknownIssuer);
        }
        if current.any(|(_, anchor)| anchor.domain == spiffe.domain) {
            Ok(())
        } else {
            Err(PeerError::WrongTrustDomain)
        }
    }
}

/// The one URI in the certificate. Two would leave it to chance which of them counts.
fn identity(certificate: &EndEntityCert<'_>) -> Result<SpiffeId, PeerError> {
    let mut uris = certificate.valid_uri_names();
    match (uris.next(), uris.next()) {
        (Some(uri), None) => SpiffeId::parse(uri).map_err(|error| PeerError::Malformed(error.to_string())),
        _ => Err(PeerError::Malformed("expected exactly one URI among the names".to_owned())),
    }
}

/// Without going into extensions that webpki has read already.
fn parsed<'a>(leaf: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, PeerError> {
    let parsed = X509CertificateParser::new().with_deep_parse_extensions(false).parse(leaf);
    parsed.map(|(_, parsed)| parsed).map_err(|error| PeerError::Malformed(error.to_string()))
}

fn peer(
    parsed: &X509Certificate<'_>,
    leaf: &CertificateDer<'_>,
    spiffe: Option<SpiffeId>,
) -> Result<PeerCertificate, PeerError> {
    Ok(PeerCertificate {
        serial: Serial::from_bytes(parsed.raw_serial())
            .map_err(|error| PeerError::Malformed(error.to_string()))?,
        fingerprint: crate::digest::fingerprint(leaf),
        spiffe,
        not_before: x509_time::timestamp(parsed.validity().not_before),
        not_after: x509_time::timestamp(parsed.validity().not_after),
        common_name: describe::common_name(parsed),
    })
}

/// Whether this CA signed this certificate, whatever else is to be said of either.
pub fn is_issued_by(leaf: &CertificateDer<'_>, ca: &[u8]) -> bool {
    let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(leaf), X509Certificate::from_der(ca))
    else {
        return false;
    };
    leaf.issuer() == ca.subject() && leaf.verify_signature(Some(ca.public_key())).is_ok()
}

fn refusal(error: webpki::Error) -> PeerError {
    use webpki::Error;
    match error {
        Error::CertExpired { .. } => PeerError::Expired,
        Error::CertNotValidYet { .. } => PeerError::NotYetValid,
        Error::RequiredEkuNotFoundContext(_) => PeerError::NotClientAuth,
        // A path that does not hold is no path: another replica may know a better one.
        Error::UnknownIssuer
        | Error::InvalidSignatureForPublicKey
        | Error::PathLenConstraintViolated
        | Error::EndEntityUsedAsCa
        | Error::MaximumSignatureChecksExceeded
        | Error::MaximumPathBuildCallsExceeded
        | Error::MaximumPathDepthExceeded => PeerError::UnknownIssuer,
        other => PeerError::Malformed(other.to_string()),
    }
}
