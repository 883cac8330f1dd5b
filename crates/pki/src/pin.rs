//! Pins: the SHA-256 of a certificate that an operator hands to a host by another road.

use lifecycle::names::Fingerprint;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a pin is 64 hex digits, with or without colons, after an optional 'sha256:'")]
pub struct PinError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

impl Pin {
    /// Reads `sha256:ab12…`, `AB:12:…` as `openssl x509 -fingerprint -sha256` prints it, and plain hex.
    pub fn parse(text: &str) -> Result<Self, PinError> {
        let text = text.trim();
        let digits = match text.split_at_checked(7) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("sha256:") => rest,
            _ => text,
        };
        let digits: String = if digits.contains(':') {
            let pairs: Vec<&str> = digits.split(':').collect();
            if pairs.iter().any(|pair| pair.len() != 2) {
                return Err(PinError);
            }
            pairs.concat()
        } else {
            digits.to_owned()
        };
        let mut pin = [0; 32];
        hex::decode_to_slice(digits, &mut pin).map_err(|_| PinError)?;
        Ok(Self(pin))
    }

    pub fn of(der: &[u8]) -> Self {
        Self(crate::digest::sha256(der))
    }

    /// Whether this is the certificate the operator meant.
    pub fn matches(&self, der: &[u8]) -> bool {
        Self::of(der) == *self
    }
}

impl From<Fingerprint> for Pin {
    fn from(fingerprint: Fingerprint) -> Self {
        Self(*fingerprint.as_bytes())
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl std::str::FromStr for Pin {
    type Err = PinError;
    fn from_str(text: &str) -> Result<Self, PinError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_in_every_spelling_people_paste() {
        let pin = Pin::of(b"certificate");
        let hex = hex::encode(pin.0);
        let colons = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap())
            .collect::<Vec<_>>()
            .join(":");
        for text in [
            hex.clone(),
            hex.to_uppercase(),
            colons.clone(),
            colons.to_uppercase(),
            pin.to_string(),
            format!("SHA256:{}", colons.to_uppercase()),
            format!(" sha256:{hex}\n"),
        ] {
            assert_eq!(Pin::parse(&text), Ok(pin), "{text}");
        }
        assert!(pin.matches(b"certificate") && !pin.matches(b"another"));
    }

    #[test]
    fn what_is_no_digest_is_no_pin() {
        let hex = "ab".repeat(32);
        for bad in [
            "",
            "sha256:",
            "sha1:abcd",
            &hex[1..],
            &format!("{hex}a"),
            &"zz".repeat(32),
            &format!("a:{}", &hex[1..]),
            &"é".repeat(32),
        ] {
            assert_eq!(Pin::parse(bad), Err(PinError), "{bad}");
        }
    }
}
