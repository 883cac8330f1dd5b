//! Paths and queries, with everything that came from outside encoded.

use crate::error::Error;
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    has_query: bool,
}

impl Path {
    pub fn new(fixed: &'static str) -> Self {
        Self { text: fixed.to_owned(), has_query: false }
    }

    /// Appends one segment; a slash inside it stays inside it.
    pub fn segment(mut self, segment: &str) -> Self {
        self.text.push('/');
        encode(&mut self.text, segment);
        self
    }

    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        encode(&mut self.text, name);
        self.text.push('=');
        encode(&mut self.text, value);
        self
    }

    /// Every field of a query type that has a value.
    pub fn queries(mut self, query: &impl Serialize) -> Result<Self, Error> {
        let fields = serde_json::to_value(query);
        let Ok(Value::Object(fields)) = fields else {
            return Err(Error::Fault("the query cannot be written".to_owned()));
        };
        for (name, value) in fields {
            self = match value {
                Value::Null => self,
                Value::String(text) => self.query(&name, &text),
                other => self.query(&name, &other.to_string()),
            };
        }
        Ok(self)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Only what RFC 3986 calls unreserved goes through as it is.
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::rest::nodes::NodeQuery;

    #[test]
    fn what_comes_from_outside_cannot_leave_its_place() {
        let path = Path::new("/v1/nodes").segment("a/../b?c#d e").query("tenant", "x&y=z");
        assert_eq!(path.as_str(), "/v1/nodes/a%2F..%2Fb%3Fc%23d%20e?tenant=x%26y%3Dz");
    }

    #[test]
    fn only_fields_with_a_value_are_asked_for() {
        let query = NodeQuery { limit: Some(5), unassigned: Some(true), ..NodeQuery::default() };
        let path = Path::new("/v1/nodes").queries(&query).map(|path| path.as_str().to_owned());
        assert_eq!(path.as_deref(), Ok("/v1/nodes?limit=5&unassigned=true"));
    }
}
