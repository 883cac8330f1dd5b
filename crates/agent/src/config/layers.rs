//! Settings by where they come from: what a stronger origin says hides what a weaker one says of the same key.

use std::path::{Path, PathBuf};

use lifecycle::names::Span;
use toml::Value;

use super::{Values, keys};
use crate::fault::Mistake;

/// Strongest first; the defaults that the keys are declared with are last, so a key with a default always has a value.
pub(super) struct Layers<'a>(Vec<Layer<'a>>);

impl<'a> Layers<'a> {
    /// Default paths are relative to `dir`.
    pub fn above_defaults(dir: &'a Path, mut layers: Vec<Layer<'a>>) -> Self {
        layers.push(Layer { values: keys::defaults(), base: dir, name: "the defaults" });
        Self(layers)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Layer<'a>> {
        self.0.iter()
    }

    pub fn value(&self, key: &str) -> Option<&Value> {
        self.iter().find_map(|layer| layer.values.get(key))
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.iter().find_map(|layer| layer.text(key))
    }

    pub fn path(&self, key: &str) -> Option<PathBuf> {
        self.iter().find_map(|layer| layer.path(key))
    }

    pub fn list(&self, key: &str) -> Option<Vec<String>> {
        self.iter().find_map(|layer| layer.list(key))
    }

    pub fn is_set(&self, key: &str) -> bool {
        self.iter().find_map(|layer| layer.said(key)).unwrap_or(false)
    }

    /// Of a key with a default.
    pub fn bytes(&self, key: &str) -> u64 {
        let bytes = self.value(key).and_then(Value::as_integer);
        bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default()
    }

    /// Of a key with a default. The minute is never used, since a test reads every default; zero would be a busy loop.
    pub fn span(&self, key: &str) -> Span {
        self.text(key).and_then(|text| Span::parse(text).ok()).unwrap_or(Span::from_minutes(1))
    }
}

/// The settings of one origin.
pub(super) struct Layer<'a> {
    pub values: Values,
    /// What relative paths in it are relative to.
    pub base: &'a Path,
    pub name: &'static str,
}

impl Layer<'_> {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).and_then(Value::as_str)
    }

    pub fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(|path| self.base.join(path))
    }

    /// What a flag was set to, if it was.
    pub fn said(&self, key: &str) -> Option<bool> {
        self.values.get(key).and_then(Value::as_bool)
    }

    pub fn list(&self, key: &str) -> Option<Vec<String>> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match self.values.get(key)? {
            Value::Array(items) => Some(items.iter().filter_map(text).collect()),
            other => text(other).map(|one| vec![one]),
        }
    }

    pub fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake::new(self.name, message)
    }
}
