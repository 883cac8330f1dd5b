//! A key that stays in an HSM.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA384, digest};
use rustls_pki_types::alg_id;
use serde::{Deserialize, Serialize};

use super::call::{HsmAnswer, HsmRequest};
use super::error::HsmError;
use super::pool::Hsm;
use crate::der;
use crate::spki::{Hash, KeyKind, PublicKey, rcgen_algorithm};

const INTEGER: u8 = 0x02;

/// A key as the token describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundKey {
    pub label: String,
    pub kind: KeyKind,
    /// SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// Whether the token would give it out.
    pub is_extractable: bool,
}

impl FoundKey {
    /// Of a point as tokens write it: bare, or in an OCTET STRING.
    pub(super) fn spki(kind: KeyKind, point: &[u8]) -> Option<Vec<u8>> {
        let (algorithm, length) = match kind {
            KeyKind::P256 => (alg_id::ECDSA_P256, 65),
            KeyKind::P384 => (alg_id::ECDSA_P384, 97),
            KeyKind::Ed25519 | KeyKind::Rsa => return None,
        };
        let bare = if point.len() == length { point } else { der::content(point)? };
        let algorithm = der::wrap(der::SEQUENCE, &[algorithm.as_ref()]);
        let spki = der::wrap(der::SEQUENCE, &[&algorithm, &der::wrap(der::BIT_STRING, &[&[0], bare])]);
        PublicKey::read(&spki).ok().filter(|key| key.kind == kind)?;
        Some(spki)
    }
}

/// Signs by asking the HSM, and gives out no signature that its public key does not verify. It exists while the HSM is
/// away; signing then fails.
#[derive(Clone)]
pub struct HsmKey {
    hsm: Arc<Hsm>,
    label: String,
    kind: KeyKind,
    spki: Vec<u8>,
    bits: Vec<u8>,
}

impl HsmKey {
    pub(super) fn new(hsm: Arc<Hsm>, label: &str, spki: &[u8]) -> Result<Self, HsmError> {
        let other = |found: &str| HsmError::KeyKind { label: label.to_owned(), found: found.to_owned() };
        let key = PublicKey::read(spki).map_err(|error| other(&error.to_string()))?;
        match key.kind {
            KeyKind::P256 | KeyKind::P384 => {}
            KeyKind::Ed25519 => return Err(other("an Ed25519 key")),
            KeyKind::Rsa => return Err(other("an RSA key")),
        }
        let (kind, bits) = (key.kind, key.bits.to_vec());
        Ok(Self { hsm, label: label.to_owned(), kind, spki: spki.to_vec(), bits })
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> Vec<u8> {
        self.spki.clone()
    }

    /// An X.509 signature, with the curve's own digest. Waits for the HSM: not to be called where others wait for the thread.
    pub fn signature(&self, message: &[u8]) -> Result<Vec<u8>, HsmError> {
        let (hash, digest) = match self.kind {
            KeyKind::P384 => (Hash::Sha384, digest(&SHA384, message)),
            KeyKind::P256 | KeyKind::Ed25519 | KeyKind::Rsa => (Hash::Sha256, digest(&SHA256, message)),
        };
        let request = HsmRequest::Sign { label: self.label.clone(), digest: digest.as_ref().to_vec() };
        let HsmAnswer::Signature(pair) = self.hsm.ask(request)? else {
            return Err(HsmError::Unusable("another answer than a signature".to_owned()));
        };
        let other = || HsmError::OtherKey { label: self.label.clone() };
        let signature = der_signature(&pair).ok_or_else(other)?;
        let key = PublicKey::read(&self.spki).map_err(|_| other())?;
        if key.verify(Some(hash), message, &signature) { Ok(signature) } else { Err(other()) }
    }

    /// Whether the HSM holds this very key and signs with it now.
    pub fn check(&self) -> Result<(), HsmError> {
        let mut challenge = [0; 32];
        let drawn = aws_lc_rs::rand::fill(&mut challenge);
        drawn.map_err(|_| HsmError::Unusable("the system gave no random bytes".to_owned()))?;
        // Not the body of a certificate or of a list: those are sequences.
        self.signature(&[b"enlist key check ", challenge.as_slice()].concat()).map(drop)
    }
}

impl rcgen::PublicKeyData for HsmKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        rcgen_algorithm(self.kind)
    }
}

impl rcgen::SigningKey for HsmKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.signature(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// PKCS#11 writes two numbers of equal length; X.509 a SEQUENCE of two INTEGERs.
fn der_signature(pair: &[u8]) -> Option<Vec<u8>> {
    let half = pair.len().checked_div(2).filter(|half| *half > 0 && half * 2 == pair.len())?;
    let (r, s) = pair.split_at_checked(half)?;
    Some(der::wrap(der::SEQUENCE, &[&integer(r), &integer(s)]))
}

fn integer(number: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = number.iter().copied().skip_while(|byte| *byte == 0).collect();
    // A first bit that is set would make it negative, and nothing at all is no number.
    let zero: &[u8] = if digits.first().is_none_or(|first| *first >= 0x80) { &[0] } else { &[] };
    der::wrap(INTEGER, &[zero, &digits])
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn a_pair_of_numbers_becomes_a_signature_that_verifies() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref();
        let spki = FoundKey::spki(KeyKind::P256, point).unwrap();
        assert_eq!(FoundKey::spki(KeyKind::P256, &der::wrap(0x04, &[point])).unwrap(), spki);
        assert_eq!(FoundKey::spki(KeyKind::P384, point), None);
        assert_eq!(FoundKey::spki(KeyKind::P256, &point[1..]), None);
        let key = PublicKey::read(&spki).unwrap();
        for round in 0..300_u32 {
            let message = round.to_be_bytes();
            let fixed = pair.sign(&SystemRandom::new(), &message).unwrap();
            let signature = der_signature(fixed.as_ref()).unwrap();
            assert!(key.verify(Some(Hash::Sha256), &message, &signature));
            assert!(!key.verify(Some(Hash::Sha256), b"another", &signature));
        }
    }

    #[test]
    fn what_is_no_pair_is_refused() {
        assert_eq!(der_signature(&[]), None);
        assert_eq!(der_signature(&[1; 63]), None);
        assert_eq!(der_signature(&[0, 0x80]).unwrap(), [0x30, 7, 2, 1, 0, 2, 2, 0, 0x80]);
    }
}
