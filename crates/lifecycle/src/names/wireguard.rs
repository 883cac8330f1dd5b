//! WireGuard public keys.

use super::Malformed;

/// A Curve25519 point that can take part in a key exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireguardKey([u8; 32]);

/// Points of small order: a key exchange with one gives a secret that everyone knows.
/// The top bit is ignored by X25519, so it is ignored here.
const LOW_ORDER: [[u8; 32]; 7] = [
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
    near_prime(0xed),
    near_prime(0xee),
];

/// 2^255 - 19 and its neighbours, little-endian, by their lowest octet.
const fn near_prime(lowest: u8) -> [u8; 32] {
    let mut point = [0xff; 32];
    point[0] = lowest;
    point[31] = 0x7f;
    point
}

impl WireguardKey {
    pub fn new(bytes: [u8; 32]) -> Result<Self, Malformed> {
        let mut masked = bytes;
        if let Some(top) = masked.last_mut() {
            *top &= 0x7f;
        }
        if LOW_ORDER.contains(&masked) {
            return Err(Malformed { what: "a WireGuard key", expected: "a Curve25519 point of full order" });
        }
        Ok(Self(bytes))
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
        let bytes = serde_bytes::ByteArray::<32>::deserialize(input)?;
        Self::new(*bytes).map_err(serde::de::Error::custom)
    }
}
