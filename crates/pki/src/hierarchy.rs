//! The CAs that Enlist makes itself: an offline root, the intermediates that sign, and what else hangs
//! below them without being a node or a server.

use lifecycle::names::{IssuerUse, Span, Timestamp, TrustDomain};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{
    OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE,
    OID_X509_EXT_NAME_CONSTRAINTS,
};
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::certificate::{SignError, Signed, Validity, blank, key_identifier, role_name, role_owner, sign};
use crate::crl::{CrlError, sign_first_root_list};
use crate::issuer::{IssuerError, SigningIssuer};
use crate::leaf::validity;
pub use crate::new_root::{CrossSignedRoot, new_root, new_root_for, new_root_key};
use crate::signing_key::{SigningKey, SigningKeyError};
use crate::spki::PublicKey;
use crate::verify::is_issued_by;
use crate::{extended_use, pem};

const ROOT_ROLE: &str = "Enlist Root CA";
pub(crate) const AUDIT_ROLE: &str = "Enlist Audit";
pub const ROOT_LIFETIME: Span = Span::from_days(3652);
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
    #[error("its revocation list cannot be signed: {0}")]
    List(#[from] CrlError),
    #[error("this CA may not have another CA below it")]
    PathLength,
    #[error("this is the key of the CA that would sign, not of a CA below it")]
    OwnKey,
    #[error("the new root needs a key of its own; this is the key of the old one")]
    OldKey,
    #[error("this CA certificate is not self-signed, so it is no root")]
    NotRoot,
}

/// Why certificates given as a chain are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("certificate {0} of the chain cannot be read")]
    Unreadable(usize),
    #[error("certificate {0} of the chain is not signed by the one after it")]
    Detached(usize),
    #[error("the last certificate of the chain is not a self-signed root: append its parents")]
    NoRoot,
    #[error("certificate {0} of the chain has a critical extension ({1}), which hosts would refuse")]
    Critical(usize, String),
}

