//! By what a control plane is recognised, and as whom we come.
//!
//! There is no trust on first use: without one of the three kinds of trust nothing is sent at all.

use crate::anchored::AnchoredVerifier;
use crate::chain_verifier::{ChainVerifier, ServerVerifier};
use crate::denied_issuers::{DeniedIssuers, denied_anchors};
use crate::pinned::PinnedVerifier;
use pki::pem::{self, PemError};
use pki::pin::Pin;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};
use std::sync::{Arc, OnceLock};

/// The CA that a pin was found to be of, once a server has presented it; never a pinned leaf.
#[derive(Debug, Clone, Default)]
pub struct PinnedCa(Arc<OnceLock<CertificateDer<'static>>>);

impl PinnedCa {
    pub(crate) fn found(&self, der: &CertificateDer<'_>) {
        // The pin is a digest, so every later one is the same.
        _ = self.0.set(der.clone().into_owned());
    }
}

/// How a server proves that it is the control plane.
#[derive(Debug, Clone)]
pub struct Trust {
    by: TrustedBy,
    denied: DeniedIssuers,
}

#[derive(Debug, Clone)]
enum TrustedBy {
    /// Its certificate chains to one of these.
    Cas(Vec<CertificateDer<'static>>),
    /// Its chain holds the certificate with this digest.
    Pin(Pin, PinnedCa),
    /// Its certificate chains to one that the operating system trusts.
    SystemRoots,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    #[error("{what}: {cause}")]
    Pem { what: &'static str, cause: PemError },
    #[error("the CA file holds a certificate that cannot be trusted: {0}")]
    Anchor(String),
    #[error("the operating system has no trusted certificates: {0}")]
    NoSystemRoots(String),
    #[error("client certificate and key cannot be used: {0}")]
    Identity(String),
    #[error("the private key does not belong to the client certificate")]
    OtherKey,
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

impl Trust {
    pub fn from_ca_pem(pem: &[u8]) -> Result<Self, TrustError> {
        pem::certificates(pem).map(Trust::cas).map_err(|cause| TrustError::Pem { what: "the CA file", cause })
    }

    pub fn cas(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self::by(TrustedBy::Cas(certificates))
    }

    pub fn pin(pin: Pin) -> Self {
        Self::by(TrustedBy::Pin(pin, PinnedCa::default()))
    }

    pub fn system_roots() -> Self {
        Self::by(TrustedBy::SystemRoots)
    }

    fn by(by: TrustedBy) -> Self {
        Self { by, denied: DeniedIssuers::default() }
    }

    /// The same, without these issuers, which their roots have revoked.
    pub fn denying(self, denied: DeniedIssuers) -> Self {
        Self { denied: self.denied.and(&denied), ..self }
    }

    /// The CAs that this trust names. Nothing where it names none: the system's roots are for any server, and a pinned leaf
    /// is the server itself; nor before a server has presented the pinned CA.
    pub fn anchors(&self) -> &[CertificateDer<'static>] {
        match &self.by {
            TrustedBy::Cas(certificates) => certificates,
            TrustedBy::Pin(_, PinnedCa(found)) => found.get().map_or(&[], std::slice::from_ref),
            TrustedBy::SystemRoots => &[],
        }
    }

    pub(crate) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ChainVerifier>, TrustError> {
        let algorithms = provider.signature_verification_algorithms;
        let denied = self.denied.clone();
        let by_roots = |roots: RootCertStore, certificates: &[CertificateDer<'static>]| {
            if roots.is_empty() {
                return Err(TrustError::Setup("no CA is trusted".to_owned()));
            }
            let denied_anchors = denied_anchors(certificates, &self.denied);
            let anchor_ends = anchor_ends(certificates);
            Ok(AnchoredVerifier {
                roots,
                denied: self.denied.clone(),
                denied_anchors,
                anchor_ends,
                algorithms,
            })
        };
        Ok(match &self.by {
            TrustedBy::Pin(pin, found) => {
                Arc::new(PinnedVerifier::new(*pin, found.clone(), denied, algorithms))
            }
            TrustedBy::Cas(certificates) => Arc::new(by_roots(anchors(certificates)?, certificates)?),
            TrustedBy::SystemRoots => {
                let certificates = system_roots()?;
                Arc::new(by_roots(readable_anchors(&certificates), &certificates)?)
            }
        })
    }
}

/// A certificate and its key, presented where the server asks for one.
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl TlsIdentity {
    /// The leaf first, then intermediates.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key }
    }

    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TrustError> {
        let chain = pem::certificates(certificates)
            .map_err(|cause| TrustError::Pem { what: "the client certificate", cause })?;
        let key = pem::private_key(key).map_err(|cause| TrustError::Pem { what: "the client key", cause })?;
        Ok(Self::new(chain, key))
    }

    /// Whether the two belong together.
    pub fn check(&self) -> Result<(), TrustError> {
        certified(&aws_lc_rs::default_provider(), self).map(drop)
    }
}

impl Clone for TlsIdentity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// Without the key.
impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

/// TLS 1.3 only, the hybrid post-quantum key exchange first, and every connection a whole handshake: a resumed
/// session would skip the check of the server's certificate.
pub fn client_config(
    trust: &Trust,
    identity: Option<&TlsIdentity>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    config_with(trust.verifier(&provider)?, &provider, identity, protocol)
}

/// The same with another judge of the server's certificate.
pub(crate) fn config_with(
    chain: Arc<dyn ChainVerifier>,
    provider: &Arc<CryptoProvider>,
    identity: Option<&TlsIdentity>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, TrustError> {
    let verifier = ServerVerifier { chain, algorithms: provider.signature_verification_algorithms };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| TrustError::Setup(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified(provider, identity)?))),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Certificate and key, made sure to belong together. One of X.509 version 1 is presented like any other: whether
/// it is taken is the server's to say.
fn certified(provider: &CryptoProvider, identity: &TlsIdentity) -> Result<CertifiedKey, TrustError> {
    matching(provider, identity).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TrustError::OtherKey,
        other => TrustError::Identity(other.to_string()),
    })
}

fn matching(provider: &CryptoProvider, identity: &TlsIdentity) -> Result<CertifiedKey, Error> {
    let key = provider.key_provider.load_private_key(identity.key.clone_key())?;
    let public = key.public_key().map(|public| public.to_vec());
    let certified = CertifiedKey::new(identity.chain.clone(), key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(Error::InvalidCertificate(unreadable)) => {
            let raw = certified.cert.first().and_then(pki::verify::raw_key).map(|raw| raw.to_vec());
            match raw {
                Some(raw) if Some(&raw) == public.as_ref() => Ok(certified),
                Some(_) => Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)),
                None => Err(Error::InvalidCertificate(unreadable)),
            }
        }
        Err(other) => Err(other),
    }
}

