//! Building and signing one certificate, whoever it is for.
//!
//! rcgen writes the body. The issuer's name is then put in byte for byte from the CA certificate: rcgen
//! keeps one attribute of each type, so `DC=org, DC=example` would come out as another name, and no
//! verifier would find the issuer.

use lifecycle::names::{Fingerprint, Serial, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyIdMethod, SerialNumber};
use x509_parser::x509::X509Name;

use crate::issuer::SigningIssuer;
use crate::pkcs11::HsmError;
use crate::signing_key::SignatureError;
use crate::{der, x509_time};

/// The upper bound of RFC 5280 on a common name and on an organization.
const MAX_NAME: usize = 64;
/// Version, serial number and algorithm.
const BEFORE_ISSUER: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    #[error(transparent)]
    Key(#[from] crate::spki::KeyError),
    #[error("the issuer's certificate begins at {0}, after the signing time")]
    IssuerNotYetValid(Timestamp),
    #[error("the issuer's certificate ended at {0}")]
    IssuerExpired(Timestamp),
    #[error("the certificate would have no lifetime")]
    NoLifetime,
    #[error("'{0}' is neither a DNS name nor an IP address")]
    ServerName(String),
    #[error("the certificate could not be built: {0}")]
    Build(String),
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl SignError {
    /// Why the HSM with the issuer's key did not sign, if that is the reason.
    pub fn hsm(&self) -> Option<&HsmError> {
        match self {
            Self::Signature(SignatureError::Hsm(error)) => Some(error),
            _ => None,
        }
    }
}

impl From<rcgen::Error> for SignError {
    fn from(error: rcgen::Error) -> Self {
        Self::Build(error.to_string())
    }
}

/// A certificate, and what the registry records of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub der: Vec<u8>,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// From when to when, to the second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Parameters without names, lifetimes or uses: rcgen's defaults have some of each.
pub(crate) fn blank(serial: [u8; 16], validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serial_number = Some(SerialNumber::from_slice(&positive(serial)));
    params.not_before = x509_time::date_time(validity.not_before);
    params.not_after = x509_time::date_time(validity.not_after);
    params.use_authority_key_identifier_extension = true;
    params
}

/// A name of one common name; empty if there is none that a certificate can hold.
pub(crate) fn common_name(name: Option<&str>) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    if let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME) {
        dn.push(DnType::CommonName, DnValue::Utf8String(name.to_owned()));
    }
    dn
}

/// `<owner> <role>`; a long owner goes into the organization, where a trust domain always fits.
pub(crate) fn role_name(owner: &str, role: &str) -> DistinguishedName {
    let whole = format!("{owner} {role}");
    if whole.len() <= MAX_NAME {
        return common_name(Some(whole.trim_start()));
    }
    let mut dn = DistinguishedName::new();
    if owner.len() <= MAX_NAME {
        dn.push(DnType::OrganizationName, DnValue::Utf8String(owner.to_owned()));
    }
    dn.push(DnType::CommonName, DnValue::Utf8String(role.to_owned()));
    dn
}

/// The owner that [`role_name`] was given; none if it was too long to be named, or if this is another name.
pub(crate) fn role_owner(name: &X509Name<'_>, role: &str) -> Option<String> {
    let common_name = name.iter_common_name().next()?.as_str().ok()?;
    let owner = match common_name.strip_suffix(role)? {
        "" => name.iter_organization().next()?.as_str().ok()?,
        before => before.strip_suffix(' ')?,
    };
    (!owner.is_empty()).then(|| owner.to_owned())
}

/// RFC 7093, method 1: the leftmost 160 bits of the SHA-256 of the key's bits. rcgen would hash the whole
/// SubjectPublicKeyInfo, a method that has no name.
pub(crate) fn key_identifier(key: &impl rcgen::PublicKeyData) -> KeyIdMethod {
    KeyIdMethod::PreSpecified(crate::digest::sha256(key.der_bytes()).into_iter().take(20).collect())
}

/// Builds, signs and sums up.
pub(crate) fn sign(
    issuer: &SigningIssuer,
    key: &impl rcgen::PublicKeyData,
    mut params: CertificateParams,
    validity: Validity,
) -> Result<Signed, SignError> {
    params.key_identifier_method = key_identifier(key);
    let unsigned = params.signed_by(key, issuer.template())?;
    let der = with_issuer_name(unsigned.der(), BEFORE_ISSUER, issuer)?;
    let serial = params.serial_number.as_ref().map(SerialNumber::to_bytes).unwrap_or_default();
    let serial = Serial::from_bytes(&serial).map_err(|error| SignError::Build(error.to_string()))?;
    let fingerprint = crate::digest::fingerprint(&der);
    Ok(Signed { der, serial, fingerprint, not_before: validity.not_before, not_after: validity.not_after })
}

/// Takes the body apart at the issuer, which is empty and comes after so many other elements, puts the
/// issuer's name in and signs the result. The last element before the issuer is the algorithm.
pub(crate) fn with_issuer_name(
    unsigned: &[u8],
    before: usize,
    issuer: &SigningIssuer,
) -> Result<Vec<u8>, SignError> {
    let (head, algorithm, rest) =
        around_issuer(unsigned, before).ok_or_else(|| SignError::Build("unreadable body".to_owned()))?;
    let body = der::wrap(der::SEQUENCE, &[head, issuer.name(), rest]);
    let signature = issuer.key().signature(&body)?;
    Ok(der::wrap(der::SEQUENCE, &[&body, algorithm, &der::wrap(der::BIT_STRING, &[&[0], &signature])]))
}

/// What stands before the issuer, the last element of that, and what stands after the issuer.
fn around_issuer(unsigned: &[u8], before: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let body = der::content(unsigned).and_then(der::content)?;
    let (mut last, mut rest) = (body, body);
    for _ in 0..before {
        (last, rest) = der::split(rest)?;
    }
    let (head, _) = body.split_at_checked(body.len() - rest.len())?;
    let (_empty, after) = der::split(rest)?;
    Some((head, last, after))
}

/// A serial is a positive INTEGER, and sixteen octets whatever chance brought.
fn positive(mut serial: [u8; 16]) -> [u8; 16] {
    let [first, ..] = &mut serial;
    *first = *first & 0x7f | 0x40;
    serial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_serial_is_positive_and_full_length() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let [first, ..] = positive([byte; 16]);
            assert!((0x40..0x80).contains(&first));
        }
    }
}
