//! Verification of client certificates: chain, time, usage, and the SPIFFE ID within its trust domain.

use lifecycle::names::{Fingerprint, Serial, SpiffeId, Timestamp, TrustDomain};
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, TrustAnchor};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::extensions::{AuthorityKeyIdentifier, KeyIdentifier};
use x509_parser::nom::Parser as _;
use x509_parser::oid_registry::{
    OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_EXTENDED_KEY_USAGE,
    OID_X509_EXT_SUBJECT_KEY_IDENTIFIER, Oid,
};
use x509_parser::prelude::FromDer as _;

use crate::roll::{has_known_signature, is_signed_by};
use crate::spki::PublicKey;
use crate::svid::VerifiedSvid;
use crate::{der, describe, x509_time};

/// The longest leaf that is read. One with an RSA-4096 key under an RSA-4096 issuer is an eighth of this.
pub const MAX_LEAF_BYTES: usize = 16 * 1024;
/// Signature checks that one leaf may cost. A leaf that Enlist issued names its issuer's key and costs one; two are
/// for issuers of the same name that state no key identifier.
pub(crate) const SIGNATURE_CHECKS: usize = 2;

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
    /// Of one that another trust domain vouches for; it is on no record.
    pub svid: Option<VerifiedSvid>,
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
    #[error("the issuer of this certificate is revoked")]
    RevokedIssuer,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not usable as a trust anchor: {0}")]
pub struct AnchorError(String);

struct DomainAnchor {
    domain: TrustDomain,
    not_before: Timestamp,
    not_after: Timestamp,
    /// As the CA certificate states it.
    key_id: Option<Vec<u8>>,
    revoked: bool,
}

/// The CAs by which nodes are verified. A leaf is signed by one of them directly: what else a peer sends is never
/// looked at, so that nobody without a certificate can have paths built through CAs of its own making.
pub struct NodeIssuers {
    /// In step with `anchors`; apart because webpki wants a slice.
    trust: Vec<TrustAnchor<'static>>,
    anchors: Vec<DomainAnchor>,
}

impl NodeIssuers {
    /// Each CA certificate vouches for identities of its own trust domain only.
    pub fn new<'a>(cas: impl IntoIterator<Item = (&'a TrustDomain, &'a [u8])>) -> Result<Self, AnchorError> {
        let mut issuers = Self { trust: Vec::new(), anchors: Vec::new() };
        for (domain, der) in cas {
            issuers.add(domain, der, false)?;
        }
        Ok(issuers)
    }

    /// Adds a CA that is revoked: what it signed is refused as revoked, and not as of an unknown issuer.
    pub fn add_revoked(&mut self, domain: &TrustDomain, der: &[u8]) -> Result<(), AnchorError> {
        self.add(domain, der, true)
    }

    fn add(&mut self, domain: &TrustDomain, der: &[u8], revoked: bool) -> Result<(), AnchorError> {
        let facts = describe::facts(der).map_err(|error| AnchorError(error.to_string()))?;
        let certificate = CertificateDer::from(der);
        let anchor =
            anchor_from_trusted_cert(&certificate).map_err(|error| AnchorError(error.to_string()))?;
        self.trust.push(anchor.to_owned());
        let parsed = parsed(&certificate).map_err(|error| AnchorError(error.to_string()))?;
        let key_id = own_key_id(&parsed).map(<[u8]>::to_vec);
        self.anchors.push(DomainAnchor {
            domain: domain.clone(),
            not_before: facts.not_before,
            not_after: facts.not_after,
            key_id,
            revoked,
        });
        Ok(())
    }

    /// Verifies signature, time, use and identity at this moment.
    pub fn check(&self, leaf: &CertificateDer<'_>, at: Timestamp) -> Result<PeerCertificate, PeerError> {
        if leaf.len() > MAX_LEAF_BYTES {
            return Err(PeerError::Malformed(format!("longer than {MAX_LEAF_BYTES} bytes")));
        }
        let certificate = EndEntityCert::try_from(leaf).map_err(refusal)?;
        let parsed = parsed(leaf)?;
        let signer = self.signer(&certificate, &parsed, at)?;
        let spiffe = identity(&certificate)?;
        self.check_anchor(signer, &spiffe, at)?;
        // webpki lets a certificate without any stated use pass for every use.
        if extension(&parsed, &OID_X509_EXT_EXTENDED_KEY_USAGE).is_none() {
            return Err(PeerError::NotClientAuth);
        }
        peer(&parsed, leaf, Some(spiffe))
    }

    /// The CA that signed this leaf. What costs nothing comes first: dates and use, the issuer's name and key
    /// identifier, the kind and size of the leaf's key; then one signature check, or two.
    fn signer(
        &self,
        certificate: &EndEntityCert<'_>,
        parsed: &X509Certificate<'_>,
        at: Timestamp,
    ) -> Result<&TrustAnchor<'static>, PeerError> {
        let verify = |anchors: &[TrustAnchor<'static>]| {
            let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::client_auth());
            let at = x509_time::unix_time(at);
            certificate
                .verify_for_usage(algorithms, anchors, &[], at, usage, None, None)
                .map(drop)
                .map_err(refusal)
        };
        let named = self.named_as_issuer_of(parsed);
        if named.is_empty() {
            // Without an anchor nothing is verified; webpki still says whether it is the dates or the use.
            verify(&[])?;
        }
        PublicKey::read(parsed.public_key().raw).map_err(|error| PeerError::Malformed(error.to_string()))?;
        let mut refused = PeerError::UnknownIssuer;
        for anchor in named {
            match verify(std::slice::from_ref(anchor)) {
                Ok(()) => return Ok(anchor),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// The CAs that may have signed this leaf: those of the name that it gives and, where both state one, of the same key
    /// identifier. Of several with one key the first; never more than are worth a signature check.
    fn named_as_issuer_of(&self, leaf: &X509Certificate<'_>) -> Vec<&TrustAnchor<'static>> {
        let name = der::content(leaf.issuer().as_raw());
        let key_id = issuer_key_id(leaf);
        let mut named: Vec<&TrustAnchor<'static>> = Vec::new();
        for (trust, anchor) in self.trust.iter().zip(&self.anchors) {
            let contradicted = match (&key_id, &anchor.key_id) {
                (Some(stated), Some(own)) => *stated != own.as_slice(),
                (None, _) | (_, None) => false,
            };
            if Some(trust.subject.as_ref()) == name
                && !contradicted
                && named.len() < SIGNATURE_CHECKS
                && !named.iter().any(|other| is_same_ca(other, trust))
            {
                named.push(trust);
            }
        }
        named
    }

    /// Whether the CA is itself within its dates, which webpki does not ask, may speak for this domain, and is not
    /// revoked. The same CA may be listed more than once, with other dates.
    fn check_anchor(
        &self,
        signer: &TrustAnchor<'_>,
        spiffe: &SpiffeId,
        at: Timestamp,
    ) -> Result<(), PeerError> {
        let same = self.trust.iter().zip(&self.anchors).filter(|(trust, _)| is_same_ca(trust, signer));
        let same: Vec<&DomainAnchor> = same.map(|(_, anchor)| anchor).collect();
        let current = || same.iter().filter(|anchor| anchor.not_before <= at && at <= anchor.not_after);
        if current().next().is_none() {
            Err(PeerError::UnknownIssuer)
        } else if !current().any(|anchor| anchor.domain == spiffe.domain) {
            Err(PeerError::WrongTrustDomain)
        } else if same.iter().any(|anchor| anchor.revoked) {
            Err(PeerError::RevokedIssuer)
        } else {
            Ok(())
        }
    }
}

/// The key identifier that a certificate states of its own key.
pub(crate) fn own_key_id<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    let value = extension(certificate, &OID_X509_EXT_SUBJECT_KEY_IDENTIFIER)?;
    KeyIdentifier::from_der(value).ok().map(|(_, id)| id.0)
}

/// The key identifier that it states of its issuer's key.
pub(crate) fn issuer_key_id<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    let value = extension(certificate, &OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER)?;
    let (_, authority) = AuthorityKeyIdentifier::from_der(value).ok()?;
    authority.key_identifier.map(|id| id.0)
}

