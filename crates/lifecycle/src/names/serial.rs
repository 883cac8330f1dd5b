//! A certificate's serial number.

use super::Malformed;
use std::sync::Arc;

/// Lower-case hex without leading zeros, at most 20 octets (RFC 5280).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Serial(Arc<str>);

impl Serial {
    /// From the big-endian octets of the INTEGER.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::parse(&super::hex(bytes))
    }

    /// From hex in either case, leading zeros allowed.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let digits = text.trim_start_matches('0').to_ascii_lowercase();
        if (1..=40).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self(digits.into()))
        } else {
            Err(Malformed { what: "a serial", expected: "1 to 40 hex digits, not all zero" })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Serial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Serial {
    type Error = Malformed;
    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}

impl From<Serial> for String {
    fn from(serial: Serial) -> String {
        serial.0.as_ref().to_owned()
    }
}
