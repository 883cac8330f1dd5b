//! A host's WireGuard key, made where it is used. It never leaves the host; its public half does.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::encoding::{AsBigEndian as _, Curve25519SeedBin};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireguardKeyError {
    #[error("not the base64 of 32 bytes, as `wg genkey` writes it")]
    Unreadable,
    #[error("the system could not make a key")]
    Generation,
    #[error("the other key is none that an exchange could be made with")]
    NoExchange,
}

/// A public key: 32 bytes.
pub type WireguardPublic = [u8; 32];

/// The private half, as `wg genkey` would make it.
#[derive(Clone, PartialEq, Eq)]
pub struct WireguardPrivate(Zeroizing<[u8; 32]>);

impl WireguardPrivate {
    pub fn generate() -> Result<Self, WireguardKeyError> {
        let key = PrivateKey::generate(&X25519).map_err(|_| WireguardKeyError::Generation)?;
        let seed: Curve25519SeedBin<'_> = key.as_be_bytes().map_err(|_| WireguardKeyError::Generation)?;
        let mut bytes = Zeroizing::new([0; 32]);
        if seed.as_ref().len() != bytes.len() {
            return Err(WireguardKeyError::Generation);
        }
        bytes.copy_from_slice(seed.as_ref());
        // Clamped as the exchange itself does it, so that every tool shows the same key.
        if let [first, .., last] = bytes.as_mut_slice() {
            *first &= 0b1111_1000;
            *last = (*last & 0b0111_1111) | 0b0100_0000;
        }
        Ok(Self(bytes))
    }

    /// One line of base64, with or without its line break.
    pub fn from_text(text: &[u8]) -> Result<Self, WireguardKeyError> {
        let decoded = Zeroizing::new(STANDARD.decode(text.trim_ascii()).unwrap_or_default());
        let bytes = decoded.as_slice().try_into().map_err(|_| WireguardKeyError::Unreadable)?;
        Ok(Self(Zeroizing::new(bytes)))
    }

    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.0.as_slice()) + "\n")
    }

    /// The key itself, for the tunnel that uses it.
    pub fn expose(&self) -> &Zeroizing<[u8; 32]> {
        &self.0
    }

    pub fn public(&self) -> Result<WireguardPublic, WireguardKeyError> {
        let public = self.exchange()?.compute_public_key().map_err(|_| WireguardKeyError::Unreadable)?;
        public.as_ref().try_into().map_err(|_| WireguardKeyError::Unreadable)
    }

    /// The public half, base64, as `wg pubkey` prints it.
    pub fn public_text(&self) -> Result<String, WireguardKeyError> {
        Ok(STANDARD.encode(self.public()?))
    }

    /// Proves to whoever has the private half of `challenge` that this node has this key: a signature cannot be made with it.
    pub fn prove(&self, challenge: &WireguardPublic, node_id: &str) -> Result<[u8; 32], WireguardKeyError> {
        self.prove_for(challenge, node_id, &self.public()?)
    }

    /// The same of a key that is to take the place of this one.
    pub fn prove_for(
        &self,
        challenge: &WireguardPublic,
        node_id: &str,
        key: &WireguardPublic,
    ) -> Result<[u8; 32], WireguardKeyError> {
        // The product of a low-order point is refused here.
        let tag = agreement::agree(
            &self.exchange()?,
            UnparsedPublicKey::new(&X25519, challenge),
            WireguardKeyError::NoExchange,
            |product| {
                let mut text = Vec::from(CLAIM);
                text.extend(node_id.as_bytes());
                text.push(0);
                text.extend(key);
                Ok(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, product), &text))
            },
        )?;
        tag.as_ref().try_into().map_err(|_| WireguardKeyError::NoExchange)
    }

    fn exchange(&self) -> Result<PrivateKey, WireguardKeyError> {
        let key = PrivateKey::from_private_key(&X25519, self.0.as_slice());
        key.map_err(|_| WireguardKeyError::Unreadable)
    }
}

/// What the proof of a key is about, so that it proves nothing else.
const CLAIM: &[u8] = b"enlist overlay claim 1\0";

/// Never the key.
impl std::fmt::Debug for WireguardPrivate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WireguardPrivate(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748, 6.1.
    #[test]
    fn the_public_half_is_that_of_the_standard() {
        let private = "XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os=";
        let public = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";
        let key = WireguardPrivate::from_text(private.as_bytes()).unwrap();
        // The vector is not clamped; what it is the public half of is all the same.
        assert_eq!(key.public_text().unwrap(), public);
    }

    #[test]
    fn a_proof_is_the_hmac_of_the_claim_under_the_common_product() {
        let (host, challenge) =
            (WireguardPrivate::generate().unwrap(), WireguardPrivate::generate().unwrap());
        let proof = host.prove(&challenge.public().unwrap(), "n1").unwrap();
        let other = UnparsedPublicKey::new(&X25519, host.public().unwrap());
        let product =
            agreement::agree(&challenge.exchange().unwrap(), other, (), |product| Ok(product.to_vec()));
        let text = [b"enlist overlay claim 1\0n1\0".as_slice(), &host.public().unwrap()].concat();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &product.unwrap());
        assert!(hmac::verify(&key, &text, &proof).is_ok());
        assert_ne!(host.prove(&challenge.public().unwrap(), "n2").unwrap(), proof);
        assert_eq!(host.prove(&[0; 32], "n1"), Err(WireguardKeyError::NoExchange));
    }

    #[test]
    fn a_key_survives_the_disk_and_is_not_printed() {
        let key = WireguardPrivate::generate().unwrap();
        let text = key.to_text();
        assert_eq!(text.len(), 45);
        assert_eq!(WireguardPrivate::from_text(text.as_bytes()), Ok(key.clone()));
        assert_ne!(key, WireguardPrivate::generate().unwrap());
        assert_eq!(format!("{key:?}"), "WireguardPrivate(hidden)");
        for bad in ["", "AAAA", "not base64 at all, really not, no no no no ="] {
            assert_eq!(WireguardPrivate::from_text(bad.as_bytes()), Err(WireguardKeyError::Unreadable));
        }
    }
}
