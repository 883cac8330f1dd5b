//! Time-ordered ids: 48 bits of milliseconds, 80 bits of chance, written in Crockford's base 32.

use super::{Malformed, Timestamp};

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const MALFORMED: Malformed = Malformed { what: "an id", expected: "a ULID (26 characters of base 32)" };

/// A ULID. Whoever draws it brings the time and the chance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ulid(u128);

impl Ulid {
    pub fn new(at: Timestamp, chance: [u8; 10]) -> Self {
        let mut low = [0u8; 16];
        for (to, from) in low.iter_mut().skip(6).zip(chance) {
            *to = from;
        }
        Self((u128::from(at.millis() & 0xffff_ffff_ffff) << 80) | u128::from_be_bytes(low))
    }

    pub fn at(self) -> Timestamp {
        Timestamp::from_millis((self.0 >> 80) as u64)
    }

    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if text.len() != 26 || text.as_bytes().first().is_none_or(|&b| b > b'7') {
            return Err(MALFORMED);
        }
        text.bytes()
            .try_fold(0u128, |sum, byte| {
                let digit = ALPHABET.iter().position(|&c| c == byte.to_ascii_uppercase())?;
                Some((sum << 5) | digit as u128)
            })
            .map(Self)
            .ok_or(MALFORMED)
    }
}

impl std::fmt::Display for Ulid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = (0..26)
            .map(|place| {
                let digit = (self.0 >> (125 - 5 * place)) & 31;
                ALPHABET.get(digit as usize).map_or('0', |&c| char::from(c))
            })
            .collect();
        f.write_str(&text)
    }
}

impl std::fmt::Debug for Ulid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(pub Ulid);

        impl $type {
            pub fn parse(text: &str) -> Result<Self, Malformed> {
                Ulid::parse(text).map(Self)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl TryFrom<String> for $type {
            type Error = Malformed;
            fn try_from(text: String) -> Result<Self, Malformed> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> String {
                id.to_string()
            }
        }
    };
}

id!(
    /// A command, drawn by the replica that received it.
    RequestId
);
id!(
    /// An enrollment token; its value is a secret that is never stored.
    TokenId
);
id!(
    /// The domain, drawn when it was founded.
    ClusterId
);
id!(
    /// An operator's API key; its value is a secret that is never stored.
    KeyId
);
id!(
    /// Something that wants an operator's attention.
    AlertId
);
id!(
    /// A shell or a command that runs on a node, drawn by its host.
    SessionId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ulid_reads_back_as_written_and_keeps_its_time() {
        let id = Ulid::new(Timestamp::from_millis(1_469_918_176_385), [7; 10]);
        assert_eq!(id.to_string().len(), 26);
        assert!(id.to_string().starts_with("01ARYZ6S41"));
        assert_eq!(Ulid::parse(&id.to_string()), Ok(id));
        assert_eq!(id.at(), Timestamp::from_millis(1_469_918_176_385));
    }

    #[test]
    fn what_is_no_ulid_is_refused() {
        for bad in ["", "01ARYZ6S41", "81ARYZ6S41TSV4RRFFQ69G5FAV", "01ARYZ6S41TSV4RRFFQ69G5FAU", "ä"] {
            assert!(Ulid::parse(bad).is_err(), "{bad}");
        }
    }
}
