//! Certificate signing requests, from callers that are not authenticated yet.
//!
//! A request proves possession of a key, and that is all that is taken from it. Names and extensions it
//! asks for are ignored: the registry decides who a host is. x509-parser reads the body; algorithm, size
//! and signature are checked here, because that library accepts RSA-1024 with SHA-1, refuses P-256 with
//! SHA-512, and forgives a wrong tag in the algorithm.

use lifecycle::names::KeyHash;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{AlgorithmIdentifier, CertificateSigningRequestDer, alg_id};
use std::net::IpAddr;
use x509_parser::certification_request::{X509CertificationRequest, X509CertificationRequestInfo};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

use crate::der;
use crate::spki::{Hash, PublicKey};
pub use crate::spki::{KeyError, KeyKind};

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
    #[error(
        "a request must be signed with ECDSA or RSA (PKCS#1) over SHA-256, SHA-384 or SHA-512, or with Ed25519"
    )]
    SignatureAlgorithm,
    #[error("the request's signature does not match its key")]
    Signature,
}

/// A key whose holder has proven to hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedCsr {
    /// SubjectPublicKeyInfo, byte for byte as sent.
    pub spki: Vec<u8>,
    pub key: KeyHash,
    pub kind: KeyKind,
    /// For reports only.
    pub common_name: Option<String>,
    /// As sent, for an issuer that wants the proof of the key itself.
    pub der: Vec<u8>,
}

/// The names that a request asks for, as an issuer reads them that compares them with its own list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedNames {
    pub common_name: Option<String>,
    /// DNS names, addresses, URIs and mail addresses, as text.
    pub others: Vec<String>,
}

impl VerifiedCsr {
    pub fn requested_names(&self) -> RequestedNames {
        let Ok((_, request)) = X509CertificationRequest::from_der(&self.der) else {
            return RequestedNames::default();
        };
        // Of several common names, Go's library takes the last.
        let subject = &request.certification_request_info.subject;
        let common_name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last();
        let alternative =
            request.requested_extensions().into_iter().flatten().find_map(|extension| match extension {
                ParsedExtension::SubjectAlternativeName(names) => Some(names.general_names.as_slice()),
                _ => None,
            });
        RequestedNames {
            common_name: common_name.map(str::to_owned),
            others: alternative.unwrap_or_default().iter().filter_map(as_text).collect(),
        }
    }
}

fn as_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from).ok();
            v4.or_else(|| <[u8; 16]>::try_from(*octets).map(IpAddr::from).ok()).map(|ip| ip.to_string())
        }
        _ => None,
    }
}

/// Reads PEM. `NEW CERTIFICATE REQUEST`, as Java's keytool writes it, will do as well.
pub fn read(pem: &[u8]) -> Result<VerifiedCsr, CsrError> {
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

pub fn read_der(der: &[u8]) -> Result<VerifiedCsr, CsrError> {
    if der.len() > MAX_BYTES {
        return Err(CsrError::TooLong);
    }
    let (body, algorithm, signature) = der::signed(der).ok_or(CsrError::Malformed)?;
    let (_, info) = X509CertificationRequestInfo::from_der(body).map_err(|_| CsrError::Malformed)?;
    let key = PublicKey::read(info.subject_pki.raw)?;
    let hash = signed_over(key.kind, algorithm).ok_or(CsrError::SignatureAlgorithm)?;
    if !key.verify(hash, body, signature) {
        return Err(CsrError::Signature);
    }
    let common_name = info.subject.iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok(VerifiedCsr {
        spki: key.spki.to_vec(),
        key: crate::digest::key_hash(key.spki),
        kind: key.kind,
        common_name: common_name.map(str::to_owned),
        der: der.to_vec(),
    })
}

/// Which digest was signed; nothing if key and algorithm do not belong together. Ed25519 names no digest:
/// `Some(None)`.
fn signed_over(kind: KeyKind, algorithm: &[u8]) -> Option<Option<Hash>> {
    let known: &[(AlgorithmIdentifier, Option<Hash>)] = match kind {
        KeyKind::P256 | KeyKind::P384 => &[
            (alg_id::ECDSA_SHA256, Some(Hash::Sha256)),
            (alg_id::ECDSA_SHA384, Some(Hash::Sha384)),
            (alg_id::ECDSA_SHA512, Some(Hash::Sha512)),
        ],
        KeyKind::Rsa => &[
            (alg_id::RSA_PKCS1_SHA256, Some(Hash::Sha256)),
            (alg_id::RSA_PKCS1_SHA384, Some(Hash::Sha384)),
            (alg_id::RSA_PKCS1_SHA512, Some(Hash::Sha512)),
        ],
        KeyKind::Ed25519 => &[(alg_id::ED25519, None)],
    };
    known.iter().find(|(id, _)| id.as_ref() == algorithm).map(|(_, hash)| *hash)
}

#[cfg(test)]
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
        let keytool = pem.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
        assert!(read(keytool.as_bytes()).is_ok());
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
