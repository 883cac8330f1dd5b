//! A key of policy, and the macro that declares keys: `keys.rs` and `profile.rs` are the only places that name one.

use super::PolicyError;

/// One key of `T`: what reads, writes and explains it.
pub(super) struct PolicyKey<T: 'static> {
    pub name: &'static str,
    /// Each line of it begins with a blank, as a doc comment does.
    pub help: &'static str,
    pub accepts: fn() -> String,
    pub get: fn(&T) -> String,
    pub set: fn(&mut T, &str) -> Result<(), PolicyError>,
}

impl<T: Default> PolicyKey<T> {
    pub fn find<'a>(keys: &'a [Self], name: &str) -> Option<&'a Self> {
        keys.iter().find(|key| key.name == name)
    }

    /// What the reference page and the help of the command line say of it.
    pub fn reference(&self, prefix: &str) -> PolicyKeyReference {
        PolicyKeyReference {
            key: format!("{prefix}{}", self.name),
            help: self.help.trim_start(),
            accepts: (self.accepts)(),
            default: (self.get)(&T::default()),
        }
    }
}

/// A key as operators read of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyKeyReference {
    pub key: String,
    pub help: &'static str,
    pub accepts: String,
    pub default: String,
}

/// Declares a stored struct whose fields are policy keys. A line is
/// `/// HELP`, then `"KEY" FIELD: TYPE = DEFAULT, WHAT IT ACCEPTS;` and makes the field, its default (also for state that was
/// stored before the field existed) and its entry in `KEYS`. The order of the lines is that of the stored form. `and`
/// holds fields that are no keys.
macro_rules! policy_keys {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[doc = $help:literal])+ $key:literal $field:ident: $type:ty = $default:expr, $accepts:expr;)*
        }
        and {
            $($(#[$other_attribute:meta])* $other:ident: $other_type:ty = $other_default:expr;)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $help])+ pub $field: $type,)*
            $($(#[$other_attribute])* pub $other: $other_type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* $($other: $other_default,)* }
            }
        }

        impl $name {
            /// In the order of their declaration.
            pub(super) const KEYS: &'static [$crate::registry::policy::key::PolicyKey<$name>] = &[$(
                $crate::registry::policy::key::PolicyKey {
                    name: $key,
                    help: concat!($($help),+),
                    accepts: || $accepts.expected(),
                    get: |policy| $accepts.write(&policy.$field),
                    set: |policy, text| {
                        let expected = || $crate::registry::PolicyError::Value($accepts.expected());
                        policy.$field = $accepts.parse(text).ok_or_else(expected)?;
                        Ok(())
                    },
                },
            )*];
        }
    };
}
pub(super) use policy_keys;
