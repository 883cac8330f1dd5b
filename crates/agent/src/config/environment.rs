//! The process's variables, read once.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::Values;
use super::keys::{self, KEYS, SettingKey};
use crate::compat::Persona;
use crate::fault::Mistake;

pub const DIR: &str = "ENLIST_AGENT_DIR";

/// Where the token may be, strongest first: ours, then those of other systems.
pub const TOKENS: [&str; 4] =
    ["ENLIST_AGENT_TOKEN", "PLFM_ENROLLMENT_TOKEN", "TASKRUN_BOOTSTRAP_TOKEN", "GPUAAS_ENROLLMENT_TOKEN"];

/// A copy, so that nothing else reads the process's environment, and tests can bring their own.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// As whom the program was called.
    persona: Persona,
    /// By which path, if it was called by one.
    path: Option<String>,
    /// Whether a person reads standard error.
    terminal: bool,
}

impl Environment {
    pub fn of_process() -> Self {
        Self::of(std::env::vars_os())
    }

    pub fn of<N: Into<OsString>, V: Into<OsString>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { variables, ..Self::default() }
    }

    pub fn called(self, persona: Persona) -> Self {
        Self { persona, ..self }
    }

    /// The program as it was called, the first word of the command line.
    pub fn by(self, program: Option<&OsString>) -> Self {
        let path = program.and_then(|program| program.to_str()).filter(|text| text.contains('/'));
        Self { path: path.map(str::to_owned), ..self }
    }

    /// Whether a person reads standard error, who may be told things.
    pub fn at_terminal(self, terminal: bool) -> Self {
        Self { terminal, ..self }
    }

    pub fn is_at_terminal(&self) -> bool {
        self.terminal
    }

    /// How the same shell calls the program again.
    pub fn program(&self) -> &str {
        self.path.as_deref().unwrap_or(self.persona.name())
    }

    pub fn persona(&self) -> Persona {
        self.persona
    }

    /// An empty variable counts as none: that is how unit files and container definitions leave one out.
    pub fn get(&self, name: &str) -> Option<&OsString> {
        self.variables.get(&OsString::from(name)).filter(|value| !value.is_empty())
    }

    pub fn dir(&self) -> Option<&OsString> {
        self.get(DIR)
    }

    /// The variable that holds the token, and what it holds.
    pub fn token(&self) -> Option<(&'static str, &OsString)> {
        TOKENS.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// The variables that stand for keys of agent.toml.
    pub(super) fn values(&self, mistakes: &mut Vec<Mistake>) -> Values {
        let mut values = Values::new();
        for key in KEYS {
            let Some((variable, raw)) = self.variable(key) else { continue };
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

impl Environment {
    /// A key's own variable, else that of another system that means the same.
    fn variable(&self, key: &SettingKey) -> Option<(String, &OsString)> {
        let own = key.variable();
        if let Some(raw) = self.get(&own) {
            return Some((own, raw));
        }
        // Trust that was named in our own words is not to be mixed with that of another system.
        let trust = ["ENLIST_AGENT_CA_PIN", "ENLIST_AGENT_SYSTEM_ROOTS"];
        if key.name == keys::CA_FILE && trust.iter().any(|name| self.get(name).is_some()) {
            return None;
        }
        let other = key.foreign_variable?;
        self.get(other).map(|raw| (other.to_owned(), raw))
    }
}

/// Names only: one of the values is the token.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}
