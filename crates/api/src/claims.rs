//! Claims between domains: which machines are active in a domain, signed, for others to warn by. See docs/claims.md.

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Certificates between a signer and its root.
const CHAIN: usize = 4;
/// Machines of one document.
const MACHINES: usize = 100_000;
/// Identifiers of one machine.
const IDENTIFIERS: usize = 128;

/// What a domain posts, and what is read: one per line of the answer. Binary data is standard base64 with padding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedClaims {
    /// A [`ClaimsDocument`] as JSON; the signature is over these very bytes.
    pub document: String,
    /// ECDSA on P-256 with SHA-256, in ASN.1, over [`claims_message`].
    pub signature: String,
    /// Certificates in DER: the signer's first, then what leads to the domain's root. The root itself may be left out.
    #[serde(deserialize_with = "at_most::<CHAIN, _, _>")]
    pub chain: Vec<String>,
}

/// Every machine that is active in a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimsDocument {
    /// The trust domain.
    pub domain: String,
    pub issued_at: String,
    pub expires_at: String,
    #[serde(deserialize_with = "at_most::<MACHINES, _, _>")]
    pub claims: Vec<MachineClaim>,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClaim {
    #[serde(deserialize_with = "at_most::<IDENTIFIERS, _, _>")]
    pub hardware: Vec<HardwareDigest>,
    pub active_since: String,
}

/// SHA-256 of an identifier, as `kind:value` in lower case; 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HardwareDigest(pub [u8; 32]);

impl fmt::Display for HardwareDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for HardwareDigest {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HardwareDigest {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = HardwareDigest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 hex digits")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<HardwareDigest, E> {
                digest(text).ok_or_else(|| E::custom("not 64 hex digits"))
            }
        }

        reader.deserialize_str(Digits)
    }
}

fn digest(text: &str) -> Option<HardwareDigest> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut bytes = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(high)? << 4 | value(low)?;
    }
    Some(HardwareDigest(bytes))
}

/// A list that is given up at the first member that is too many: of what a stranger has written, a line of some MiB holds millions.
fn at_most<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
) -> Result<Vec<T>, D::Error> {
    struct Members<const MOST: usize, T>(PhantomData<T>);

    impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for Members<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = list.next_element()? {
                if members.len() == MOST {
                    return Err(A::Error::custom(format!("more than {MOST}")));
                }
                members.push(member);
            }
            Ok(members)
        }
    }

    reader.deserialize_seq(Members::<MOST, T>(PhantomData))
}

/// What is signed. It names its purpose, so that the signature is good for nothing else.
pub fn claims_message(document: &[u8]) -> Vec<u8> {
    [b"enlist claims v1\0".as_slice(), document].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_document_may_not_hold_is_not_kept_before_it_is_counted() {
        let claim = |count: usize| {
            let digests = vec![format!("\"{}\"", "Ab".repeat(32)); count].join(",");
            format!(r#"{{"hardware":[{digests}],"active_since":"2026-11-17T09:30:00.000Z"}}"#)
        };
        let read = |text: &str| serde_json::from_str::<MachineClaim>(text);
        assert_eq!(read(&claim(IDENTIFIERS)).unwrap().hardware[0].to_string(), "ab".repeat(32));
        assert!(read(&claim(IDENTIFIERS + 1)).unwrap_err().to_string().contains("more than 128"));
        for wrong in ["", "ab", &"ab".repeat(31), &"ab".repeat(33), &"+b".repeat(32), &"\u{e9}".repeat(32)] {
            let text = format!(r#"{{"hardware":["{wrong}"],"active_since":""}}"#);
            assert!(read(&text).is_err(), "{wrong}");
        }
        let chain = |count: usize| {
            let certificates = vec!["\"\""; count].join(",");
            format!(r#"{{"document":"","signature":"","chain":[{certificates}]}}"#)
        };
        assert!(serde_json::from_str::<SignedClaims>(&chain(CHAIN)).is_ok());
        assert!(serde_json::from_str::<SignedClaims>(&chain(CHAIN + 1)).is_err());
    }
}
