//! The macro that declares keys of enlist.toml: `keys.rs` and the files of its tables are the only places that name one.

use super::mistake::ConfigMistake;

/// A key as operators read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigKeyReference {
    /// With the name of its table before a dot.
    pub key: String,
    pub help: &'static str,
    pub accepts: String,
    /// Markdown.
    pub default: String,
}

impl ConfigKeyReference {
    pub(super) fn new(key: &str, help: &'static str, accepts: String, default: &str) -> Self {
        Self { key: key.to_owned(), help: help.trim_start(), accepts, default: default.to_owned() }
    }

    /// `accepts` is what each item may be.
    pub(super) fn list(key: &str, help: &'static str, accepts: String, default: &str) -> Self {
        Self::new(key, help, format!("list; each {accepts}"), default)
    }
}

/// Keys as written in one TOML table. `prefix` is that table's name with a dot, or nothing for the file itself.
pub trait ConfigTable: Default {
    type Checked;
    const NAMES: &'static [&'static str];

    fn read(prefix: &str, table: toml::Table, mistakes: &mut Vec<ConfigMistake>) -> Self;
    fn check(&self, prefix: &str, mistakes: &mut Vec<ConfigMistake>) -> Option<Self::Checked>;
    fn reference(prefix: &str) -> Vec<ConfigKeyReference>;
}

/// A value as written, which is left out of the file where it is absent.
pub trait Written {
    fn is_absent(&self) -> bool;
}

impl<T> Written for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T> Written for Vec<T> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Written for std::collections::BTreeMap<K, V> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

pub(super) fn unknown(prefix: &str, key: &str, value: &toml::Value, names: &[&str]) -> ConfigMistake {
    let expected = match names {
        [only] => (*only).to_owned(),
        names => format!("one of {}", names.join(", ")),
    };
    ConfigMistake::new(&format!("{prefix}{key}"), &value.to_string(), expected)
}

/// Declares the keys of one TOML table. A line is `/// HELP`, then `"KEY" FIELD: SHAPE = ITS FORM AND DEFAULT;` and makes a
/// field of the struct as written and one of the struct as checked, and the code that reads, checks, writes and explains
/// it. The order of the lines is that of the written file.
macro_rules! config_keys {
    (
        $(#[$raw_attribute:meta])*
        pub struct $raw:ident as written;
        $(#[$attribute:meta])*
        pub struct $checked:ident {
            $($(#[doc = $help:literal])* $key:literal $field:ident: $shape:ty = $value:expr;)*
        }
    ) => {
        $(#[$raw_attribute])*
        #[derive(Debug, Clone, Default, serde::Serialize)]
        pub struct $raw {
            $(
                $(#[doc = $help])*
                #[serde(rename = $key, skip_serializing_if = "crate::process::config::key::Written::is_absent")]
                pub $field: <$shape as $crate::process::config::shape::ValueShape>::Raw,
            )*
        }

        $(#[$attribute])*
        #[derive(Debug, Clone)]
        pub struct $checked {
            $($(#[doc = $help])* pub $field: <$shape as $crate::process::config::shape::ValueShape>::Checked,)*
        }

        impl $crate::process::config::key::Written for $raw {
            fn is_absent(&self) -> bool {
                $(self.$field.is_absent())&&*
            }
        }

        impl $crate::process::config::key::ConfigTable for $raw {
            type Checked = $checked;
            const NAMES: &'static [&'static str] = &[$($key),*];

            fn read(
                prefix: &str,
                table: toml::Table,
                mistakes: &mut Vec<$crate::process::config::ConfigMistake>,
            ) -> Self {
                use $crate::process::config::shape::ValueShape as _;
                let mut raw = Self::default();
                for (key, value) in table {
                    match key.as_str() {
                        $($key => {
                            let shape: $shape = $value;
                            raw.$field = shape.read(&format!("{prefix}{key}"), value, mistakes);
                        })*
                        _ => mistakes.push($crate::process::config::key::unknown(prefix, &key, &value, Self::NAMES)),
                    }
                }
                raw
            }

            fn check(
                &self,
                prefix: &str,
                mistakes: &mut Vec<$crate::process::config::ConfigMistake>,
            ) -> Option<$checked> {
                use $crate::process::config::shape::ValueShape as _;
                $(
                    let shape: $shape = $value;
                    let $field = shape.check(&format!("{prefix}{}", $key), &self.$field, mistakes);
                )*
                Some($checked { $($field: $field?),* })
            }

            fn reference(prefix: &str) -> Vec<$crate::process::config::key::ConfigKeyReference> {
                use $crate::process::config::shape::ValueShape as _;
                let mut keys = Vec::new();
                $(
                    let shape: $shape = $value;
                    keys.extend(shape.reference(&format!("{prefix}{}", $key), concat!($($help),*)));
                )*
                keys
            }
        }
    };
}
pub(super) use config_keys;
