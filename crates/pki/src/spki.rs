//! Public keys: which kinds Enlist certifies, and the one encoding of each that it accepts.
//!
//! Strict on purpose. A key is copied into the certificate byte for byte, so an odd encoding that some
//! other program could not load must be refused here, not discovered on a host.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
pub use lifecycle::names::KeyKind;
use rustls_pki_types::alg_id;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::RSAPublicKey;

use crate::der;

/// How rcgen names a kind. Of the algorithm, only the key's half is used for a subject.
pub(crate) fn rcgen_algorithm(kind: KeyKind) -> &'static rcgen::SignatureAlgorithm {
    match kind {
        KeyKind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyKind::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        KeyKind::Rsa => &rcgen::PKCS_RSA_SHA256,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the public key is not well-formed DER")]
    Malformed,
    #[error("only P-256, P-384, Ed25519 and RSA keys are accepted")]
    Kind,
    #[error("an RSA key must have 2048 to 4096 bits; this one has {0}")]
    RsaSize(usize),
    #[error("an RSA key's exponent must be odd, at least 65537 and below 2^32")]
    RsaExponent,
}

/// A digest that a signature may be made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// A SubjectPublicKeyInfo that has passed every check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublicKey<'a> {
    pub kind: KeyKind,
    /// The whole SubjectPublicKeyInfo, as it was read.
    pub spki: &'a [u8],
    /// What the BIT STRING holds.
    pub bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    pub fn read(spki: &'a [u8]) -> Result<Self, KeyError> {
        let (whole, rest) = der::split(spki).ok_or(KeyError::Malformed)?;
        let (algorithm, key) = der::content(whole).and_then(der::split).ok_or(KeyError::Malformed)?;
        let (_, trailing) = der::split(key).ok_or(KeyError::Malformed)?;
        let (unused, bits) = der::content(key).and_then(<[u8]>::split_first).ok_or(KeyError::Malformed)?;
        let kind = kind_of(der::content(algorithm).ok_or(KeyError::Malformed)?)?;
        let uncompressed = |length| bits.len() == length && bits.first() == Some(&4);
        let shape = match kind {
            KeyKind::P256 => uncompressed(65),
            KeyKind::P384 => uncompressed(97),
            KeyKind::Ed25519 => bits.len() == 32,
            KeyKind::Rsa => rsa(bits).map(|()| true)?,
        };
        // Written again by the rules of DER it must be the same bytes: no long lengths, no odd tags.
        let canonical = der::wrap(der::SEQUENCE, &[algorithm, &der::wrap(der::BIT_STRING, &[&[0], bits])]);
        if shape && *unused == 0 && rest.is_empty() && trailing.is_empty() && canonical == spki {
            Ok(Self { kind, spki, bits })
        } else {
            Err(KeyError::Malformed)
        }
    }

    /// Whether the holder of this key signed the message over this digest. Ed25519 brings its own.
    pub fn verify(&self, hash: Option<Hash>, message: &[u8], signature: &[u8]) -> bool {
        use Hash::{Sha256, Sha384, Sha512};
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, hash) {
            (KeyKind::P256, Some(Sha256)) => &signature::ECDSA_P256_SHA256_ASN1,
            (KeyKind::P256, Some(Sha384)) => &signature::ECDSA_P256_SHA384_ASN1,
            (KeyKind::P256, Some(Sha512)) => &signature::ECDSA_P256_SHA512_ASN1,
            (KeyKind::P384, Some(Sha256)) => &signature::ECDSA_P384_SHA256_ASN1,
            (KeyKind::P384, Some(Sha384)) => &signature::ECDSA_P384_SHA384_ASN1,
            (KeyKind::P384, Some(Sha512)) => &signature::ECDSA_P384_SHA512_ASN1,
            (KeyKind::Rsa, Some(Sha256)) => &signature::RSA_PKCS1_2048_8192_SHA256,
            (KeyKind::Rsa, Some(Sha384)) => &signature::RSA_PKCS1_2048_8192_SHA384,
            (KeyKind::Rsa, Some(Sha512)) => &signature::RSA_PKCS1_2048_8192_SHA512,
            (KeyKind::Ed25519, None) => &signature::ED25519,
            (KeyKind::Ed25519, Some(_)) | (_, None) => return false,
        };
        UnparsedPublicKey::new(algorithm, self.bits).verify(message, signature).is_ok()
    }
}

