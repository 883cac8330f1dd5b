//! The CAs that Enlist makes itself: an offline root, an intermediate that signs, and what else hangs
//! below them without being a node or a server.

use lifecycle::names::{Span, Timestamp, TrustDomain};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::certificate::{SignError, Signed, Validity, blank, key_identifier, role_name, role_owner, sign};
use crate::issuer::{IssuerError, SigningIssuer};
use crate::leaf::validity;
use crate::pem;
use crate::signing_key::{SigningKey, SigningKeyError};
use crate::spki::PublicKey;

const ROOT_ROLE: &str = "Enlist Root CA";
pub(crate) const AUDIT_ROLE: &str = "Enlist Audit";
const ROOT_LIFETIME: Span = Span::from_days(3652);
/// Of an intermediate, unless its root ends earlier.
pub const INTERMEDIATE_LIFETIME: Span = Span::from_days(365);
/// CAs begin an hour early, so that a host whose clock is behind can verify at once what they sign.
pub(crate) const CA_BACKDATE: Span = Span::from_hours(1);

/// id-kp-documentSigning (RFC 9336). With a use of its own, an audit key cannot pass for a node or a server,
/// and no node's key can pass for the audit key.
pub(crate) const AUDIT_USE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 36];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HierarchyError {
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    #[error(transparent)]
    SigningIssuer(#[from] IssuerError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("this CA may not have another CA below it")]
    PathLength,
    #[error("this is the key of the CA that would sign, not of a CA below it")]
    OwnKey,
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
pub fn create(
    domain: &TrustDomain,
    at: Timestamp,
    serials: [[u8; 16]; 2],
) -> Result<Hierarchy, HierarchyError> {
    let [root_serial, intermediate_serial] = serials;
    let (root_der, root_key) = self_signed(domain, ROOT_ROLE, 1, at, ROOT_LIFETIME, root_serial)?;
    let root = SigningIssuer::new(&root_der, &root_key)?;
    let (key, intermediate_key) = SigningKey::generate()?;
    let signed = sign_intermediate(&root, &key.spki(), intermediate_serial, at, INTERMEDIATE_LIFETIME)?;
    Ok(Hierarchy {
        root_der,
        root_key_pem: pem::key_pem_pkcs8(&root_key),
        intermediate_der: signed.der,
        intermediate_key,
    })
}

/// Certifies the key of an intermediate CA, when a domain is initialized and at every roll. Whose CA it is, the root's name
/// says.
pub fn sign_intermediate(
    root: &SigningIssuer,
    spki: &[u8],
    serial: [u8; 16],
    at: Timestamp,
    lifetime: Span,
) -> Result<Signed, HierarchyError> {
    if root.path_length() == Some(0) {
        return Err(HierarchyError::PathLength);
    }
    if spki == root.key().spki() {
        return Err(HierarchyError::OwnKey);
    }
    let key = PublicKey::read(spki).map_err(SignError::from)?;
    let end = validity(root, at, lifetime)?.not_after;
    let begin = at.whole_second().minus(CA_BACKDATE).max(root.not_before());
    let validity = Validity { not_before: begin, not_after: end };
    let name = intermediate_name(&owner(root.certificate()), spki);
    Ok(sign(root, &key, ca(name, 0, serial, validity), validity)?)
}

/// With a piece of the key's digest: verifiers look for issuers and their lists of revocations by name, so
/// two keys must not share one.
pub(crate) fn intermediate_name(owner: &str, spki: &[u8]) -> DistinguishedName {
    let digest: String = crate::digest::key_hash(spki).hex().chars().take(8).collect();
    role_name(owner, &format!("Enlist Intermediate CA {digest}"))
}

/// What the root is called without its role: the trust domain, for a root that was made here. Of another
/// root, the organization or the common name will do.
fn owner(root_der: &[u8]) -> String {
    let Ok((_, root)) = X509Certificate::from_der(root_der) else { return String::new() };
    let subject = root.subject();
    let common_name = subject.iter_common_name().next().and_then(|name| name.as_str().ok());
    let organization = subject.iter_organization().next().and_then(|name| name.as_str().ok());
    let domain = common_name.and_then(|name| name.strip_suffix(ROOT_ROLE)).map(str::trim_end);
    let owner = domain.filter(|domain| !domain.is_empty()).or(organization).or(common_name);
    owner.unwrap_or_default().to_owned()
}

/// The trust domain that a root was made for; none for a root that was made elsewhere.
pub fn root_domain(root_der: &[u8]) -> Option<String> {
    let (_, root) = X509Certificate::from_der(root_der).ok()?;
    role_owner(root.subject(), ROOT_ROLE)
}

/// The certificate under which audit checkpoints are signed, and its key in PKCS#8. It lasts as long as its issuer.
pub fn audit_signer(
    issuer: &SigningIssuer,
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), HierarchyError> {
    let (key, pkcs8) = SigningKey::generate()?;
    Ok((audit_certificate(issuer, &key, domain, serial, at)?, pkcs8))
}

/// The same key under another issuer: what it signed before stays verifiable.
pub fn recertify_audit(
    issuer: &SigningIssuer,
    certificate: &[u8],
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<Vec<u8>, HierarchyError> {
    let facts = crate::describe::facts(certificate).map_err(|_| IssuerError::Malformed)?;
    let key = PublicKey::read(&facts.spki).map_err(SignError::from)?;
    audit_certificate(issuer, &key, domain, serial, at)
}

fn audit_certificate(
    issuer: &SigningIssuer,
    key: &impl rcgen::PublicKeyData,
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<Vec<u8>, HierarchyError> {
    let validity = validity(issuer, at, issuer.not_after().since(at))?;
    let mut params = blank(serial, validity);
    params.distinguished_name = role_name(domain.as_str(), AUDIT_ROLE);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(AUDIT_USE.to_vec())];
    Ok(sign(issuer, key, params, validity)?.der)
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
    let mut params = ca(role_name(domain.as_str(), role), below, serial, validity);
    params.key_identifier_method = key_identifier(&key);
    let certificate = params.self_signed(&key).map_err(SignError::from)?;
    Ok((certificate.der().to_vec(), pkcs8))
}

fn ca(name: DistinguishedName, below: u8, serial: [u8; 16], validity: Validity) -> CertificateParams {
    let mut params = blank(serial, validity);
    params.distinguished_name = name;
    may_sign(&mut params, below);
    params
}

/// The rights of a CA with so many CAs below it.
pub(crate) fn may_sign(params: &mut CertificateParams, below: u8) {
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn an_intermediate_is_named_after_its_domain_and_its_key() {
        for (domain, organization) in [("probectl".to_owned(), None), ("d".repeat(63), Some("d".repeat(63)))]
        {
            let domain = TrustDomain::parse(&domain).unwrap();
            let made = create(&domain, AT, [[1; 16], [2; 16]]).unwrap();
            let facts = describe::facts(&made.intermediate_der).unwrap();
            let digest = crate::digest::key_hash(&facts.spki).hex();
            let role = format!("Enlist Intermediate CA {}", digest.get(..8).unwrap());
            let expected = match organization {
                None => format!("CN={domain} {role}"),
                Some(organization) => format!("O={organization}, CN={role}"),
            };
            assert_eq!(facts.subject, expected);
        }
    }

    #[test]
    fn a_root_certifies_other_keys_and_an_intermediate_none() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = create(&domain, AT, [[1; 16], [2; 16]]).unwrap();
        let root_key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, root_key.secret_der()).unwrap();
        let intermediate = SigningIssuer::new(&made.intermediate_der, &made.intermediate_key).unwrap();
        let sign =
            |by: &SigningIssuer, spki: &[u8], lifetime| sign_intermediate(by, spki, [3; 16], AT, lifetime);
        let (own, other) = (root.key().spki(), intermediate.key().spki());
        assert_eq!(sign(&root, &own, INTERMEDIATE_LIFETIME).unwrap_err(), HierarchyError::OwnKey);
        assert_eq!(sign(&intermediate, &own, INTERMEDIATE_LIFETIME).unwrap_err(), HierarchyError::PathLength);
        let longest = sign(&root, &other, Span::from_days(20_000)).unwrap();
        assert_eq!(longest.not_after, root.not_after());
    }
}
