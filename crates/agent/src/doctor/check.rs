//! What one check found.

use lifecycle::host::Class;
use serde::Serialize;

use crate::code::AgentCode;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// One of the eight classes; where none of them fits, the agent's own code.
    pub class: Option<&'static str>,
    /// What was seen.
    pub evidence: String,
    /// What to do; empty if nothing.
    pub remedy: String,
    /// What is not a fault yet, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The check at fault because of which this one was not made. It is then `ok`: one cause is one fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<&'static str>,
    /// There is nothing that could be checked. It is then `ok`.
    #[serde(skip)]
    pub moot: bool,
    /// Checks of whose fault this one is only a consequence, if they are at fault, and how that is said.
    #[serde(skip)]
    pub follows: Vec<(&'static str, &'static str)>,
}

impl Check {
    pub fn good(name: &'static str, evidence: impl Into<String>) -> Self {
        Self {
            name,
            ok: true,
            class: None,
            evidence: evidence.into(),
            remedy: String::new(),
            warning: None,
            skipped: None,
            moot: false,
            follows: Vec::new(),
        }
    }

    pub fn bad(name: &'static str, class: Class, evidence: impl Into<String>) -> Self {
        Self { ok: false, class: Some(class.as_str()), ..Self::good(name, evidence) }.with(class.remedy())
    }

    /// A fault that is none of the eight classes.
    pub fn wrong(name: &'static str, code: AgentCode, evidence: impl Into<String>) -> Self {
        Self { ok: false, class: Some(code.word()), ..Self::good(name, evidence) }.with(code.remedy())
    }

    /// Not made, because of the fault of another check.
    pub fn skipped(name: &'static str, by: &'static str, why: &str) -> Self {
        Self { skipped: Some(by), ..Self::good(name, format!("not checked: {why}")) }
    }

    /// There is nothing to check, and that is no fault.
    pub fn moot(name: &'static str, evidence: impl Into<String>) -> Self {
        Self { moot: true, ..Self::good(name, evidence) }
    }

    pub fn with(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    pub fn warn(self, warning: impl Into<String>) -> Self {
        Self { warning: Some(warning.into()), ..self }
    }

    /// Says nothing of its own where that check is at fault.
    pub fn follows(mut self, name: &'static str, why: &'static str) -> Self {
        self.follows.push((name, why));
        self
    }

    /// Whether it would be another with another clock.
    pub fn by_dates(self) -> Self {
        self.follows("clock", "it depends on this host's clock, which is wrong")
    }
}
