//! SHA-256 of the things that Enlist remembers only by their digest.

use aws_lc_rs::digest::{SHA256, digest};
use lifecycle::names::{Checksum, Fingerprint, IdempotencyHash, KeyHash, SecretHash};

/// Of a certificate's DER.
pub fn fingerprint(der: &[u8]) -> Fingerprint {
    Fingerprint::new(sha256(der))
}

/// Of a token or an API key, as presented. These carry 128 random bits or more, so no salt is needed.
pub fn secret_hash(secret: &[u8]) -> SecretHash {
    SecretHash::new(sha256(secret))
}

/// Of a SubjectPublicKeyInfo in DER.
pub fn key_hash(spki_der: &[u8]) -> KeyHash {
    KeyHash::new(sha256(spki_der))
}

/// Of a configuration document.
pub fn checksum(document: &[u8]) -> Checksum {
    Checksum::new(sha256(document))
}

/// Of a caller's `Idempotency-Key`.
pub fn idempotency_hash(key: &[u8]) -> IdempotencyHash {
    IdempotencyHash::new(sha256(key))
}

/// Of what identifies a machine, as `kind:value`. It hides little: MAC addresses can be guessed.
pub fn hardware_digest(identifier: &str) -> [u8; 32] {
    sha256(identifier.as_bytes())
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(digest(&SHA256, bytes).as_ref()) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_is_sha_256() {
        let hex = super::fingerprint(b"abc").hex();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
