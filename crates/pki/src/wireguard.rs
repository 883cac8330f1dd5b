//! A host's WireGuard key, made where it is used. It never leaves the host; its public half does.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use aws_lc_rs::encoding::{AsBigEndian as _, Curve25519SeedBin};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireguardKeyError {
    #[error("not the base64 of 32 bytes, as `wg genkey` writes it")]
    Unreadable,
    #[error("the system could not make a key")]
    Generation,
}

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

    /// The public half, base64, as `wg pubkey` prints it.
    pub fn public_text(&self) -> Result<String, WireguardKeyError> {
        let key = PrivateKey::from_private_key(&X25519, self.0.as_slice());
        let key = key.map_err(|_| WireguardKeyError::Unreadable)?;
        let public = key.compute_public_key().map_err(|_| WireguardKeyError::Unreadable)?;
        Ok(STANDARD.encode(public.as_ref()))
    }
}

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
