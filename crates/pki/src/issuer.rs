//! A certificate authority that can sign: its certificate and its key, checked against each other once.

use std::sync::Arc;

use lifecycle::names::{IssuerId, Timestamp};
use rcgen::KeyIdMethod;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;

use crate::certificate::key_identifier;
use crate::pkcs11::{Hsm, HsmError, HsmKey};
use crate::signing_key::SigningKey;
pub use crate::signing_key::{SignatureError, SigningKeyError};
use crate::spki::{KeyError, PublicKey};
use crate::x509_time;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    #[error("not an X.509 certificate")]
    Malformed,
    #[error(transparent)]
    PublicKey(#[from] KeyError),
    #[error(transparent)]
    PrivateKey(#[from] SigningKeyError),
    #[error(transparent)]
    Hsm(#[from] HsmError),
    #[error("the private key does not belong to this certificate")]
    KeyMismatch,
    #[error("this is not a CA certificate (version 3 with basicConstraints CA:TRUE)")]
    NotCa,
    #[error("this CA certificate's keyUsage does not allow signing certificates")]
    MayNotSign,
    #[error(
        "issuer_name_unsupported: this CA certificate has an empty subject, so nothing can name it as its issuer"
    )]
    NameUnsupported,
    #[error("this CA certificate ends before it begins")]
    NoLifetime,
}

/// A CA certificate with its key. Everything a leaf needs from it is taken out once, here.
pub struct SigningIssuer {
    id: IssuerId,
    certificate: Vec<u8>,
    /// The subject's DER, which becomes the issuer of what is signed, byte for byte.
    name: Vec<u8>,
    subject: String,
    not_before: Timestamp,
    not_after: Timestamp,
    path_length: Option<u32>,
    may_sign_crls: bool,
    key_id: KeyIdMethod,
    key: SigningKey,
    template: rcgen::Issuer<'static, Unsigned>,
}

impl SigningIssuer {
    /// `key_der` may be PKCS#8, SEC1 or PKCS#1.
    pub fn new(certificate_der: &[u8], key_der: &[u8]) -> Result<Self, IssuerError> {
        Self::read(certificate_der, || Ok(SigningKey::read(key_der)?))
    }

    /// With a key in an HSM, which need not be there yet: the certificate says what its public part is.
    pub fn in_hsm(certificate_der: &[u8], hsm: &Arc<Hsm>, label: &str) -> Result<Self, IssuerError> {
        let (_, ca) = X509Certificate::from_der(certificate_der).map_err(|_| IssuerError::Malformed)?;
        let key = hsm.key(label, ca.public_key().raw)?;
        Self::with_key(certificate_der, SigningKey::in_hsm(key))
    }

    /// With a key that has no written form.
    pub(crate) fn with_key(certificate_der: &[u8], key: SigningKey) -> Result<Self, IssuerError> {
        Self::read(certificate_der, || Ok(key))
    }

    /// The key is read last: what is no CA needs none.
    fn read(
        certificate_der: &[u8],
        key: impl FnOnce() -> Result<SigningKey, IssuerError>,
    ) -> Result<Self, IssuerError> {
        let (rest, ca) = X509Certificate::from_der(certificate_der).map_err(|_| IssuerError::Malformed)?;
        if !rest.is_empty() {
            return Err(IssuerError::Malformed);
        }
        let public = PublicKey::read(ca.public_key().raw)?;
        let path_length = may_sign(&ca)?;
        let key = key()?;
        if key.spki() != public.spki {
            return Err(IssuerError::KeyMismatch);
        }
        let (not_before, not_after) = (ca.validity().not_before, ca.validity().not_after);
        let key_id = stated_identifier(&ca).unwrap_or_else(|| key_identifier(&key));
        Ok(Self {
            id: issuer_id(certificate_der),
            certificate: certificate_der.to_vec(),
            name: ca.subject().as_raw().to_vec(),
            subject: ca.subject().to_string(),
            not_before: x509_time::timestamp(not_before),
            not_after: x509_time::timestamp(not_after),
            path_length,
            may_sign_crls: may_sign_crls(&ca),
            template: template(&key, key_id.clone()),
            key_id,
            key,
        })
    }

    pub fn id(&self) -> IssuerId {
        self.id.clone()
    }

    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    pub fn subject(&self) -> String {
        self.subject.clone()
    }

    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// How many CAs may stand below this one; nothing if the certificate sets no limit.
    pub fn path_length(&self) -> Option<u32> {
        self.path_length
    }

    /// Whether verifiers will accept a list of revocations from this CA: an imported one may lack the right.
    pub fn may_sign_crls(&self) -> bool {
        self.may_sign_crls
    }

