//! Kinds of keys that a leaf certificate may be for.

use serde::{Deserialize, Serialize};

/// What kind of key a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    P256,
    P384,
    Ed25519,
    Rsa,
}

impl KeyKind {
    pub const ALL: [KeyKind; 4] = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa];

    pub fn as_str(self) -> &'static str {
        match self {
            KeyKind::P256 => "p256",
            KeyKind::P384 => "p384",
            KeyKind::Ed25519 => "ed25519",
            KeyKind::Rsa => "rsa",
        }
    }
}