/// Checks that each certificate is signed by the next and the last by itself, and that hosts understand what they say.
pub fn check_chain(chain: &[CertificateDer<'_>]) -> Result<(), ChainError> {
    let parsed: Vec<X509Certificate<'_>> = chain
        .iter()
        .enumerate()
        .map(|(at, der)| {
            X509Certificate::from_der(der).map(|(_, read)| read).map_err(|_| ChainError::Unreadable(at + 1))
        })
        .collect::<Result<_, _>>()?;
    for (at, (child, parent)) in chain.iter().zip(chain.iter().skip(1)).enumerate() {
        if !is_issued_by(child, parent) {
            return Err(ChainError::Detached(at + 1));
        }
    }
    if !chain.last().is_some_and(|root| is_issued_by(root, root)) {
        return Err(ChainError::NoRoot);
    }
    let understood = [
        OID_X509_EXT_BASIC_CONSTRAINTS,
        OID_X509_EXT_KEY_USAGE,
        OID_X509_EXT_EXTENDED_KEY_USAGE,
        OID_X509_EXT_NAME_CONSTRAINTS,
    ];
    for (at, certificate) in parsed.iter().enumerate() {
        let mut extensions = certificate.iter_extensions();
        if let Some(found) = extensions.find(|found| found.critical && !understood.contains(&found.oid)) {
            return Err(ChainError::Critical(at + 1, found.oid.to_id_string()));
        }
    }
    Ok(())
}

/// Everything a new control plane starts from. The root's key leaves as PEM, for a safe; the
/// issuers' as PKCS#8, for sealing.
pub struct Hierarchy {
    pub root_der: Vec<u8>,
    pub root_key_pem: Zeroizing<String>,
    /// The root's revocation list, which denies nobody yet.
    pub root_list: Vec<u8>,
    pub node: IssuerMaterial,
    pub server: IssuerMaterial,
}

/// An intermediate and its key in PKCS#8.
pub struct IssuerMaterial {
    pub der: Vec<u8>,
    pub key: Zeroizing<Vec<u8>>,
}

/// Makes the CAs of a trust domain, P-256 throughout: a root for ten years, and for a year each the issuer of nodes and
/// operators, and that of the control plane's own certificates.
pub fn create(
    domain: &TrustDomain,
    at: Timestamp,
    serials: [[u8; 16]; 3],
) -> Result<Hierarchy, HierarchyError> {
    let [root_serial, node_serial, server_serial] = serials;
    let (root_der, root_key) = create_root(domain, root_serial, at)?;
    let root = SigningIssuer::new(&root_der, &root_key)?;
    let node = issuer_below(&root, IssuerUse::Node, node_serial, at)?;
    let server = issuer_below(&root, IssuerUse::Server, server_serial, at)?;
    let root_list = sign_first_root_list(&root, at)?;
    Ok(Hierarchy { root_der, root_key_pem: pem::key_pem_pkcs8(&root_key), root_list, node, server })
}

/// The root alone, for issuers whose keys are made elsewhere; and its key in PKCS#8.
pub fn create_root(
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), HierarchyError> {
    self_signed(domain, ROOT_ROLE, 1, at, ROOT_LIFETIME, serial)
}

/// Makes a P-256 key and certifies it as an intermediate for [`INTERMEDIATE_LIFETIME`].
pub fn issuer_below(
    root: &SigningIssuer,
    usage: IssuerUse,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<IssuerMaterial, HierarchyError> {
    let (signing, key) = SigningKey::generate()?;
    let signed = sign_intermediate(root, &signing.spki(), usage, serial, at, INTERMEDIATE_LIFETIME)?;
    Ok(IssuerMaterial { der: signed.der, key })
}

/// Certifies the key of an intermediate CA for one use, when a domain is initialized and at every roll. Whose CA it is,
/// the root's name says.
pub fn sign_intermediate(
    root: &SigningIssuer,
    spki: &[u8],
    usage: IssuerUse,
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
    let mut params = ca(intermediate_name(&owner(root.certificate()), usage, spki), 0, serial, validity);
    params.extended_key_usages = extended_use::purposes(usage);
    Ok(sign(root, &key, params, validity)?)
}

/// With a piece of the key's digest: verifiers look for issuers and their lists of revocations by name, so
/// two keys must not share one.
pub(crate) fn intermediate_name(owner: &str, usage: IssuerUse, spki: &[u8]) -> DistinguishedName {
    role_name(owner, &intermediate_role(usage, spki))
}

/// What follows the owner in that name.
pub(crate) fn intermediate_role(usage: IssuerUse, spki: &[u8]) -> String {
    let role = match usage {
        IssuerUse::Both => "Enlist Intermediate CA",
        IssuerUse::Node => "Enlist Node CA",
        IssuerUse::Server => "Enlist Server CA",
    };
    let digest: String = crate::digest::key_hash(spki).hex().chars().take(8).collect();
    format!("{role} {digest}")
}

/// The domain of a root that was made here. None of another root, nor where the domain's name was too long for the certificate.
pub fn domain_of_root(root_der: &[u8]) -> Option<String> {
    let (_, root) = X509Certificate::from_der(root_der).ok()?;
    role_owner(root.subject(), ROOT_ROLE)
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

pub(crate) fn ca(
    name: DistinguishedName,
    below: u8,
    serial: [u8; 16],
    validity: Validity,
) -> CertificateParams {
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
    fn an_intermediate_is_named_after_its_domain_its_use_and_its_key() {
        for (domain, organization) in [("probectl".to_owned(), None), ("d".repeat(63), Some("d".repeat(63)))]
        {
            let domain = TrustDomain::parse(&domain).unwrap();
            let made = create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
            for (der, role) in [(&made.node.der, "Enlist Node CA"), (&made.server.der, "Enlist Server CA")] {
                let facts = describe::facts(der).unwrap();
                let digest = crate::digest::key_hash(&facts.spki).hex();
                let role = format!("{role} {}", digest.get(..8).unwrap());
                let expected = match &organization {
                    None => format!("CN={domain} {role}"),
                    Some(organization) => format!("O={organization}, CN={role}"),
                };
                assert_eq!(facts.subject, expected);
            }
        }
    }

    #[test]
    fn each_issuer_has_the_extended_key_usage_of_its_use_alone() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let root_key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, root_key.secret_der()).unwrap();
        let undivided = issuer_below(&root, IssuerUse::Both, [4; 16], AT).unwrap();
        for (der, usage) in [
            (&made.node.der, IssuerUse::Node),
            (&made.server.der, IssuerUse::Server),
            (&undivided.der, IssuerUse::Both),
        ] {
            let (_, parsed) = X509Certificate::from_der(der).unwrap();
            assert!(extended_use::is_exactly(extended_use::of_certificate(&parsed).unwrap(), usage));
        }
        let name = describe::facts(&undivided.der).unwrap().subject;
        assert!(name.starts_with("CN=probectl Enlist Intermediate CA "), "{name}");
    }

    #[test]
    fn a_root_certifies_other_keys_and_an_intermediate_none() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let root_key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, root_key.secret_der()).unwrap();
        let intermediate = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
        let sign = |by: &SigningIssuer, spki: &[u8], lifetime| {
            sign_intermediate(by, spki, IssuerUse::Node, [3; 16], AT, lifetime)
        };
        let (own, other) = (root.key().spki(), intermediate.key().spki());
        assert_eq!(sign(&root, &own, INTERMEDIATE_LIFETIME).unwrap_err(), HierarchyError::OwnKey);
        assert_eq!(sign(&intermediate, &own, INTERMEDIATE_LIFETIME).unwrap_err(), HierarchyError::PathLength);
        let longest = sign(&root, &other, Span::from_days(20_000)).unwrap();
        assert_eq!(longest.not_after, root.not_after());
    }
}
