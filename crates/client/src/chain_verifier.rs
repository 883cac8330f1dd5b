//! Verifying a server in TLS: each kind of trust judges the chain, everything else is here once.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::fmt::Debug;
use std::sync::Arc;

/// Certificates that are read beyond the server's own: as many intermediates as webpki would follow.
const SENT_CERTIFICATES: usize = 6;
/// Of one certificate. One with RSA-4096 keys on both sides and a page of names is a quarter of this.
const MAX_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sends more than {SENT_CERTIFICATES} certificates with its own, or one longer than {MAX_BYTES} bytes"
)]
pub(crate) struct ChainTooLong;

/// Whether a certificate is that of the server which is asked for.
pub(crate) trait ChainVerifier: Debug + Send + Sync {
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error>;
}

/// The library's verifier. It refuses a chain that is too long before paths are built from it: a hostile server can send a
/// hundred CAs that issue each other; from six, webpki tries at most two thousand paths.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    pub(crate) chain: Arc<dyn ChainVerifier>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let long = |certificate: &CertificateDer<'_>| certificate.len() > MAX_BYTES;
        if sent.len() > SENT_CERTIFICATES || long(leaf) || sent.iter().any(long) {
            return Err(CertificateError::Other(OtherError(Arc::new(ChainTooLong))).into());
        }
        self.chain.verify_chain(leaf, sent, name, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