    /// By which leaves and lists refer to this CA's key.
    pub(crate) fn key_id(&self) -> &KeyIdMethod {
        &self.key_id
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The key, if it is in an HSM: then every signature may keep the caller waiting.
    pub fn hsm_key(&self) -> Option<&HsmKey> {
        self.key.hsm_key()
    }

    pub(crate) fn template(&self) -> &rcgen::Issuer<'static, Unsigned> {
        &self.template
    }
}

/// Says which issuer, never its key.
impl std::fmt::Debug for SigningIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningIssuer")
            .field("id", &self.id)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// The name of any CA certificate: the first 16 hex digits of its SHA-256.
pub fn issuer_id(der: &[u8]) -> IssuerId {
    let hex: String = crate::digest::fingerprint(der).hex().chars().take(16).collect();
    match IssuerId::parse(&hex) {
        Ok(id) => id,
        Err(_) => unreachable!("sixteen hex digits are a name"),
    }
}

/// Whether RFC 5280 lets the holder sign certificates, and how deep.
fn may_sign(ca: &X509Certificate<'_>) -> Result<Option<u32>, IssuerError> {
    let constraints = ca.basic_constraints().map_err(|_| IssuerError::Malformed)?;
    let constraints = constraints.filter(|found| found.value.ca).ok_or(IssuerError::NotCa)?;
    let usage = ca.key_usage().map_err(|_| IssuerError::Malformed)?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err(IssuerError::MayNotSign);
    }
    if ca.subject().iter_attributes().next().is_none() {
        return Err(IssuerError::NameUnsupported);
    }
    if ca.validity().not_after < ca.validity().not_before {
        return Err(IssuerError::NoLifetime);
    }
    Ok(constraints.value.path_len_constraint)
}

/// A CA that states no usages has them all.
fn may_sign_crls(ca: &X509Certificate<'_>) -> bool {
    ca.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.crl_sign()))
}

fn stated_identifier(ca: &X509Certificate<'_>) -> Option<KeyIdMethod> {
    ca.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(KeyIdMethod::PreSpecified(id.0.to_vec())),
        _ => None,
    })
}

/// What rcgen is given as the issuer: no name, because that is put in afterwards, and no key.
fn template(key: &SigningKey, key_id: KeyIdMethod) -> rcgen::Issuer<'static, Unsigned> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.key_identifier_method = key_id;
    rcgen::Issuer::new(params, Unsigned(crate::spki::rcgen_algorithm(key.kind())))
}

/// Stands in for the key while the body is written; the signature over the final bytes is made after.
pub(crate) struct Unsigned(&'static rcgen::SignatureAlgorithm);

impl rcgen::PublicKeyData for Unsigned {
    fn der_bytes(&self) -> &[u8] {
        &[]
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.0
    }
}

impl rcgen::SigningKey for Unsigned {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(vec![0])
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::TrustDomain;

    use super::*;
    use crate::{agent_key::HostKey, hierarchy, pem};

    #[test]
    fn an_issuer_needs_a_ca_certificate_and_its_own_key() {
        fn shared<T: Send + Sync>() {}
        shared::<SigningIssuer>();
        let domain = TrustDomain::parse("probectl").unwrap();
        let made =
            hierarchy::create(&domain, Timestamp::from_secs(1_800_000_000), [[1; 16], [2; 16], [3; 16]])
                .unwrap();
        let root_key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let new = |cert: &[u8], key: &[u8]| SigningIssuer::new(cert, key).map(|issuer| issuer.id());
        assert_eq!(new(&made.root_der, root_key.secret_der()), Ok(issuer_id(&made.root_der)));
        assert_eq!(new(&made.node.der, root_key.secret_der()), Err(IssuerError::KeyMismatch));
        assert_eq!(new(&made.root_der[1..], root_key.secret_der()), Err(IssuerError::Malformed));
        assert_eq!(new(&made.root_der, b"key"), Err(IssuerError::PrivateKey(SigningKeyError::Unreadable)));
    }

    #[test]
    fn a_leaf_is_no_issuer() {
        let key = HostKey::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        let pair = SigningKey::read(key.pkcs8()).unwrap();
        let leaf = params.self_signed(&pair).unwrap();
        assert_eq!(SigningIssuer::new(leaf.der(), key.pkcs8()).unwrap_err(), IssuerError::NotCa);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
        let idle = params.self_signed(&pair).unwrap();
        assert_eq!(SigningIssuer::new(idle.der(), key.pkcs8()).unwrap_err(), IssuerError::MayNotSign);
        params.key_usages.clear();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let nameless = params.self_signed(&pair).unwrap();
        assert_eq!(
            SigningIssuer::new(nameless.der(), key.pkcs8()).unwrap_err(),
            IssuerError::NameUnsupported
        );
    }
}
