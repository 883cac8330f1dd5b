//! SHA-256 of the things that Enlist remembers only by their digest.

use aws_lc_rs::digest::{SHA256, digest};
use lifecycle::names::{Checksum, Fingerprint, IdempotencyHash, KeyHash, SecretHash};
use std::collections::BTreeSet;

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

/// What [`trust_digest`] gives.
pub type TrustDigest = [u8; 32];

/// Of what a host trusts and verifies nodes by, each in DER: equal wherever the same is stored, in whatever order. A number that
/// comes with it is nobody's signature, so it says nothing of the contents.
pub fn trust_digest<'a>(
    roots: impl IntoIterator<Item = &'a [u8]>,
    node_issuers: impl IntoIterator<Item = &'a [u8]>,
    root_lists: impl IntoIterator<Item = &'a [u8]>,
) -> TrustDigest {
    fn one_by_one<'a>(ders: impl IntoIterator<Item = &'a [u8]>) -> BTreeSet<[u8; 32]> {
        ders.into_iter().map(sha256).collect()
    }
    let mut text = b"enlist stored trust 1".to_vec();
    for ders in [one_by_one(roots), one_by_one(node_issuers), one_by_one(root_lists)] {
        text.extend_from_slice(&(ders.len() as u64).to_be_bytes());
        ders.iter().for_each(|digest| text.extend_from_slice(digest));
    }
    sha256(&text)
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

    #[test]
    fn what_is_trusted_has_one_digest_in_any_order_and_another_with_anything_moved() {
        let of = |roots: &[&'static [u8]], issuers: &[&'static [u8]], lists: &[&'static [u8]]| {
            let all = |ders: &[&'static [u8]]| ders.to_vec();
            super::trust_digest(all(roots), all(issuers), all(lists))
        };
        let known = of(&[b"r", b"s"], &[b"i", b"r"], &[b"l"]);
        assert_eq!(known, of(&[b"s", b"r", b"r"], &[b"r", b"i"], &[b"l"]));
        for other in [
            of(&[b"r", b"s"], &[b"i", b"r"], &[]),
            of(&[b"r"], &[b"s", b"i", b"r"], &[b"l"]),
            of(&[b"r", b"s"], &[b"i"], &[b"r", b"l"]),
            of(&[b"rs"], &[b"i", b"r"], &[b"l"]),
        ] {
            assert_ne!(known, other);
        }
    }
}
