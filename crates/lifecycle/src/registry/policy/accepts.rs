//! What a policy key accepts: how a text becomes its value and back, and what a refusal says was expected.

use super::Fraction;
use crate::names::{Label, Network, Span, TenantId};

pub(super) trait Accepts {
    type Value;
    fn parse(&self, text: &str) -> Option<Self::Value>;
    /// A text that `parse` reads as the same value.
    fn write(&self, value: &Self::Value) -> String;
    fn expected(&self) -> String;
}

/// A duration within both bounds.
pub(super) struct Within(pub Span, pub Span);

impl Accepts for Within {
    type Value = Span;

    fn parse(&self, text: &str) -> Option<Span> {
        Span::parse(text).ok().filter(|span| (self.0..=self.1).contains(span))
    }

    fn write(&self, span: &Span) -> String {
        span.to_string()
    }

    fn expected(&self) -> String {
        format!("a duration such as 15m, from {} to {}", self.0, self.1)
    }
}

/// A duration of at least so much. What bounds it above is a rule between keys, in these words.
pub(super) struct UpTo(pub Span, pub &'static str);

impl Accepts for UpTo {
    type Value = Span;

    fn parse(&self, text: &str) -> Option<Span> {
        Span::parse(text).ok().filter(|span| *span >= self.0)
    }

    fn write(&self, span: &Span) -> String {
        span.to_string()
    }

    fn expected(&self) -> String {
        format!("a duration such as 15m, from {} to {}", self.0, self.1)
    }
}

/// A duration of at least a second, or none.
pub(super) struct SpanOrOff;

impl Accepts for SpanOrOff {
    type Value = Option<Span>;

    fn parse(&self, text: &str) -> Option<Option<Span>> {
        match text {
            "off" => Some(None),
            _ => Span::parse(text).ok().filter(|span| *span >= Span::from_secs(1)).map(Some),
        }
    }

    fn write(&self, span: &Option<Span>) -> String {
        span.map_or_else(|| "off".to_owned(), |span| span.to_string())
    }

    fn expected(&self) -> String {
        "a duration such as 8h, or off".to_owned()
    }
}

/// Whole seconds, as many as WireGuard takes, or none.
pub(super) struct KeepaliveOrOff;

impl KeepaliveOrOff {
    const MOST: Span = Span::from_secs(65_535);
}

impl Accepts for KeepaliveOrOff {
    type Value = Option<Span>;

    fn parse(&self, text: &str) -> Option<Option<Span>> {
        let fits = |span: &Span| {
            (Span::from_secs(1)..=Self::MOST).contains(span) && span.millis().is_multiple_of(1000)
        };
        match text {
            "off" => Some(None),
            _ => Span::parse(text).ok().filter(fits).map(Some),
        }
    }

    fn write(&self, span: &Option<Span>) -> String {
        span.map_or_else(|| "off".to_owned(), |span| span.to_string())
    }

    fn expected(&self) -> String {
        "a duration in whole seconds such as 25s, up to 65535s, or off".to_owned()
    }
}

/// A duration of at least a second, or none, written 0.
pub(super) struct SpanOrZero;

impl Accepts for SpanOrZero {
    type Value = Option<Span>;

    fn parse(&self, text: &str) -> Option<Option<Span>> {
        match text {
            "0" => Some(None),
            _ => Span::parse(text).ok().filter(|span| *span >= Span::from_secs(1)).map(Some),
        }
    }

    fn write(&self, span: &Option<Span>) -> String {
        span.map_or_else(|| "0".to_owned(), |span| span.to_string())
    }

    fn expected(&self) -> String {
        "a duration such as 24h, or 0 (off)".to_owned()
    }
}

/// How many there may be, or how many a minute.
pub(super) struct CountOrOff;

impl CountOrOff {
    const MOST: u32 = 1_000_000;
}

impl Accepts for CountOrOff {
    type Value = u32;

    fn parse(&self, text: &str) -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok().filter(|count| *count <= Self::MOST))?
    }

    fn write(&self, count: &u32) -> String {
        count.to_string()
    }

    fn expected(&self) -> String {
        format!("a whole number from 0 (off) to {}", Self::MOST)
    }
}

pub(super) struct TrueOrFalse;

impl Accepts for TrueOrFalse {
    type Value = bool;

    fn parse(&self, text: &str) -> Option<bool> {
        text.parse().ok()
    }

    fn write(&self, value: &bool) -> String {
        value.to_string()
    }

    fn expected(&self) -> String {
        "true or false".to_owned()
    }
}

/// One of these values, by its word.
pub(super) struct OneOf<T: 'static>(pub &'static [T], pub fn(T) -> &'static str);

impl<T: Copy> Accepts for OneOf<T> {
    type Value = T;

    fn parse(&self, text: &str) -> Option<T> {
        self.0.iter().copied().find(|value| (self.1)(*value) == text)
    }

    fn write(&self, value: &T) -> String {
        (self.1)(*value).to_owned()
    }

    fn expected(&self) -> String {
        enumerated(self.0.iter().map(|value| (self.1)(*value)), "or")
    }
}

/// Any of these values, at least one, by their words with commas between.
pub(super) struct ListOf<T: 'static>(pub &'static [T], pub fn(T) -> &'static str);

impl<T: Copy> Accepts for ListOf<T> {
    type Value = Vec<T>;

