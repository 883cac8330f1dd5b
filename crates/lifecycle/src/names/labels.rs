//! What people sort things by: recorded, shown, searched, never a rule's business.

use super::Malformed;
use super::title::{has_steering, is_line};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const KEY_LENGTH: usize = 63;

/// At most 32 pairs of a key and a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(Arc<BTreeMap<String, String>>);

impl Labels {
    /// How many pairs there may be.
    pub const MAX: usize = 32;

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
        if pairs.len() <= Self::MAX && pairs.iter().all(good) {
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

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every pair of the other is among these.
    pub fn include(&self, other: &Labels) -> bool {
        other.0.iter().all(|(key, value)| self.0.get(key) == Some(value))
    }

    /// Without some keys and with other pairs; none if that makes too many.
    pub fn changed(&self, remove: &BTreeSet<LabelKey>, set: &Labels) -> Option<Labels> {
        let mut pairs = self.0.as_ref().clone();
        pairs.retain(|key, _| !remove.iter().any(|removed| removed.as_str() == key));
        pairs.extend(set.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        (pairs.len() <= Self::MAX).then(|| Self(Arc::new(pairs)))
    }

    /// `KEY=VALUE` pairs, separated by commas, as a query names them. A backslash before a comma or a backslash makes it a part
    /// of the value.
    pub fn parse_list(text: &str) -> Result<Self, Malformed> {
        const MALFORMED: Malformed = Malformed {
            what: "a list of labels",
            expected: "KEY=VALUE pairs separated by commas, each key once, with a backslash before a comma or a backslash in a \
                       value",
        };
        let mut pairs = BTreeMap::new();
        let mut pair = String::new();
        let mut chars = text.chars();
        loop {
            match chars.next() {
                Some('\\') => pair.push(chars.next().filter(|c| matches!(c, ',' | '\\')).ok_or(MALFORMED)?),
                Some(c) if c != ',' => pair.push(c),
                end => {
                    let (key, value) = pair.split_once('=').ok_or(MALFORMED)?;
                    if pairs.insert(key.to_owned(), value.to_owned()).is_some() {
                        return Err(MALFORMED);
                    }
                    pair.clear();
                    if end.is_none() {
                        return Self::parse(pairs);
                    }
                }
            }
        }
    }

    /// The same list.
    pub fn to_list(&self) -> String {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
        let pairs: Vec<String> =
            self.0.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        pairs.join(",")
    }
}

/// The key of a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabelKey(Arc<str>);

impl LabelKey {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if is_key(text) {
            return Ok(Self(text.into()));
        }
        Err(Malformed {
            what: "the key of a label",
            expected: "1 to 63 characters from A-Z, a-z, 0-9, '.', '_', '-' and '/', beginning with a letter or digit",
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LabelKey {
    type Error = Malformed;
    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}

impl From<LabelKey> for String {
    fn from(key: LabelKey) -> String {
        key.0.as_ref().to_owned()
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
    fn labels_are_few_and_short() {
        let labels = |key: &str, value: &str| Labels::parse([(key.to_owned(), value.to_owned())].into());
        assert!(labels("site/room.1", "").is_ok());
        for (key, value) in [("", "x"), ("-a", "x"), ("a b", "x"), ("ä", "x"), ("a", "\n")] {
            assert!(labels(key, value).is_err(), "{key:?} {value:?}");
        }
        assert!(labels(&"k".repeat(64), "x").is_err());
        assert!(labels("k", &"x".repeat(129)).is_err());
        assert!(LabelKey::parse("site/room.1").is_ok() && LabelKey::parse("-a").is_err());
        let many = |count: usize| Labels::parse((0..count).map(|n| (n.to_string(), String::new())).collect());
        assert!(many(32).is_ok() && many(33).is_err());
    }

    #[test]
    fn what_turns_the_text_is_refused_in_a_label_but_read_from_the_record() {
        let pairs = BTreeMap::from([("k".to_owned(), "a\u{202e}b".to_owned())]);
        assert!(Labels::parse(pairs.clone()).is_err());
        assert!(Labels::try_from(pairs).is_ok());
    }

    #[test]
    fn a_list_of_labels_reads_as_it_was_written() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            Labels::parse(pairs.collect()).expect("labels")
        };
        for pairs in [&[("env", "prod")][..], &[("a", "x,y=z"), ("b", r"\"), ("c", "")], &[("k", "=")]] {
            let known = labels(pairs);
            assert_eq!(Labels::parse_list(&known.to_list()), Ok(known));
        }
        assert_eq!(Labels::parse_list(r"a=1\,2,b=x"), Ok(labels(&[("a", "1,2"), ("b", "x")])));
        for bad in ["", "a", "a=1,", "a=1,a=2", r"a=\x", r"a=\", "-a=1"] {
            assert!(Labels::parse_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_change_pair_by_pair_and_stay_few() {
        let key = |text: &str| LabelKey::parse(text).expect("a key");
        let many = |from: usize, to: usize| {
            Labels::parse((from..to).map(|n| (n.to_string(), String::new())).collect()).expect("labels")
        };
        let removed = many(0, 3).changed(&[key("1"), key("x")].into(), &Labels::default());
        assert!(removed.is_some_and(|left| left.include(&many(0, 1)) && !left.include(&many(1, 2))));
        assert_eq!(many(0, 32).changed(&BTreeSet::new(), &many(32, 33)), None);
        let exchanged = many(0, 32).changed(&[key("0")].into(), &many(32, 33));
        assert_eq!(exchanged, Some(many(1, 33)));
    }
}
