//! A bound on what a server may send before paths are built from it. A hostile server can send a hundred CAs that issue
//! each other; from six, webpki tries at most two thousand paths.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
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

/// Refuses a chain that is too long, and leaves every other to the verifier within.
#[derive(Debug)]
pub(crate) struct BoundedVerifier(pub(crate) Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for BoundedVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let long = |certificate: &CertificateDer<'_>| certificate.len() > MAX_BYTES;
        if sent.len() > SENT_CERTIFICATES || long(leaf) || sent.iter().any(long) {
            return Err(CertificateError::Other(OtherError(Arc::new(ChainTooLong))).into());
        }
        self.0.verify_server_cert(leaf, sent, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
