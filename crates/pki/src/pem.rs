//! PEM in and out. What comes in is bounded before it is decoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, CertificateSigningRequestDer, PrivateKeyDer,
};
use zeroize::Zeroizing;

/// A bundle of sixteen certificates with large RSA keys fits several times over.
const MAX_BYTES: usize = 64 * 1024;
const MAX_BLOCKS: usize = 16;
/// A roll asks for one issuer, or for one of each use.
const MAX_REQUESTS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("more than {MAX_BYTES} bytes of PEM")]
    TooLong,
    #[error("more than {MAX_BLOCKS} certificates in one PEM file")]
    TooMany,
    #[error("more than {MAX_REQUESTS} certificate requests in one PEM file")]
    TooManyRequests,
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

/// Every certificate request in the text, in order: one, or one for each of the two issuers of a roll.
pub fn certificate_requests(pem: &[u8]) -> Result<Vec<CertificateSigningRequestDer<'static>>, PemError> {
    bounded(pem)?;
    let text = std::str::from_utf8(pem).map_err(|_| PemError::Malformed("not text".to_owned()))?;
    // As Java's keytool writes it.
    let text = text.replace("NEW CERTIFICATE REQUEST", "CERTIFICATE REQUEST");
    let mut found = Vec::new();
    for request in CertificateSigningRequestDer::pem_slice_iter(text.as_bytes()) {
        if found.len() == MAX_REQUESTS {
            return Err(PemError::TooManyRequests);
        }
        found.push(request.map_err(malformed)?);
    }
    if found.is_empty() { Err(PemError::Missing("certificate request")) } else { Ok(found) }
}

/// The one list of revoked certificates in the text.
pub fn revocation_list(pem: &[u8]) -> Result<CertificateRevocationListDer<'static>, PemError> {
    bounded(pem)?;
    let mut lists = CertificateRevocationListDer::pem_slice_iter(pem);
    match (lists.next(), lists.next()) {
        (Some(list), None) => list.map_err(malformed),
        (None, _) => Err(PemError::Missing("revocation list")),
        (Some(_), Some(_)) => Err(PemError::Malformed("more than one revocation list".to_owned())),
    }
}

/// Every list of revoked certificates in the text, in order, at least one. Other blocks are skipped.
pub fn revocation_lists(pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, PemError> {
    bounded(pem)?;
    let lists: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(pem).take(MAX_BLOCKS).collect();
    let lists = lists.map_err(malformed)?;
    if lists.is_empty() { Err(PemError::Missing("revocation list")) } else { Ok(lists) }
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
    fn one_or_two_requests_are_read_and_no_third() {
        let read = |count: usize| {
            let requests = certificate_requests(request_pem(b"x").repeat(count).as_bytes());
            requests.map(|requests| requests.len())
        };
        assert_eq!([read(1), read(2)], [Ok(1), Ok(2)]);
        assert_eq!(read(0), Err(PemError::Missing("certificate request")));
        assert_eq!(read(3), Err(PemError::TooManyRequests));
        let broken = request_pem(b"x") + "-----BEGIN CERTIFICATE REQUEST-----\n!";
        assert!(matches!(certificate_requests(broken.as_bytes()), Err(PemError::Malformed(_))));
    }

    #[test]
    fn a_list_stands_alone() {
        let list = crl_pem(b"x");
        let beside = chain_pem([b"root".as_slice()]) + &list + &crl_pem(b"y");
        let read = revocation_lists(beside.as_bytes()).unwrap();
        assert_eq!(read.iter().map(|der| der.as_ref()).collect::<Vec<_>>(), [b"x", b"y"]);
        assert_eq!(revocation_lists(b""), Err(PemError::Missing("revocation list")));
        assert_eq!(revocation_list(list.as_bytes()).unwrap().as_ref(), b"x");
        assert!(matches!(revocation_list(list.repeat(2).as_bytes()), Err(PemError::Malformed(_))));
        assert_eq!(revocation_list(b""), Err(PemError::Missing("revocation list")));
    }

    #[test]
    fn a_broken_block_is_reported_without_its_content() {
        let broken = b"-----BEGIN PRIVATE KEY-----\nse!cret\n-----END PRIVATE KEY-----\n";
        let error = private_key(broken).unwrap_err();
        assert!(!error.to_string().contains("cret"), "{error}");
    }
}