/// rcgen writes algorithm and bits again; [`PublicKey::read`] has made sure that this gives the same bytes.
impl rcgen::PublicKeyData for PublicKey<'_> {
    fn subject_public_key_info(&self) -> Vec<u8> {
        self.spki.to_vec()
    }

    fn der_bytes(&self) -> &[u8] {
        self.bits
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        rcgen_algorithm(self.kind)
    }
}

fn kind_of(algorithm: &[u8]) -> Result<KeyKind, KeyError> {
    let known = [
        (alg_id::ECDSA_P256, KeyKind::P256),
        (alg_id::ECDSA_P384, KeyKind::P384),
        (alg_id::ED25519, KeyKind::Ed25519),
        (alg_id::RSA_ENCRYPTION, KeyKind::Rsa),
    ];
    known.iter().find(|(id, _)| id.as_ref() == algorithm).map(|(_, kind)| *kind).ok_or(KeyError::Kind)
}

/// Bounds an RSA key before anything is computed with it: a giant modulus or exponent is a cheap way to
/// keep a server busy.
fn rsa(bits: &[u8]) -> Result<(), KeyError> {
    let (rest, key) = RSAPublicKey::from_der(bits).map_err(|_| KeyError::Malformed)?;
    let mut modulus = key.modulus.iter().skip_while(|byte| **byte == 0);
    let size = modulus.clone().count() * 8 - modulus.next().map_or(0, |byte| byte.leading_zeros() as usize);
    let exponent = key.try_exponent().map_err(|_| KeyError::RsaExponent)?;
    if !rest.is_empty() {
        Err(KeyError::Malformed)
    } else if !(2048..=4096).contains(&size) {
        Err(KeyError::RsaSize(size))
    } else if exponent.is_multiple_of(2) || !(65_537..1 << 32).contains(&exponent) {
        Err(KeyError::RsaExponent)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_key::HostKey;

    #[test]
    fn one_byte_too_many_or_too_few_is_refused() {
        let spki = HostKey::generate().unwrap().spki();
        assert_eq!(PublicKey::read(&spki).unwrap().kind, KeyKind::P256);
        for end in 0..spki.len() {
            assert!(PublicKey::read(&spki[..end]).is_err(), "{end}");
        }
        assert!(PublicKey::read(&[spki.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn a_compressed_point_is_refused() {
        let spki = HostKey::generate().unwrap().spki();
        let (algorithm, _) = der::content(&spki).and_then(der::split).unwrap();
        let mut point = [7; 34];
        point[..2].copy_from_slice(&[0, 2]);
        let compressed = der::wrap(der::SEQUENCE, &[algorithm, &der::wrap(der::BIT_STRING, &[&point])]);
        assert_eq!(PublicKey::read(&compressed).unwrap_err(), KeyError::Malformed);
    }

    #[test]
    fn an_rsa_key_is_bounded_on_both_sides() {
        let key = |bytes: usize, exponent: &[u8]| {
            let modulus = der::wrap(0x02, &[&[0], &vec![0xc3; bytes]]);
            der::wrap(der::SEQUENCE, &[&modulus, &der::wrap(0x02, &[exponent])])
        };
        assert_eq!(rsa(&key(256, &[1, 0, 1])), Ok(()));
        assert_eq!(rsa(&key(512, &[1, 0, 1])), Ok(()));
        assert_eq!(rsa(&key(128, &[1, 0, 1])), Err(KeyError::RsaSize(1024)));
        assert_eq!(rsa(&key(513, &[1, 0, 1])), Err(KeyError::RsaSize(4104)));
        for exponent in [&[3][..], &[1, 0, 0], &[1, 0, 0, 0, 1], &[1; 9], &[0x80, 0, 1]] {
            assert_eq!(rsa(&key(256, exponent)), Err(KeyError::RsaExponent), "{exponent:?}");
        }
    }
}