fn is_for_servers(der: &&CertificateDer<'_>) -> bool {
    pki::describe::may_issue_to_servers(der)
}

/// The CAs that may vouch for servers. The library does not ask what an anchor is for, and an issuer of client certificates must not
/// play the control plane because somebody named it.
fn anchors(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    if !certificates.is_empty() && !certificates.iter().any(|der| is_for_servers(&der)) {
        return Err(TrustError::Anchor("it is for certificates of nodes alone".to_owned()));
    }
    for certificate in certificates.iter().filter(is_for_servers) {
        roots.add(certificate.clone()).map_err(|error| TrustError::Anchor(error.to_string()))?;
    }
    Ok(roots)
}

/// When these end, for whoever asks when a path leads to one.
fn anchor_ends(certificates: &[CertificateDer<'static>]) -> Vec<(TrustAnchor<'static>, u64)> {
    let end = |der: &CertificateDer<'static>| {
        let anchor = webpki::anchor_from_trusted_cert(der).ok()?.to_owned();
        let end = pki::describe::facts(der).ok()?.not_after;
        Some((anchor, end.millis().div_ceil(1000)))
    };
    certificates.iter().filter_map(end).collect()
}

/// Some roots of an operating system may be unreadable; none readable is a fault.
fn system_roots() -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    if readable_anchors(&found.certs).is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(TrustError::NoSystemRoots(reasons.join("; ")));
    }
    Ok(found.certs)
}

/// Of the operating system's, those that the library can read and that may vouch for servers: an issuer of this domain may lie there too.
fn readable_anchors(certificates: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().filter(is_for_servers).cloned());
    roots
}
