//! PEM in and out. What comes in is bounded before it is decoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

/// A bundle of sixteen certificates with large RSA keys fits several times over.
const MAX_BYTES: usize = 64 * 1024;
const MAX_BLOCKS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("more than {MAX_BYTES} bytes of PEM")]
    TooLong,
    #[error("more than {MAX_BLOCKS} certificates in one PEM file")]
    TooMany,
    #[error("no {0} in this PEM text")]
    Missing(&'static str),
    #[error("not PEM: {0}")]
    Malformed(String),
}

/// Every certificate in the text, in order, at least one. Other blocks are skipped.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    bounded(pem)?;
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        if found.len() == MAX_BLOCKS {
            return Err(PemError::TooMany);
        }
        found.push(certificate.map_err(malformed)?);
    }
    if found.is_empty() { Err(PemError::Missing("certificate")) } else { Ok(found) }
}

/// The first certificate in the text; what follows it is not read.
pub fn first_certificate(pem: &[u8]) -> Result<CertificateDer<'static>, PemError> {
    bounded(pem)?;
    match CertificateDer::pem_slice_iter(pem).next() {
        Some(certificate) => certificate.map_err(malformed),
        None => Err(PemError::Missing("certificate")),
    }
}

/// The first private key: PKCS#8, SEC1 or PKCS#1. `openssl ecparam -genkey` writes an `EC PARAMETERS`
/// block before it, which is skipped.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    bounded(pem)?;
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(rustls_pki_types::pem::Error::NoItemsFound) => Err(PemError::Missing("private key")),
        Err(error) => Err(malformed(error)),
    }
}

pub fn certificate_pem(der: &[u8]) -> String {
    encode("CERTIFICATE", der)
}

/// Certificates one after the other, as a chain or a bundle is written.
pub fn chain_pem<'a>(ders: impl IntoIterator<Item = &'a [u8]>) -> String {
    ders.into_iter().map(certificate_pem).collect()
}

/// A PKCS#8 key as it goes to disk; wiped from memory when dropped.
pub fn key_pem_pkcs8(pkcs8: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(encode("PRIVATE KEY", pkcs8))
}

/// A SEC1 key; wiped from memory when dropped.
pub fn key_pem_sec1(sec1: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(encode("EC PRIVATE KEY", sec1))
}

/// A list of revoked certificates.
pub fn crl_pem(der: &[u8]) -> String {
    encode("X509 CRL", der)
}

pub fn request_pem(der: &[u8]) -> String {
    encode("CERTIFICATE REQUEST", der)
}

fn bounded(pem: &[u8]) -> Result<(), PemError> {
    if pem.len() > MAX_BYTES { Err(PemError::TooLong) } else { Ok(()) }
}

/// The library's error prints the offending line, which may be key material: only its kind is kept.
fn malformed(error: rustls_pki_types::pem::Error) -> PemError {
    use rustls_pki_types::pem::Error;
    PemError::Malformed(match error {
        Error::MissingSectionEnd { .. } => "a block has no END line".to_owned(),
        Error::IllegalSectionStart { .. } => "a block has a broken BEGIN line".to_owned(),
        Error::Base64Decode(_) => "a block is not base64".to_owned(),
        _ => "unreadable".to_owned(),
    })
}

/// Sized up front, so that a key is never left behind in a buffer that grew.
fn encode(label: &str, der: &[u8]) -> String {
    let body = Zeroizing::new(STANDARD.encode(der));
    let mut pem = String::with_capacity(body.len() + body.len() / 64 + 2 * label.len() + 40);
    pem.push_str("-----BEGIN ");
    pem.push_str(label);
    pem.push_str("-----\n");
    let mut rest = body.as_str();
    while let Some((line, more)) = rest.split_at_checked(64) {
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    if !rest.is_empty() {
        pem.push_str(rest);
        pem.push('\n');
    }
    pem.push_str("-----END ");
    pem.push_str(label);
    pem.push_str("-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_read_back_as_written() {
        for length in [0, 1, 47, 48, 49, 96, 500] {
            let der = vec![7; length];
            let read = certificates(chain_pem([der.as_slice(), b"other"]).as_bytes()).unwrap();
            assert_eq!(read.iter().map(|der| der.as_ref()).collect::<Vec<_>>(), [&der, b"other".as_slice()]);
        }
    }

    #[test]
    fn the_first_certificate_is_read_whatever_follows_it() {
        let text = chain_pem([b"leaf".as_slice(), b"issuer"]) + "-----BEGIN CERTIFICATE-----\n!";
        assert_eq!(first_certificate(text.as_bytes()).unwrap().as_ref(), b"leaf");
        assert_eq!(first_certificate(b"nothing"), Err(PemError::Missing("certificate")));
    }

    #[test]
    fn a_flood_of_certificates_is_refused() {
        let many = chain_pem(std::iter::repeat_n(b"x".as_slice(), 17));
        assert_eq!(certificates(many.as_bytes()), Err(PemError::TooMany));
        assert_eq!(certificates(&vec![b'-'; MAX_BYTES + 1]), Err(PemError::TooLong));
        assert_eq!(certificates(b"nothing here"), Err(PemError::Missing("certificate")));
    }

    #[test]
    fn a_broken_block_is_reported_without_its_content() {
        let broken = b"-----BEGIN PRIVATE KEY-----\nse!cret\n-----END PRIVATE KEY-----\n";
        let error = private_key(broken).unwrap_err();
        assert!(!error.to_string().contains("cret"), "{error}");
    }
}
