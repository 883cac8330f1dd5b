//! What people call things: recorded, shown, never a rule's business.

use super::Malformed;
use std::sync::Arc;

const LENGTH: usize = 128;

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
pub(super) fn is_line(text: &str) -> bool {
    text.chars().count() <= LENGTH && !text.chars().any(char::is_control)
}

/// Whether a character steers what a reader sees instead of being seen: control characters, line and paragraph
/// separators, and those that turn the direction of the text around them.
pub fn is_steering(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || turns
}

pub(super) fn has_steering(text: &str) -> bool {
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
            assert!(Title::try_from(text).is_ok(), "{c:?}");
        }
        for good in ["שלום", "مرحبا", "zero\u{200d}joined"] {
            assert!(Title::parse(good).is_ok(), "{good}");
        }
    }
}
