//! How a key's value is written in TOML, and what it becomes: one string, a list of strings, or a table.

use super::form::Form;
use super::key::{ConfigKeyReference, ConfigTable};
use super::mistake::ConfigMistake;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

pub trait ValueShape {
    /// As written; empty where the key is absent.
    type Raw: Default;
    /// As used.
    type Checked;

    /// Takes the file's value. One of another type is a mistake, and counts as absent.
    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Self::Raw;
    /// Notes every mistake; none only if there is one.
    fn check(&self, key: &str, raw: &Self::Raw, mistakes: &mut Vec<ConfigMistake>) -> Option<Self::Checked>;
    /// What the reference page says of the key, or of those below it.
    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference>;
}

pub(super) fn typed<T: DeserializeOwned + Default>(
    key: &str,
    value: toml::Value,
    expected: &str,
    mistakes: &mut Vec<ConfigMistake>,
) -> T {
    let shown = value.to_string();
    value.try_into().unwrap_or_else(|_| {
        mistakes.push(ConfigMistake::new(key, &shown, expected));
        T::default()
    })
}

/// One string by its form.
fn parsed<T>(key: &str, text: &str, form: &Form<T>, mistakes: &mut Vec<ConfigMistake>) -> Option<T> {
    let value = (form.parse)(text);
    if value.is_none() {
        let shown = if form.is_secret { "(not shown)" } else { text };
        mistakes.push(ConfigMistake::new(key, shown, (form.expected)()));
    }
    value
}

/// All strings of a list by their form.
fn all<T>(key: &str, texts: &[String], form: &Form<T>, mistakes: &mut Vec<ConfigMistake>) -> Option<Vec<T>> {
    // Not collected into an option at once, which would stop at the first mistake.
    let values: Vec<Option<T>> = texts.iter().map(|text| parsed(key, text, form, mistakes)).collect();
    values.into_iter().collect()
}

const STRING: &str = "a string";
const LIST: &str = "a list of strings";

/// A string, or nothing; what nothing means.
pub struct Optional<T: 'static>(pub &'static Form<T>, pub &'static str);

impl<T> ValueShape for Optional<T> {
    type Raw = Option<String>;
    type Checked = Option<T>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Option<String> {
        typed(key, value, STRING, mistakes)
    }

    fn check(&self, key: &str, raw: &Option<String>, mistakes: &mut Vec<ConfigMistake>) -> Option<Option<T>> {
        match raw {
            Some(text) => parsed(key, text, self.0, mistakes).map(Some),
            None => Some(None),
        }
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::new(key, help, (self.0.expected)(), self.1)]
    }
}

/// A string that must be there; why.
pub struct Required<T: 'static>(pub &'static Form<T>, pub &'static str);

impl<T> ValueShape for Required<T> {
    type Raw = Option<String>;
    type Checked = T;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Option<String> {
        typed(key, value, STRING, mistakes)
    }

    fn check(&self, key: &str, raw: &Option<String>, mistakes: &mut Vec<ConfigMistake>) -> Option<T> {
        match raw {
            Some(text) => parsed(key, text, self.0, mistakes),
            None => {
                mistakes.push(ConfigMistake::missing(key, (self.0.expected)() + self.1));
                None
            }
        }
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::new(key, help, (self.0.expected)(), "required")]
    }
}

/// A string, or this one.
pub struct StringOr<T: 'static>(pub &'static Form<T>, pub &'static str);

impl<T> ValueShape for StringOr<T> {
    type Raw = Option<String>;
    type Checked = T;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Option<String> {
        typed(key, value, &format!("{STRING}: {}", (self.0.expected)()), mistakes)
    }

    fn check(&self, key: &str, raw: &Option<String>, mistakes: &mut Vec<ConfigMistake>) -> Option<T> {
        parsed(key, raw.as_deref().unwrap_or(self.1), self.0, mistakes)
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::new(key, help, (self.0.expected)(), &format!("`{}`", self.1))]
    }
}

/// A number of bytes within bounds, or this one.
pub struct BytesOr {
    pub least: u64,
    pub most: u64,
    pub default: u64,
}

impl BytesOr {
    fn expected(&self) -> String {
        format!("a whole number of bytes from {} to {}", self.least, self.most)
    }
}

impl ValueShape for BytesOr {
    type Raw = Option<u64>;
    type Checked = u64;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Option<u64> {
        typed(key, value, &self.expected(), mistakes)
    }

    fn check(&self, key: &str, raw: &Option<u64>, mistakes: &mut Vec<ConfigMistake>) -> Option<u64> {
        let value = raw.unwrap_or(self.default);
        if !(self.least..=self.most).contains(&value) {
            mistakes.push(ConfigMistake::new(key, &value.to_string(), self.expected()));
            return None;
        }
        Some(value)
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::new(key, help, self.expected(), &format!("`{}`", self.default))]
    }
}

