//! What is wrong with a configuration.

use serde::Serialize;

/// One mistake: where, what stands there, what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigMistake {
    pub key: String,
    pub value: String,
    pub expected: String,
    /// Nothing stands there.
    #[serde(skip)]
    is_missing: bool,
}

impl ConfigMistake {
    pub fn new(key: &str, value: &str, expected: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), expected: expected.into(), is_missing: false }
    }

    pub fn missing(key: &str, expected: impl Into<String>) -> Self {
        Self { is_missing: true, ..Self::new(key, "", expected) }
    }
}

impl std::fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_missing {
            return write!(f, "{} is missing: expected {}", self.key, self.expected);
        }
        write!(f, "{} = {:?}: expected {}", self.key, self.value, self.expected)
    }
}

/// Every mistake of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigMistakes(pub Vec<ConfigMistake>);
