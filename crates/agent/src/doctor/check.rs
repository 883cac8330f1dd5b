//! What one check found, and all of them together.

use std::fmt;

use lifecycle::host::Class;
use serde::Serialize;

use crate::code;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub ok: bool,
    /// One of the eight classes; where none of them fits, the agent's own word for it.
    pub class: Option<&'static str>,
    /// What was seen.
    pub evidence: String,
    /// What to do; empty if nothing.
    pub remedy: String,
    /// Whether it would be another with another clock.
    #[serde(skip)]
    pub by_dates: bool,
}

impl Check {
    pub fn good(name: &'static str, evidence: impl Into<String>) -> Self {
        let (evidence, remedy) = (evidence.into(), String::new());
        Self { name, ok: true, class: None, evidence, remedy, by_dates: false }
    }

    pub fn bad(name: &'static str, class: Class, evidence: impl Into<String>) -> Self {
        Self { class: Some(class.as_str()), ..Self::wrong(name, "", evidence) }.with(class.remedy())
    }

    /// What is none of the eight classes.
    pub fn wrong(name: &'static str, word: &'static str, evidence: impl Into<String>) -> Self {
        let remedy = code::remedy(word).unwrap_or_default();
        let class = (!word.is_empty()).then_some(word);
        Self { ok: false, class, ..Self::good(name, evidence) }.with(remedy)
    }

    pub fn with(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    pub fn by_dates(self) -> Self {
        Self { by_dates: true, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub ok: bool,
    pub checks: Vec<Check>,
}

impl Diagnosis {
    pub fn of(checks: Vec<Check>) -> Self {
        Self { ok: checks.iter().all(|check| check.ok), checks }
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let sign = if check.ok { "✓" } else { "✗" };
            write!(f, "{sign} {:<12} {}", check.name, check.evidence)?;
            if let Some(class) = check.class {
                write!(f, " [{class}]")?;
            }
            writeln!(f)?;
            if !check.remedy.is_empty() {
                writeln!(f, "{:<15}remedy: {}", "", check.remedy)?;
            }
        }
        // One cause may show in several checks.
        let wrong: Vec<&Check> = self.checks.iter().filter(|check| !check.ok).collect();
        let mut causes: Vec<&str> = Vec::new();
        for cause in wrong.iter().map(|check| check.class.unwrap_or(check.name)) {
            if !causes.contains(&cause) {
                causes.push(cause);
            }
        }
        match causes.len() {
            0 => return f.write_str("nothing is wrong"),
            1 => f.write_str("one thing is wrong")?,
            many => write!(f, "{many} things are wrong")?,
        }
        write!(f, " ({})", causes.join(", "))?;
        if wrong.len() > causes.len() {
            write!(f, ", seen by {} checks", wrong.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(checks: Vec<Check>) -> String {
        Diagnosis::of(checks).to_string().lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn causes_are_counted_and_not_their_traces() {
        let gone = |name| Check::bad(name, Class::EndpointUnreachable, "x");
        assert_eq!(summary(vec![Check::good("tls", "x")]), "nothing is wrong");
        assert_eq!(summary(vec![gone("tls")]), "one thing is wrong (endpoint_unreachable)");
        let said = "one thing is wrong (endpoint_unreachable), seen by 2 checks";
        assert_eq!(summary(vec![gone("tls"), gone("clock")]), said);
        let full = Check::bad("disk", Class::DiskFull, "x");
        let said = "2 things are wrong (endpoint_unreachable, disk_full), seen by 3 checks";
        assert_eq!(summary(vec![gone("tls"), gone("clock"), full]), said);
    }
}
