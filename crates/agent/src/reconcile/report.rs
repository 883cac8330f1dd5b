//! What a reconciliation found, what it changed, and what it could not.

use std::fmt;
use std::io;
use std::path::Path;

use lifecycle::host::Class;
use serde::Serialize;

use crate::screen::{Columns, HumanText, harmless};
use crate::space;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `name`, `directory` or `mode`.
    pub kind: &'static str,
    /// The name, or the path.
    pub what: String,
    pub found: String,
    pub expected: String,
}

impl Finding {
    pub fn name(name: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { kind: "name", what: name.to_owned(), found: found.into(), expected: expected.into() }
    }

    pub fn directory(path: &Path, found: &str) -> Self {
        let what = path.display().to_string();
        Self { kind: "directory", what, found: found.to_owned(), expected: "a directory".to_owned() }
    }

    pub fn mode(path: &Path, found: u32, expected: u32) -> Self {
        let text = |mode: u32| format!("mode {:04o}", mode & 0o7777);
        Self { kind: "mode", what: path.display().to_string(), found: text(found), expected: text(expected) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, expected {}", self.what, self.found, self.expected)
    }
}

/// What could not be put right, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreconciled {
    #[serde(flatten)]
    pub finding: Finding,
    pub message: String,
    pub class: Option<Class>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ReconcileReport {
    /// Whether everything is now as it should be.
    pub ok: bool,
    pub dry_run: bool,
    /// What was not as it should be.
    pub drift: Vec<Finding>,
    /// What of it was put right, or would be.
    pub changed: Vec<Finding>,
    pub faults: Vec<Unreconciled>,
}

impl ReconcileReport {
    /// It differed, and this came of putting it right.
    pub fn settled(&mut self, finding: Finding, came: io::Result<()>) {
        match came {
            Ok(()) => {
                self.drift.push(finding.clone());
                self.changed.push(finding);
            }
            Err(error) => self.fault_of(finding, &error),
        }
    }

    pub fn fault_of(&mut self, finding: Finding, error: &io::Error) {
        let class = space::is_full(error).then_some(Class::DiskFull);
        self.fault(finding, &error.to_string(), class);
    }

    /// It differs and stays so. A name is what this host reaches the control plane by.
    pub fn fault(&mut self, finding: Finding, message: &str, class: Option<Class>) {
        let class = class.or((finding.kind == "name").then_some(Class::EndpointProfileDrift));
        self.drift.push(finding.clone());
        self.faults.push(Unreconciled { finding, message: message.to_owned(), class });
    }

    /// The trouble to tell, if there is one of the eight.
    pub fn trouble(&self) -> Option<(Class, String)> {
        let failure = self.faults.iter().find(|failure| failure.class.is_some())?;
        Some((failure.class?, format!("{}: {}", failure.finding, failure.message)))
    }
}

impl HumanText for ReconcileReport {
    fn text(&self, screen: Columns) -> String {
        let line = |label: &str, text: &str| screen.hang(&format!("{label:<12} "), 13, &harmless(text));
        let did = if self.dry_run { "would change" } else { "changed" };
        let mut lines = Vec::new();
        for finding in &self.changed {
            lines
                .push(line(did, &format!("{} from {} to {}", finding.what, finding.found, finding.expected)));
        }
        for failure in &self.faults {
            lines.push(line("not changed", &format!("{}: {}", failure.finding, failure.message)));
            lines.extend(failure.class.map(|class| line("", &format!("remedy: {}", remedy(class)))));
        }
        let end = match (self.drift.is_empty(), self.ok) {
            (true, _) => "nothing to reconcile",
            (false, true) if self.dry_run => "nothing was changed (--dry-run)",
            (false, true) => "reconciled",
            (false, false) => "not everything could be reconciled",
        };
        lines.push(end.to_owned());
        lines.join("\n")
    }
}

/// After a reconciliation that failed, the remedy is not to run it.
fn remedy(class: Class) -> &'static str {
    match class {
        Class::EndpointProfileDrift => {
            "let this user write the file, and remove other lines that map the name; then run the command again"
        }
        other => other.remedy(),
    }
}
