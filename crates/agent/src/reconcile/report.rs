//! What a reconciliation found, what it changed, and what it could not.

use std::fmt;
use std::io;
use std::path::Path;

use lifecycle::host::Class;
use serde::Serialize;

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
pub struct Failure {
    #[serde(flatten)]
    pub finding: Finding,
    pub message: String,
    pub class: Option<Class>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Report {
    /// Whether everything is now as it should be.
    pub ok: bool,
    pub dry_run: bool,
    /// What was not as it should be.
    pub drift: Vec<Finding>,
    /// What of it was put right, or would be.
    pub changed: Vec<Finding>,
    pub faults: Vec<Failure>,
}

impl Report {
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
        self.faults.push(Failure { finding, message: message.to_owned(), class });
    }

    /// The trouble to tell, if there is one of the eight.
    pub fn trouble(&self) -> Option<(Class, String)> {
        let failure = self.faults.iter().find(|failure| failure.class.is_some())?;
        Some((failure.class?, format!("{}: {}", failure.finding, failure.message)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = if self.dry_run { "would change" } else { "changed" };
        for finding in &self.changed {
            writeln!(f, "{did:<12} {} from {} to {}", finding.what, finding.found, finding.expected)?;
        }
        for failure in &self.faults {
            writeln!(f, "{:<12} {}: {}", "not changed", failure.finding, failure.message)?;
            if let Some(class) = failure.class {
                writeln!(f, "{:<12} remedy: {}", "", remedy(class))?;
            }
        }
        let end = match (self.drift.is_empty(), self.ok) {
            (true, _) => "everything is as it should be",
            (false, true) if self.dry_run => "nothing was changed, as asked",
            (false, true) => "everything is as it should be now",
            (false, false) => "not everything could be put right",
        };
        f.write_str(end)
    }
}

/// Of a reconciliation that failed, that one is to run it is no help.
fn remedy(class: Class) -> &'static str {
    match class {
        Class::EndpointProfileDrift => {
            "see that this user may write the file, and that nothing else in it maps the name; then run it again"
        }
        other => other.remedy(),
    }
}
