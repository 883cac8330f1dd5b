//! What people call things, and what they sort them by: recorded, shown, never a rule's business.

use super::Malformed;
use std::collections::BTreeMap;
use std::sync::Arc;

const LENGTH: usize = 128;
const PAIRS: usize = 32;
const KEY_LENGTH: usize = 63;

/// 1 to 128 characters of any script, on one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Title(Arc<str>);

impl Title {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if has_steering(text) { Err(Self::malformed()) } else { Self::recorded(text) }
    }

    /// As it is on record. What counts as steering grows with Unicode, and no record may become unreadable by it.
    fn recorded(text: &str) -> Result<Self, Malformed> {
        if !text.trim().is_empty() && is_line(text) { Ok(Self(text.into())) } else { Err(Self::malformed()) }
    }

    const fn malformed() -> Malformed {
        Malformed { what: "a name", expected: "1 to 128 characters without control characters" }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Not too much, and on one line.
fn is_line(text: &str) -> bool {
    text.chars().count() <= LENGTH && !text.chars().any(char::is_control)
}

/// Whether a character steers what a reader sees instead of being seen: control characters, line and paragraph
/// separators, and those that turn the direction of the text around them.
pub fn is_steering(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || turns
}

fn has_steering(text: &str) -> bool {
    text.chars().any(is_steering)
}

impl std::fmt::Display for Title {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Title {
    type Error = Malformed;
    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::recorded(&text)
    }
}

impl From<Title> for String {
    fn from(title: Title) -> String {
        title.0.as_ref().to_owned()
    }
}

/// At most 32 pairs of a key and a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(Arc<BTreeMap<String, String>>);

impl Labels {
    pub fn parse(pairs: BTreeMap<String, String>) -> Result<Self, Malformed> {
        if pairs.values().any(|value| has_steering(value)) {
            Err(Self::malformed())
        } else {
            Self::recorded(pairs)
        }
    }

    /// As they are on record.
    fn recorded(pairs: BTreeMap<String, String>) -> Result<Self, Malformed> {
        let good = |(key, value): (&String, &String)| is_key(key) && is_line(value);
        if pairs.len() <= PAIRS && pairs.iter().all(good) {
            Ok(Self(Arc::new(pairs)))
        } else {
            Err(Self::malformed())
        }
    }

    const fn malformed() -> Malformed {
        Malformed {
            what: "labels",
            expected: "at most 32 pairs, each key 1 to 63 characters from A-Z, a-z, 0-9, '.', '_', '-' and '/', \
                       beginning with a letter or digit, each value at most 128 characters without control \
                       characters",
        }
    }

    pub fn pairs(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

fn is_key(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= KEY_LENGTH
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = Malformed;
    fn try_from(pairs: BTreeMap<String, String>) -> Result<Self, Malformed> {
        Self::recorded(pairs)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        Arc::unwrap_or_clone(labels.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_of_any_script() {
        for good in ["a", "London, rack 7", "Prüfstand", &"ä".repeat(128)] {
            assert!(Title::parse(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "two\nlines", "\u{1b}[2J", "nul\0", &"x".repeat(129)] {
            assert!(Title::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_turns_the_text_is_refused_but_read_from_the_record() {
        let steering = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
        for c in steering.into_iter().chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            let text = format!("a{c}b");
            assert!(Title::parse(&text).is_err(), "{c:?}");
            assert!(Title::try_from(text.clone()).is_ok(), "{c:?}");
            let pairs = BTreeMap::from([("k".to_owned(), text)]);
            assert!(Labels::parse(pairs.clone()).is_err(), "{c:?}");
            assert!(Labels::try_from(pairs).is_ok(), "{c:?}");
        }
        for good in ["שלום", "مرحبا", "zero\u{200d}joined"] {
            assert!(Title::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn labels_are_few_and_short() {
        let labels = |key: &str, value: &str| Labels::parse([(key.to_owned(), value.to_owned())].into());
        assert!(labels("site/room.1", "").is_ok());
        for (key, value) in [("", "x"), ("-a", "x"), ("a b", "x"), ("ä", "x"), ("a", "\n")] {
            assert!(labels(key, value).is_err(), "{key:?} {value:?}");
        }
        assert!(labels(&"k".repeat(64), "x").is_err());
        assert!(labels("k", &"x".repeat(129)).is_err());
        let many = |count: usize| Labels::parse((0..count).map(|n| (n.to_string(), String::new())).collect());
        assert!(many(32).is_ok() && many(33).is_err());
    }
}
