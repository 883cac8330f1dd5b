//! The process's variables, read once.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::Values;
use super::keys::KEYS;
use crate::fault::Mistake;

pub const DIR: &str = "ENLIST_AGENT_DIR";
pub const TOKEN: &str = "ENLIST_AGENT_TOKEN";

/// A copy, so that nothing else reads the process's environment, and tests can bring their own.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    pub fn of_process() -> Self {
        Self::of(std::env::vars_os())
    }

    pub fn of<N: Into<OsString>, V: Into<OsString>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// An empty variable counts as none: that is how unit files and container definitions leave one out.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.0.get(&OsString::from(name)).filter(|value| !value.is_empty())
    }

    pub fn dir(&self) -> Option<&OsString> {
        self.get(DIR)
    }

    pub fn token(&self) -> Option<&OsString> {
        self.get(TOKEN)
    }

    /// The variables that stand for keys of agent.toml.
    pub(super) fn values(&self, mistakes: &mut Vec<Mistake>) -> Values {
        let mut values = Values::new();
        for key in KEYS {
            let variable = key.variable();
            let Some(raw) = self.get(&variable) else { continue };
            let Some(text) = raw.to_str() else {
                mistakes.push(Mistake::new(variable, "is not UTF-8"));
                continue;
            };
            let value = key.kind.value_of(text);
            match key.kind.complaint(&value) {
                Some(complaint) => mistakes.push(Mistake::new(variable, complaint)),
                None => _ = values.insert(key.name, value),
            }
        }
        values
    }
}

/// Names only: one of the values is the token.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
