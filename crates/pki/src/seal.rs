//! Sealing: how a CA key rests in the registry and in backups without being readable there.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

pub use crate::kek::{KekError, KekSource};

/// Written first, and part of what is authenticated.
const VERSION: u8 = 2;
/// What versions before the log was authenticated sealed with. Opened only while a directory of theirs is taken in: else
/// somebody could write such a directory around an old sealed key.
const BEFORE_LOG_KEY: u8 = 1;
const NONCE: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("sealed by a version this program does not know")]
    Version,
    #[error("cannot be opened: another key, another purpose, or damaged")]
    Refused,
    #[error("the cipher failed")]
    Cipher,
}

/// The key-encryption key: 32 bytes, wiped when dropped, never printed.
pub struct Kek(Zeroizing<[u8; 32]>);

impl Kek {
    pub fn from_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// 16 hex digits that tell one key from another and nothing more, so that a wrong key is recognised
    /// before anything is opened with it.
    pub fn id(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.as_slice());
        let tag = hmac::sign(&key, b"enlist kek id v1");
        tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// AES-256-GCM under a random nonce: version, nonce, ciphertext and tag. `context` says what is sealed
    /// (`issuer/<id>`); what was sealed as one thing cannot be opened as another.
    pub fn seal(&self, context: &str, plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut body = Vec::with_capacity(plaintext.len() + 16);
        body.extend_from_slice(plaintext);
        let nonce = self.cipher()?.seal_in_place_append_tag(aad(VERSION, context), &mut body);
        let nonce = nonce.map_err(|_| SealError::Cipher)?;
        Ok([&[VERSION], nonce.as_ref().as_slice(), &body].concat())
    }

    pub fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        self.unseal_as(VERSION, context, sealed)
    }

    /// Opens what a version before the log was authenticated has sealed, and nothing that was sealed since.
    pub fn unseal_older(&self, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        self.unseal_as(BEFORE_LOG_KEY, context, sealed)
    }

    fn unseal_as(&self, of: u8, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (version, rest) = sealed.split_first().ok_or(SealError::Refused)?;
        if *version != of {
            return Err(SealError::Version);
        }
        let (nonce, body) = rest.split_at_checked(NONCE).ok_or(SealError::Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Refused)?;
        let mut body = Zeroizing::new(body.to_vec());
        let opened = self.cipher()?.open_in_place(nonce, aad(of, context), &mut body);
        let length = opened.map_err(|_| SealError::Refused)?.len();
        body.truncate(length);
        Ok(body)
    }

    fn cipher(&self) -> Result<RandomizedNonceKey, SealError> {
        RandomizedNonceKey::new(&AES_256_GCM, self.0.as_slice()).map_err(|_| SealError::Cipher)
    }
}

impl std::fmt::Debug for Kek {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kek(hidden)")
    }
}

fn aad(version: u8, context: &str) -> Aad<String> {
    Aad::from(format!("enlist seal v{version}/{context}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kek(byte: u8) -> Kek {
        Kek::from_bytes(Zeroizing::new([byte; 32]))
    }

    #[test]
    fn what_is_sealed_opens_only_with_the_same_key_and_purpose() {
        let sealed = kek(1).seal("issuer/a", b"secret").unwrap();
        assert_eq!(kek(1).unseal("issuer/a", &sealed).unwrap().as_slice(), b"secret");
        assert_eq!(kek(2).unseal("issuer/a", &sealed), Err(SealError::Refused));
        assert_eq!(kek(1).unseal("issuer/b", &sealed), Err(SealError::Refused));
        assert_ne!(kek(1).seal("issuer/a", b"secret").unwrap(), sealed);
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let sealed = kek(1).seal("x", b"").unwrap();
        assert!(kek(1).unseal("x", &sealed).unwrap().is_empty());
        for place in 0..sealed.len() {
            assert!(kek(1).unseal("x", &sealed[..place]).is_err());
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(kek(1).unseal("x", &changed).is_err());
        }
    }

    #[test]
    fn what_is_sealed_now_does_not_open_as_sealed_before() {
        let mut sealed = kek(1).seal("x", b"secret").unwrap();
        assert_eq!(kek(1).unseal_older("x", &sealed), Err(SealError::Version));
        sealed[0] = BEFORE_LOG_KEY;
        assert_eq!(kek(1).unseal("x", &sealed), Err(SealError::Version));
        assert_eq!(kek(1).unseal_older("x", &sealed), Err(SealError::Refused));
    }

    #[test]
    fn a_key_is_known_by_its_id_and_never_shown() {
        assert_eq!(kek(1).id().len(), 16);
        assert_eq!(kek(1).id(), kek(1).id());
        assert_ne!(kek(1).id(), kek(2).id());
        assert_eq!(format!("{:?}", kek(1)), "Kek(hidden)");
    }
}