/// Strings, or these.
pub struct ListOr<T: 'static>(pub &'static Form<T>, pub &'static [&'static str]);

impl<T> ValueShape for ListOr<T> {
    type Raw = Vec<String>;
    type Checked = Vec<T>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Vec<String> {
        typed(key, value, LIST, mistakes)
    }

    fn check(&self, key: &str, raw: &Vec<String>, mistakes: &mut Vec<ConfigMistake>) -> Option<Vec<T>> {
        if !raw.is_empty() {
            return all(key, raw, self.0, mistakes);
        }
        let default: Vec<String> = self.1.iter().map(|text| (*text).to_owned()).collect();
        all(key, &default, self.0, mistakes)
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::list(key, help, (self.0.expected)(), &format!("`{:?}`", self.1))]
    }
}

/// Strings; what none means.
pub struct FormList<T: 'static>(pub &'static Form<T>, pub &'static str);

impl<T> ValueShape for FormList<T> {
    type Raw = Vec<String>;
    type Checked = Vec<T>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Vec<String> {
        typed(key, value, LIST, mistakes)
    }

    fn check(&self, key: &str, raw: &Vec<String>, mistakes: &mut Vec<ConfigMistake>) -> Option<Vec<T>> {
        all(key, raw, self.0, mistakes)
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::list(key, help, (self.0.expected)(), self.1)]
    }
}

/// Words of a set; all of these where the key is absent, which an empty list is not.
pub struct SetOrAll<T: 'static>(pub &'static Form<T>, pub &'static [T]);

impl<T: Ord + Copy> ValueShape for SetOrAll<T> {
    type Raw = Option<Vec<String>>;
    type Checked = BTreeSet<T>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Option<Vec<String>> {
        typed(key, value, LIST, mistakes)
    }

    fn check(
        &self,
        key: &str,
        raw: &Option<Vec<String>>,
        mistakes: &mut Vec<ConfigMistake>,
    ) -> Option<BTreeSet<T>> {
        match raw {
            Some(texts) => Some(all(key, texts, self.0, mistakes)?.into_iter().collect()),
            None => Some(self.1.iter().copied().collect()),
        }
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        vec![ConfigKeyReference::list(key, help, (self.0.expected)(), "all")]
    }
}

/// A rule between the keys of a table: what is written, and what is used of it if every key by itself is good. It is asked
/// either way, so that every mistake is told at once.
pub type TableRule<R, T> = fn(&R, Option<<R as ConfigTable>::Checked>, &mut Vec<ConfigMistake>) -> Option<T>;

/// A table with keys of its own, and the rule between them that gives what is used.
pub struct FormTable<R: ConfigTable, T>(pub TableRule<R, T>);

impl<R: ConfigTable, T> ValueShape for FormTable<R, T> {
    type Raw = R;
    type Checked = T;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> R {
        OptionalTable(self.0).read(key, value, mistakes).unwrap_or_default()
    }

    fn check(&self, key: &str, raw: &R, mistakes: &mut Vec<ConfigMistake>) -> Option<T> {
        let checked = raw.check(&format!("{key}."), mistakes);
        (self.0)(raw, checked, mistakes)
    }

    fn reference(&self, key: &str, _: &'static str) -> Vec<ConfigKeyReference> {
        R::reference(&format!("{key}."))
    }
}

/// A table that is whole or absent.
pub struct OptionalTable<R: ConfigTable, T>(pub TableRule<R, T>);

impl<R: ConfigTable, T> ValueShape for OptionalTable<R, T> {
    type Raw = Option<R>;
    type Checked = Option<T>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Option<R> {
        match value {
            toml::Value::Table(table) => Some(R::read(&format!("{key}."), table, mistakes)),
            other => {
                let expected = format!("a table with {}", R::NAMES.join(", "));
                mistakes.push(ConfigMistake::new(key, &other.to_string(), expected));
                None
            }
        }
    }

    fn check(&self, key: &str, raw: &Option<R>, mistakes: &mut Vec<ConfigMistake>) -> Option<Option<T>> {
        match raw {
            Some(raw) => FormTable(self.0).check(key, raw, mistakes).map(Some),
            None => Some(None),
        }
    }

    fn reference(&self, key: &str, _: &'static str) -> Vec<ConfigKeyReference> {
        let mut keys = R::reference(&format!("{key}."));
        for key in keys.iter_mut().filter(|key| key.default == "required") {
            key.default = "required in this table".into();
        }
        keys
    }
}
