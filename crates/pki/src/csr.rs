//! Certificate signing requests: what a stranger sends to be certified.
//!
//! A request proves possession of a key, and that is all that is taken from it. Names and extensions it
//! asks for are ignored: the registry decides who a host is. Structure is read by x509-parser; algorithm,
//! size and signature are checked here, because that library accepts RSA-1024 with SHA-1 and refuses
//! P-256 with SHA-512.

use lifecycle::names::KeyHash;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{
    OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
    OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::AlgorithmIdentifier;

pub use crate::spki::{KeyError, KeyKind};
use crate::spki::{Hash, PublicKey};

/// An RSA-4096 request with a page of extensions is a quarter of this.
const MAX_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    #[error("a certificate request may have at most {MAX_BYTES} bytes")]
    TooLong,
    #[error("expected exactly one PEM block 'CERTIFICATE REQUEST'")]
    Pem,
    #[error("not a PKCS#10 certificate request")]
    Malformed,
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("a request must be signed with ECDSA or RSA (PKCS#1) over SHA-256, SHA-384 or SHA-512, or with Ed25519")]
    SignatureAlgorithm,
    #[error("the request's signature does not match its key")]
    Signature,
}

/// A key whose holder has proven to hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// SubjectPublicKeyInfo, byte for byte as sent.
    pub spki: Vec<u8>,
    pub key: KeyHash,
    pub kind: KeyKind,
    /// For reports only.
    pub common_name: Option<String>,
}

/// Reads PEM. `NEW CERTIFICATE REQUEST`, as Java's keytool writes it, will do as well.
pub fn read(pem: &[u8]) -> Result<Request, CsrError> {
    if pem.len() > MAX_BYTES {
        return Err(CsrError::TooLong);
    }
    let text = std::str::from_utf8(pem).map_err(|_| CsrError::Pem)?;
    let text = text.replace("NEW CERTIFICATE REQUEST", "CERTIFICATE REQUEST");
    let mut blocks = CertificateSigningRequestDer::pem_slice_iter(text.as_bytes());
    match (blocks.next(), blocks.next()) {
        (Some(Ok(der)), None) => read_der(&der),
        _ => Err(CsrError::Pem),
    }
}

pub fn read_der(der: &[u8]) -> Result<Request, CsrError> {
    if der.len() > MAX_BYTES {
        return Err(CsrError::TooLong);
    }
    let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| CsrError::Malformed)?;
    if !rest.is_empty() || request.signature_value.unused_bits != 0 {
        return Err(CsrError::Malformed);
    }
    let info = &request.certification_request_info;
    let key = PublicKey::read(info.subject_pki.raw)?;
    let hash = signed_over(key.kind, &request.signature_algorithm).ok_or(CsrError::SignatureAlgorithm)?;
    if !key.verify(hash, info.raw, &request.signature_value.data) {
        return Err(CsrError::Signature);
    }
    let common_name = info.subject.iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(Request {
        spki: key.spki.to_vec(),
        key: crate::digest::key_hash(key.spki),
        kind: key.kind,
        common_name: common_name.map(str::to_owned),
    })
}

/// Which digest was signed; nothing if key and algorithm do not belong together. Ed25519 has no digest of
/// its own to name: `Some(None)`.
fn signed_over(kind: KeyKind, algorithm: &AlgorithmIdentifier<'_>) -> Option<Option<Hash>> {
    let oid = &algorithm.algorithm;
    let parameters = algorithm.parameters.as_ref();
    let known = match kind {
        KeyKind::EcP256 | KeyKind::EcP384 if parameters.is_none() => [
            (OID_SIG_ECDSA_WITH_SHA256, Hash::Sha256),
            (OID_SIG_ECDSA_WITH_SHA384, Hash::Sha384),
            (OID_SIG_ECDSA_WITH_SHA512, Hash::Sha512),
        ],
        // RFC 4055 wants NULL here; some programs leave it out.
        KeyKind::Rsa if parameters.is_none_or(|any| any.data.is_empty()) => [
            (OID_PKCS1_SHA256WITHRSA, Hash::Sha256),
            (OID_PKCS1_SHA384WITHRSA, Hash::Sha384),
            (OID_PKCS1_SHA512WITHRSA, Hash::Sha512),
        ],
        KeyKind::Ed25519 => return (*oid == OID_SIG_ED25519 && parameters.is_none()).then_some(None),
        KeyKind::EcP256 | KeyKind::EcP384 | KeyKind::Rsa => return None,
    };
    known.iter().find(|(known, _)| known == oid).map(|(_, hash)| Some(*hash))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
mod tests {
    use super::*;
    use crate::agent_key::HostKey;

    #[test]
    fn a_request_is_read_whole_or_not_at_all() {
        let key = HostKey::generate().unwrap();
        let pem = key.csr_pem_named("n-1").unwrap();
        let request = read(pem.as_bytes()).unwrap();
        assert_eq!((request.spki, request.common_name.as_deref()), (key.spki(), Some("n-1")));
        assert_eq!(read(pem.repeat(2).as_bytes()), Err(CsrError::Pem));
        assert_eq!(read(pem.replace("BEGIN CERTIFICATE", "BEGIN NEW CERTIFICATE").replace("END CERTIFICATE", "END NEW CERTIFICATE").as_bytes()).map(|r| r.kind), Ok(KeyKind::EcP256));
        assert_eq!(read(&vec![b' '; MAX_BYTES + 1]), Err(CsrError::TooLong));
        assert_eq!(read(b""), Err(CsrError::Pem));
    }

    #[test]
    fn no_byte_of_a_request_can_be_changed_or_cut() {
        let pem = HostKey::generate().unwrap().csr_pem().unwrap();
        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert!(read_der(&der).is_ok());
        for place in 0..der.len() {
            assert!(read_der(&der[..place]).is_err(), "cut at {place}");
            let mut changed = der.to_vec();
            changed[place] ^= 1;
            assert!(read_der(&changed).is_err(), "changed at {place}");
        }
        assert_eq!(read_der(&[der.as_ref(), &[0]].concat()), Err(CsrError::Malformed));
    }
}
