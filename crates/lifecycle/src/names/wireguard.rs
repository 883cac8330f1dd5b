//! WireGuard public keys.

use super::Malformed;

/// A Curve25519 point that can take part in a key exchange, in the one encoding that its owner's programs print. X25519
/// ignores the top bit and reduces by 2^255 - 19, so some points have several encodings, which hosts take for one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireguardKey([u8; 32]);

/// Points of small order: a key exchange with one gives a secret that everyone knows.
const LOW_ORDER: [[u8; 32]; 5] = [
    [0; 32],
    {
        let mut one = [0; 32];
        one[0] = 1;
        one
    },
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda,
        0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04,
        0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
    ],
    near_prime(0xec),
];

/// 2^255 - 19 (lowest octet 0xed) and its neighbours, little-endian.
const fn near_prime(lowest: u8) -> [u8; 32] {
    let mut point = [0xff; 32];
    point[0] = lowest;
    point[31] = 0x7f;
    point
}

impl WireguardKey {
    pub fn new(bytes: [u8; 32]) -> Result<Self, Malformed> {
        let key = Self(bytes);
        if !key.is_usable() {
            let expected = "the canonical encoding of a Curve25519 point of full order";
            return Err(Malformed { what: "a WireGuard key", expected });
        }
        Ok(key)
    }

    /// Whether it would be taken today: a log of before may hold one that hosts refuse.
    pub fn is_usable(&self) -> bool {
        // Little-endian numbers compare from the last octet on.
        let is_canonical = self.0.iter().rev().lt(near_prime(0xed).iter().rev());
        is_canonical && !LOW_ORDER.contains(&self.0)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl serde::Serialize for WireguardKey {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        serde_bytes::Bytes::new(&self.0).serialize(out)
    }
}

impl<'de> serde::Deserialize<'de> for WireguardKey {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        // As it was written: logs of before hold encodings that are not taken any more, and the same log must give the same registry.
        serde_bytes::ByteArray::<32>::deserialize(input).map(|bytes| Self(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_encoding() {
        let plain = [9; 32];
        assert_eq!(WireguardKey::new(plain).map(|key| *key.as_bytes()), Ok(plain));
        let mut twin = plain;
        twin[31] |= 0x80;
        assert!(WireguardKey::new(twin).is_err(), "bit 255");
        for lowest in 0xed..=0xff {
            assert!(WireguardKey::new(near_prime(lowest)).is_err(), "not below 2^255 - 19");
        }
        assert!(WireguardKey::new(near_prime(0xeb)).is_ok());
        for low in LOW_ORDER {
            assert!(WireguardKey::new(low).is_err(), "of low order");
        }
    }

    #[test]
    fn an_encoding_of_an_old_log_is_read_as_it_stands() {
        let stored = rmp_serde::to_vec(serde_bytes::Bytes::new(&[0xff; 32])).unwrap();
        let read: WireguardKey = rmp_serde::from_slice(&stored).unwrap();
        assert!(!read.is_usable());
        assert_eq!((read.as_bytes(), rmp_serde::to_vec(&read).unwrap()), (&[0xff; 32], stored));
    }
}
