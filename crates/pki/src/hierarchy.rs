//! The CAs that Enlist makes itself: an offline root, an intermediate that signs, and what else hangs
//! below them without being a node or a server.

use lifecycle::names::{Span, Timestamp, TrustDomain};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::certificate::{SignError, Signed, Validity, blank, key_identifier, role_name, sign};
use crate::issuer::{Issuer, IssuerError};
use crate::leaf::validity;
use crate::pem;
use crate::signing_key::{SigningKey, SigningKeyError};
use crate::spki::PublicKey;

const ROOT_LIFETIME: Span = Span::from_days(3652);
const INTERMEDIATE_LIFETIME: Span = Span::from_days(365);
/// CAs begin an hour early, so that a host whose clock is behind can verify at once what they sign.
const CA_BACKDATE: Span = Span::from_hours(1);

/// id-kp-documentSigning (RFC 9336). With a use of its own, an audit key cannot pass for a node or a server,
/// and no node's key can pass for the audit key.
pub(crate) const AUDIT_USE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 36];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HierarchyError {
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("this CA may not have another CA below it")]
    PathLength,
}

/// Why certificates given as a chain are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("certificate {0} of the chain cannot be read")]
    Unreadable(usize),
    #[error("certificate {0} of the chain is not signed by the one after it")]
    Detached(usize),
    #[error("the last certificate of the chain is not a self-signed root: append its parents")]
    NoRoot,
}

/// Checks that each certificate is signed by the next and the last by itself.
pub fn check_chain(chain: &[CertificateDer<'_>]) -> Result<(), ChainError> {
    let parsed: Vec<X509Certificate<'_>> = chain
        .iter()
        .enumerate()
        .map(|(at, der)| {
            X509Certificate::from_der(der).map(|(_, read)| read).map_err(|_| ChainError::Unreadable(at + 1))
        })
        .collect::<Result<_, _>>()?;
    let signed_by = |child: &X509Certificate<'_>, parent: &X509Certificate<'_>| {
        child.issuer() == parent.subject() && child.verify_signature(Some(parent.public_key())).is_ok()
    };
    for (at, (child, parent)) in parsed.iter().zip(parsed.iter().skip(1)).enumerate() {
        if !signed_by(child, parent) {
            return Err(ChainError::Detached(at + 1));
        }
    }
    if parsed.last().is_some_and(|root| signed_by(root, root)) { Ok(()) } else { Err(ChainError::NoRoot) }
}

/// Everything a new control plane starts from. The root's key leaves as PEM, for a safe; the
/// intermediate's as PKCS#8, for sealing.
pub struct Hierarchy {
    pub root_der: Vec<u8>,
    pub root_key_pem: Zeroizing<String>,
    pub intermediate_der: Vec<u8>,
    pub intermediate_key: Zeroizing<Vec<u8>>,
}

/// Founds a trust domain: P-256 throughout, ten years for the root, one for the intermediate.
pub fn found(
    domain: &TrustDomain,
    at: Timestamp,
    serials: [[u8; 16]; 2],
) -> Result<Hierarchy, HierarchyError> {
    let [root_serial, intermediate_serial] = serials;
    let (root_der, root_key) = self_signed(domain, "Enlist Root CA", 1, at, ROOT_LIFETIME, root_serial)?;
    let root = Issuer::new(&root_der, &root_key)?;
    let (key, intermediate_key) = SigningKey::generate()?;
    let signed = sign_intermediate(&root, &key.spki(), domain, intermediate_serial, at)?;
    Ok(Hierarchy {
        root_der,
        root_key_pem: pem::key_pem_pkcs8(&root_key),
        intermediate_der: signed.der,
        intermediate_key,
    })
}

/// Certifies the key of an intermediate CA, at the founding and at every roll.
pub fn sign_intermediate(
    root: &Issuer,
    spki: &[u8],
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<Signed, HierarchyError> {
    if root.path_length() == Some(0) {
        return Err(HierarchyError::PathLength);
    }
    let key = PublicKey::read(spki).map_err(SignError::from)?;
    let end = validity(root, at, INTERMEDIATE_LIFETIME)?.not_after;
    let begin = at.whole_second().minus(CA_BACKDATE).max(root.not_before());
    let validity = Validity { not_before: begin, not_after: end };
    let params = ca(domain, "Enlist Intermediate CA", 0, serial, validity);
    Ok(sign(root, &key, params, validity)?)
}

/// A CA for a replica that seals nothing: self-signed, path length 0, an anchor for client certificates only.
pub fn ephemeral(
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
    lifetime: Span,
) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), HierarchyError> {
    self_signed(domain, "Enlist Ephemeral CA", 0, at, lifetime, serial)
}

/// The certificate under which audit checkpoints are signed, and its key in PKCS#8. It lasts as long as its issuer.
pub fn audit_signer(
    issuer: &Issuer,
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), HierarchyError> {
    let (key, pkcs8) = SigningKey::generate()?;
    let validity = validity(issuer, at, issuer.not_after().since(at))?;
    let mut params = blank(serial, validity);
    params.distinguished_name = role_name(domain, "Enlist Audit");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(AUDIT_USE.to_vec())];
    let signed = sign(issuer, &key, params, validity)?;
    Ok((signed.der, pkcs8))
}

fn self_signed(
    domain: &TrustDomain,
    role: &str,
    below: u8,
    at: Timestamp,
    lifetime: Span,
    serial: [u8; 16],
) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), HierarchyError> {
    let (key, pkcs8) = SigningKey::generate()?;
    let at = at.whole_second();
    let validity =
        Validity { not_before: at.minus(CA_BACKDATE), not_after: at.plus(lifetime).whole_second() };
    let mut params = ca(domain, role, below, serial, validity);
    params.key_identifier_method = key_identifier(&key);
    let certificate = params.self_signed(&key).map_err(SignError::from)?;
    Ok((certificate.der().to_vec(), pkcs8))
}

fn ca(
    domain: &TrustDomain,
    role: &str,
    below: u8,
    serial: [u8; 16],
    validity: Validity,
) -> CertificateParams {
    let mut params = blank(serial, validity);
    params.distinguished_name = role_name(domain, role);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe;

    #[test]
    fn a_long_domain_still_gives_names_that_fit() {
        let domain = TrustDomain::parse(&"d".repeat(63)).unwrap();
        let made = found(&domain, Timestamp::from_secs(1_800_000_000), [[1; 16], [2; 16]]).unwrap();
        let facts = describe::facts(&made.intermediate_der).unwrap();
        assert_eq!(facts.common_name.as_deref(), Some("Enlist Intermediate CA"));
        assert!(facts.subject.contains(domain.as_str()));
    }

    #[test]
    fn an_intermediate_certifies_no_further_ca() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let at = Timestamp::from_secs(1_800_000_000);
        let made = found(&domain, at, [[1; 16], [2; 16]]).unwrap();
        let issuer = Issuer::new(&made.intermediate_der, &made.intermediate_key).unwrap();
        let spki = issuer.key().spki();
        let refused = sign_intermediate(&issuer, &spki, &domain, [3; 16], at);
        assert_eq!(refused.unwrap_err(), HierarchyError::PathLength);
    }
}
