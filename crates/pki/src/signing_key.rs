//! Private keys that sign. No copy of the key's own bytes is kept beside the library's.

use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rcgen::PublicKeyData as _;
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use crate::pkcs11::{HsmError, HsmKey};
use crate::spki::{KeyKind, rcgen_algorithm};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    #[error("not an unencrypted P-256, P-384, Ed25519 or RSA (2048 bits or more) private key")]
    Unreadable,
    #[error("not an unencrypted P-256 private key")]
    NotP256,
    #[error("the system could not make a key")]
    Generation,
}

/// Why a key did not sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the issuer's key could not sign")]
    Library,
    #[error("the issuer's key could not sign: {0}")]
    Hsm(#[from] HsmError),
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
    Hsm(Box<HsmKey>),
}

pub(crate) struct SigningKey {
    kind: KeyKind,
    pair: Pair,
}

impl SigningKey {
    /// A new P-256 key, and its PKCS#8 form to be sealed or written.
    pub fn generate() -> Result<(Self, Zeroizing<Vec<u8>>), SigningKeyError> {
        Self::with_pkcs8(new_p256()?)
    }

    /// A new P-256 key that is never written out: the library holds it, and overwrites it when it is dropped.
    pub fn generate_unwritten() -> Result<Self, SigningKeyError> {
        Ok(Self { kind: KeyKind::P256, pair: Pair::Ecdsa(new_p256()?) })
    }

    /// A P-256 key in any form, and its PKCS#8 form.
    pub fn read_p256(der: &[u8]) -> Result<(Self, Zeroizing<Vec<u8>>), SigningKeyError> {
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
        Self::with_pkcs8(pair.map_err(|_| SigningKeyError::NotP256)?)
    }

    fn with_pkcs8(pair: EcdsaKeyPair) -> Result<(Self, Zeroizing<Vec<u8>>), SigningKeyError> {
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| SigningKeyError::Generation)?;
        let pkcs8 = Zeroizing::new(pkcs8.as_ref().to_vec());
        Ok((Self { kind: KeyKind::P256, pair: Pair::Ecdsa(pair) }, pkcs8))
    }

    /// PKCS#8, SEC1 or PKCS#1; which of them, the bytes tell.
    pub fn read(der: &[u8]) -> Result<Self, SigningKeyError> {
        let unreadable = SigningKeyError::Unreadable;
        let form = PrivateKeyDer::try_from(der).map_err(|_| unreadable)?;
        if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der) {
            return Ok(Self { kind: KeyKind::P256, pair: Pair::Ecdsa(pair) });
        }
        if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P384_SHA384_ASN1_SIGNING, der) {
            return Ok(Self { kind: KeyKind::P384, pair: Pair::Ecdsa(pair) });
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self { kind: KeyKind::Ed25519, pair: Pair::Ed25519(pair) });
        }
        let rsa = match form {
            PrivateKeyDer::Pkcs8(_) => RsaKeyPair::from_pkcs8(der),
            _ => RsaKeyPair::from_der(der),
        };
        let pair = rsa.map_err(|_| unreadable)?;
        Ok(Self { kind: KeyKind::Rsa, pair: Pair::Rsa(Box::new(pair)) })
    }

    /// An elliptic-curve key in SEC1 form, with its curve's name.
    pub fn sec1(&self) -> Result<Zeroizing<Vec<u8>>, SigningKeyError> {
        let Pair::Ecdsa(pair) = &self.pair else { return Err(SigningKeyError::NotP256) };
        let der: EcPrivateKeyRfc5915Der<'_> =
            pair.private_key().as_der().map_err(|_| SigningKeyError::Generation)?;
        Ok(Zeroizing::new(der.as_ref().to_vec()))
    }

    /// A key that stays in an HSM.
    pub fn in_hsm(key: HsmKey) -> Self {
        Self { kind: key.kind(), pair: Pair::Hsm(Box::new(key)) }
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    pub fn hsm_key(&self) -> Option<&HsmKey> {
        match &self.pair {
            Pair::Hsm(key) => Some(key),
            Pair::Ecdsa(_) | Pair::Ed25519(_) | Pair::Rsa(_) => None,
        }
    }

    /// SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> Vec<u8> {
        self.subject_public_key_info()
    }

    /// ECDSA with the curve's own digest, Ed25519, or RSA PKCS#1 with SHA-256. A key in an HSM may keep the caller waiting.
    pub fn signature(&self, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        let signature = match &self.pair {
            Pair::Ecdsa(pair) => {
                pair.sign(&SystemRandom::new(), message).ok().map(|signature| signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => pair.try_sign(message).ok().map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let signed = pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
                signed.ok().map(|()| signature)
            }
            Pair::Hsm(key) => return Ok(key.signature(message)?),
        };
        signature.ok_or(SignatureError::Library)
    }
}

fn new_p256() -> Result<EcdsaKeyPair, SigningKeyError> {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| SigningKeyError::Generation)
}

impl rcgen::PublicKeyData for SigningKey {
    fn der_bytes(&self) -> &[u8] {
        match &self.pair {
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::Hsm(key) => key.der_bytes(),
        }
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        rcgen_algorithm(self.kind)
    }
}

impl rcgen::SigningKey for SigningKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.signature(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
