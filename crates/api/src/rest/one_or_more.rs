//! A field that holds one text or several, as most callers have one.

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// One or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    Several(Vec<String>),
}

/// Not derived, because serde would keep all of it a second time to find out which of the two it is.
impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMore;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a text or a list of texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<OneOrMore, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMore::Several)
            }
        }

        reader.deserialize_any(Texts)
    }
}

impl Default for OneOrMore {
    fn default() -> Self {
        OneOrMore::Several(Vec::new())
    }
}

impl From<Vec<String>> for OneOrMore {
    fn from(texts: Vec<String>) -> Self {
        OneOrMore::Several(texts)
    }
}

impl OneOrMore {
    /// One is written as a text and not as a list, as by versions that know no list.
    pub fn of(texts: &[String]) -> Self {
        match texts {
            [only] => OneOrMore::One(only.clone()),
            several => OneOrMore::Several(several.to_vec()),
        }
    }

    pub fn as_slice(&self) -> &[String] {
        match self {
            OneOrMore::One(text) => std::slice::from_ref(text),
            OneOrMore::Several(texts) => texts,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }
}