/// The same name with the same key, whatever else their certificates say.
pub(crate) fn is_same_ca(one: &TrustAnchor<'_>, other: &TrustAnchor<'_>) -> bool {
    one.subject == other.subject && one.subject_public_key_info == other.subject_public_key_info
}

/// What the first extension of this kind holds.
fn extension<'a>(certificate: &X509Certificate<'a>, kind: &Oid<'_>) -> Option<&'a [u8]> {
    certificate.iter_extensions().find(|extension| extension.oid == *kind).map(|extension| extension.value)
}

/// Whether a certificate says what it may be used for. webpki lets one that does not pass for every use.
pub(crate) fn states_extended_use(leaf: &CertificateDer<'_>) -> Result<bool, PeerError> {
    Ok(extension(&parsed(leaf)?, &OID_X509_EXT_EXTENDED_KEY_USAGE).is_some())
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
pub(crate) fn parsed<'a>(leaf: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, PeerError> {
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
        svid: None,
    })
}

/// Whether this CA signed this certificate, whatever else is to be said of either.
pub fn is_issued_by(leaf: &CertificateDer<'_>, ca: &[u8]) -> bool {
    let der: &[u8] = leaf;
    let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(der), X509Certificate::from_der(ca)) else {
        return false;
    };
    leaf.issuer().as_raw() == ca.subject().as_raw() && has_signed(&ca, der, &leaf)
}

/// By the algorithms of a TLS handshake. Nobody verifies a root's own signature there, so an old root may have signed itself with
/// SHA-1.
fn has_signed(ca: &X509Certificate<'_>, der: &[u8], leaf: &X509Certificate<'_>) -> bool {
    is_signed_by(der, ca.public_key().raw) || (ca == leaf && leaf.verify_signature(None).is_ok())
}

/// Whether it is certain that this CA has not signed this certificate: another is named in it, or the signature, of an algorithm that
/// verifiers know, is not by this CA's key. What cannot be read is not certain.
pub fn is_issued_by_another(leaf: &CertificateDer<'_>, ca: &[u8]) -> bool {
    let der: &[u8] = leaf;
    let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(der), X509Certificate::from_der(ca)) else {
        return false;
    };
    leaf.issuer().as_raw() != ca.subject().as_raw()
        || (has_known_signature(der) && !has_signed(&ca, der, &leaf))
}

pub(crate) fn refusal(error: webpki::Error) -> PeerError {
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
