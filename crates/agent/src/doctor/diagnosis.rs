//! All checks together, as a document and as people read them.

use serde::Serialize;

use super::check::Check;
use crate::screen::{ATTENTION, BAD, Columns, GOOD, HumanText, harmless};

/// Where evidence begins.
const INDENT: usize = 15;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub ok: bool,
    pub checks: Vec<Check>,
    /// The command that comes next, after a preflight without a fault.
    #[serde(skip)]
    pub next: Vec<String>,
}

impl Diagnosis {
    pub fn of(checks: Vec<Check>) -> Self {
        Self { ok: checks.iter().all(|check| check.ok), checks, next: Vec::new() }
    }

    fn summary(&self) -> String {
        let faults: Vec<&Check> = self.checks.iter().filter(|check| !check.ok).collect();
        let mut classes: Vec<&str> = Vec::new();
        for class in faults.iter().map(|check| check.class.unwrap_or(check.name)) {
            if !classes.contains(&class) {
                classes.push(class);
            }
        }
        let mut said = match faults.len() {
            0 => "no faults found".to_owned(),
            1 => format!("1 fault: {}", classes.join(", ")),
            many => format!("{many} faults: {}", classes.join(", ")),
        };
        let counted = [
            (self.checks.iter().filter(|check| check.warning.is_some()).count(), "warning", ""),
            (self.checks.iter().filter(|check| check.skipped.is_some()).count(), "check", " not made"),
        ];
        for (count, noun, rest) in counted.into_iter().filter(|(count, ..)| *count > 0) {
            let plural = if count == 1 { "" } else { "s" };
            said.push_str(&format!("; {count} {noun}{plural}{rest}"));
        }
        said
    }
}

impl HumanText for Diagnosis {
    fn text(&self, screen: Columns) -> String {
        let mut lines = Vec::new();
        for check in &self.checks {
            let sign = match check {
                Check { skipped: Some(_), .. } | Check { moot: true, .. } => "-".to_owned(),
                Check { warning: Some(_), .. } => format!("{ATTENTION}!{ATTENTION:#}"),
                Check { ok: true, .. } => format!("{GOOD}✓{GOOD:#}"),
                Check { .. } => format!("{BAD}✗{BAD:#}"),
            };
            let class = check.class.map(|class| format!(" {BAD}[{class}]{BAD:#}")).unwrap_or_default();
            let lead = format!("{sign} {:<12} ", check.name);
            lines.push(screen.hang(&lead, INDENT, &format!("{}{class}", harmless(&check.evidence))));
            let warning = check.warning.as_deref().map(|warning| ("warning", warning));
            let remedy = (!check.remedy.is_empty()).then_some(("remedy", check.remedy.as_str()));
            for (label, text) in warning.into_iter().chain(remedy) {
                let lead = format!("{:INDENT$}{label}: ", "");
                lines.push(screen.hang(&lead, INDENT + 2, &harmless(text)));
            }
        }
        lines.push(screen.hang("", 2, &self.summary()));
        if !self.next.is_empty() {
            match screen {
                Columns::PIPE => lines.push(format!("ready to enroll: {}", screen.command(0, &self.next))),
                _ => lines.extend(["ready to enroll:".to_owned(), screen.command(2, &self.next)]),
            }
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::host::Class;

    use super::*;

    fn summary(checks: Vec<Check>) -> String {
        Diagnosis::of(checks).text(Columns::PIPE).lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn faults_warnings_and_checks_not_made_are_counted_apart() {
        let gone = |name| Check::bad(name, Class::EndpointUnreachable, "x");
        assert_eq!(summary(vec![Check::good("tls", "x")]), "no faults found");
        assert_eq!(summary(vec![Check::good("tls", "x").warn("y")]), "no faults found; 1 warning");
        let skipped = |name| Check::skipped(name, "reachability", "x");
        let checks = vec![gone("reachability"), skipped("tls"), skipped("clock")];
        assert_eq!(summary(checks), "1 fault: endpoint_unreachable; 2 checks not made");
        let full = Check::bad("disk", Class::DiskFull, "x");
        assert_eq!(summary(vec![gone("tls"), full]), "2 faults: endpoint_unreachable, disk_full");
    }

    #[test]
    fn a_tick_stands_only_before_what_was_checked() {
        let checks = vec![Check::good("tls", "x"), Check::moot("resolution", "there is no name to resolve")];
        let shown = Diagnosis::of(checks).text(Columns::PIPE);
        let signs: Vec<char> = anstream::adapter::strip_str(&shown)
            .to_string()
            .lines()
            .filter_map(|line| line.chars().next())
            .collect();
        assert_eq!(signs, ['✓', '-', 'n'], "{shown}");
    }

    #[test]
    fn evidence_and_remedy_fit_the_terminal() {
        let evidence = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen";
        let check = Check::bad("tls", Class::ServerTlsUntrusted, format!("{evidence}\u{1b}[2J"));
        let shown = Diagnosis::of(vec![check]).text(Columns::of(60));
        let plain = anstream::adapter::strip_str(&shown).to_string();
        assert!(plain.lines().all(|line| line.chars().count() <= 60), "{plain}");
        assert!(plain.lines().count() > 4 && plain.contains("\n               "), "{plain}");
        assert!(plain.contains("fourteen\u{fffd}[2J"), "what steers a terminal is not passed on: {plain}");
    }
}
