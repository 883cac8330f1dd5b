//! A field that holds one text or several, as most callers have one.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMore {
    One(String),
    Several(Vec<String>),
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