    fn parse(&self, text: &str) -> Option<Vec<T>> {
        let one = OneOf(self.0, self.1);
        text.split(',').map(|word| one.parse(word.trim())).collect()
    }

    fn write(&self, values: &Vec<T>) -> String {
        values.iter().map(|value| (self.1)(*value)).collect::<Vec<_>>().join(",")
    }

    fn expected(&self) -> String {
        format!("a list of {}", enumerated(self.0.iter().map(|value| (self.1)(*value)), "and"))
    }
}

/// Any of these words, at least one, with commas between.
pub(super) struct Words(pub &'static [&'static str]);

impl Accepts for Words {
    type Value = Vec<String>;

    fn parse(&self, text: &str) -> Option<Vec<String>> {
        let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
        words.iter().all(|word| self.0.contains(&word.as_str())).then_some(words)
    }

    fn write(&self, words: &Vec<String>) -> String {
        words.join(",")
    }

    fn expected(&self) -> String {
        format!("a list of {}", enumerated(self.0.iter().copied(), "and"))
    }
}

/// Any of these words, with commas between, or none.
pub(super) struct WordsOrNone(pub &'static [&'static str]);

impl Accepts for WordsOrNone {
    type Value = Vec<String>;

    fn parse(&self, text: &str) -> Option<Vec<String>> {
        if text.trim().is_empty() { Some(Vec::new()) } else { Words(self.0).parse(text) }
    }

    fn write(&self, words: &Vec<String>) -> String {
        words.join(",")
    }

    fn expected(&self) -> String {
        format!("{}, or nothing", Words(self.0).expected())
    }
}

/// Networks, with commas between, or none.
pub(super) struct Networks;

impl Networks {
    const MOST: usize = 64;
}

impl Accepts for Networks {
    type Value = Vec<Network>;

    fn parse(&self, text: &str) -> Option<Vec<Network>> {
        if text.trim().is_empty() {
            return Some(Vec::new());
        }
        let networks: Option<Vec<Network>> =
            text.split(',').map(|word| Network::parse(word.trim()).ok()).collect();
        networks.filter(|networks| networks.len() <= Self::MOST)
    }

    fn write(&self, networks: &Vec<Network>) -> String {
        networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn expected(&self) -> String {
        format!("a list of at most {} networks such as 10.0.0.0/8,fd00::/8, or nothing", Self::MOST)
    }
}

/// Names of tenants, with commas between, or none.
pub(super) struct TenantNames;

impl TenantNames {
    const MOST: usize = 256;
}

impl Accepts for TenantNames {
    type Value = Vec<TenantId>;

    fn parse(&self, text: &str) -> Option<Vec<TenantId>> {
        if text.trim().is_empty() {
            return Some(Vec::new());
        }
        let names: Option<Vec<TenantId>> =
            text.split(',').map(|word| TenantId::parse(word.trim()).ok()).collect();
        names.filter(|names| names.len() <= Self::MOST)
    }

    fn write(&self, names: &Vec<TenantId>) -> String {
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn expected(&self) -> String {
        format!("a list of at most {} tenants such as red,blue, or nothing", Self::MOST)
    }
}

/// A label; this word stands for none.
pub(super) struct LabelOr(pub &'static str);

impl Accepts for LabelOr {
    type Value = Option<Label>;

    fn parse(&self, text: &str) -> Option<Option<Label>> {
        Label::parse(text).ok().map(|label| Some(label).filter(|label| label.as_str() != self.0))
    }

    fn write(&self, label: &Option<Label>) -> String {
        label.as_ref().map_or(self.0, Label::as_str).to_owned()
    }

    fn expected(&self) -> String {
        "1 to 128 visible ASCII characters".to_owned()
    }
}

pub(super) struct PartOfLifetime;

impl Accepts for PartOfLifetime {
    type Value = Fraction;

    fn parse(&self, text: &str) -> Option<Fraction> {
        Fraction::parse(text)
    }

    fn write(&self, fraction: &Fraction) -> String {
        fraction.to_string()
    }

    fn expected(&self) -> String {
        "a fraction such as 2/3 or 50%".to_owned()
    }
}

/// A common name in which these placeholders are filled in.
pub(super) struct Template(pub &'static [&'static str]);

impl Template {
    /// What is around the placeholders must leave room for them in the 64 characters that X.520 gives.
    const AROUND: usize = 40;
}

impl Accepts for Template {
    type Value = String;

    fn parse(&self, text: &str) -> Option<String> {
        let around = self.0.iter().fold(text.to_owned(), |rest, name| rest.replace(name, ""));
        let printable = |b: u8| (b.is_ascii_graphic() || b == b' ') && b != b'{' && b != b'}';
        let fits = !text.is_empty() && around.len() <= Self::AROUND && around.bytes().all(printable);
        fits.then(|| text.to_owned())
    }

    fn write(&self, template: &String) -> String {
        template.clone()
    }

    fn expected(&self) -> String {
        let names = enumerated(self.0.iter().copied(), "and");
        format!("{names} with up to {} printable characters around them", Self::AROUND)
    }
}

/// `a, b or c`.
fn enumerated<'a>(words: impl Iterator<Item = &'a str>, last: &str) -> String {
    let words: Vec<&str> = words.collect();
    match words.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        Some((only, _)) => (*only).to_owned(),
        None => String::new(),
    }
}
