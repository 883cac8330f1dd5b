//! Configuration documents as they come in: the text of a JSON object, kept byte for byte. Parsers differ on what a key means
//! that stands twice, and some fall over deep nesting, so both are refused before a host sees them.

use crate::http::extract;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use axum::extract::{FromRequest, Request};
use lifecycle::registry::{ConfigDocument, DOCUMENT_MAX};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How deep objects and lists may stand in each other.
const DEPTH: usize = 64;

/// A body that is a document.
pub struct DocumentBody(pub ConfigDocument);

impl FromRequest<Arc<App>> for DocumentBody {
    type Rejection = Failure;

    async fn from_request(request: Request, _app: &Arc<App>) -> Result<Self, Failure> {
        read(&extract::body(request).await?).map(Self)
    }
}

fn read(bytes: &[u8]) -> Result<ConfigDocument, Failure> {
    if bytes.len() > DOCUMENT_MAX {
        let message = format!("the document is larger than {DOCUMENT_MAX} bytes");
        return Err(Failure::new(code::TOO_LARGE, message));
    }
    let invalid = |what: &str| Failure::new(code::DOCUMENT_INVALID, format!("the document is {what}"));
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
    if !text.trim_start().starts_with('{') {
        return Err(invalid("not a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Depth(DEPTH).deserialize(&mut reader).and_then(|()| reader.end());
    read.map_err(|error| invalid(&format!("not as expected: {error}")))?;
    Ok(ConfigDocument { text: text.into(), checksum: pki::digest::checksum(text.as_bytes()) })
}

/// Reads a value to its end that is at most so deep, and keeps nothing of it.
#[derive(Clone, Copy)]
struct Depth(usize);

impl Depth {
    fn below<E: Error>(self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Depth).ok_or_else(|| E::custom(format!("nested deeper than {DEPTH}")))
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Depth {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let below = self.below()?;
        while items.next_element_seed(below)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let below = self.below()?;
        let mut seen = BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(below)?;
            if let Some(twice) = seen.replace(key) {
                let shown: String = twice.chars().take(64).collect();
                return Err(A::Error::custom(format!("the key {shown:?} stands twice in one object")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match read(text.as_bytes()) {
            Ok(_) => panic!("{text} was taken"),
            Err(failure) => format!("{}: {}", failure.code.word, failure.message),
        }
    }

    #[test]
    fn a_document_is_kept_byte_for_byte() {
        let text = " {\"a\": [1, -2, 1.5e3, null, true, \"\\u00e9\"],\n \"b\": {\"a\": {}}}\n";
        let read = read(text.as_bytes()).unwrap();
        assert_eq!(&*read.text, text);
        assert_eq!(read.checksum, pki::digest::checksum(text.as_bytes()));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "1", "\"{}\"", "{", "{} {}", "{\"a\":}", "nonsense", "{\"a\":1,}"] {
            assert!(refused(text).starts_with("document_invalid"), "{text}");
        }
        assert!(read(b"{\"a\":\"\xff\"}").is_err_and(|failure| failure.code == code::DOCUMENT_INVALID));
    }

    #[test]
    fn a_key_stands_once_in_an_object() {
        assert!(refused("{\"a\":1,\"b\":{},\"a\":2}").contains("\"a\" stands twice"));
        assert!(refused("{\"x\":[{\"a\":1,\"\\u0061\":2}]}").contains("\"a\" stands twice"));
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(DEPTH - 1).as_bytes()).is_ok());
        assert!(refused(&nested(DEPTH)).contains("nested deeper than 64"));
        assert!(refused(&nested(100_000)).starts_with("document_invalid"));
        let long = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
        assert!(read(long(DOCUMENT_MAX).as_bytes()).is_ok());
        assert!(refused(&long(DOCUMENT_MAX + 1)).starts_with("too_large"));
    }
}
