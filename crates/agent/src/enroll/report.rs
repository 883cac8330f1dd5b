//! What `enroll` says when it is done.

use std::path::Path;

use serde::Serialize;

use crate::compat::Persona;
use crate::screen::{Columns, HumanText};
use crate::store::generation::Generations;
use crate::store::identity::HostIdentity;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnrollReport {
    pub node_id: String,
    pub spiffe_id: String,
    /// The node's state as the control plane said it; `enrolled` if it was not asked.
    pub state: String,
    pub cert_serial: String,
    pub cert_not_after: String,
    pub renew_at: Option<String>,
    pub tenant: String,
    pub domain: String,
    pub dir: String,
    pub already_enrolled: bool,
    /// Whether the control plane was asked for the state. A state that was not asked for is not shown to people.
    #[serde(skip)]
    pub asked: bool,
    /// What comes after it.
    #[serde(skip)]
    pub next: NextStep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// The daemon is to be started: as whom, and how the shell calls the program.
    Run(Persona, String),
    /// It runs already.
    Nothing,
}

impl EnrollReport {
    pub fn new(dir: &Path, identity: &HostIdentity, state: Option<String>, already_enrolled: bool) -> Self {
        Self {
            node_id: identity.node_id().unwrap_or_default().to_owned(),
            spiffe_id: identity.spiffe.to_string(),
            asked: state.is_some(),
            state: state.unwrap_or_else(|| "enrolled".to_owned()),
            cert_serial: identity.facts.serial.to_string(),
            cert_not_after: identity.facts.not_after.to_string(),
            renew_at: identity.renew_at().map(str::to_owned),
            tenant: identity.tenant().unwrap_or_default().to_owned(),
            domain: identity.spiffe.domain.to_string(),
            dir: dir.display().to_string(),
            already_enrolled,
            next: NextStep::Run(Persona::default(), Persona::default().name().to_owned()),
        }
    }

    /// While the daemon works in the directory.
    pub fn beside_daemon(self) -> Self {
        Self { next: NextStep::Nothing, ..self }
    }

    /// Written by the program under this name, called like this.
    pub fn called(self, persona: Persona, program: &str) -> Self {
        let next = match self.next {
            NextStep::Nothing => NextStep::Nothing,
            NextStep::Run(..) => NextStep::Run(persona, program.to_owned()),
        };
        Self { next, ..self }
    }

    fn steps(&self, persona: Persona, program: &str, screen: Columns) -> Vec<String> {
        let usual = self.dir == persona.dir();
        let unit = usual && persona == Persona::Enlist;
        let mut words = vec![program.to_owned(), "run".to_owned()];
        if !usual {
            words.extend(["--dir".to_owned(), self.dir.clone()]);
        }
        let service = if unit {
            "Or as a service: systemctl enable --now enlist-agent (docs/agent.md, \"As a service\")"
        } else {
            "Or as a service with this directory: docs/agent.md, \"As a service\""
        };
        let intro = "Next, keep the identity renewed:".to_owned();
        vec![intro, screen.command(2, &words), screen.hang("", 2, service)]
    }
}

impl HumanText for EnrollReport {
    fn text(&self, screen: Columns) -> String {
        let done = if self.already_enrolled { "already enrolled" } else { "enrolled" };
        let place = Generations::under(Path::new(&self.dir)).current_path();
        let state = if self.asked { format!(" ({})", self.state) } else { String::new() };
        let mut lines = vec![screen.hang("", 2, &format!("{done} as {}{state}", self.node_id))];
        let fields = [
            ("SPIFFE ID", self.spiffe_id.as_str()),
            ("identity", &place.display().to_string()),
            ("valid until", &self.cert_not_after),
            ("renew at", self.renew_at.as_deref().unwrap_or("unknown")),
        ];
        lines.extend(fields.map(|(label, value)| screen.hang(&format!("  {label:<12} "), 15, value)));
        if self.already_enrolled {
            let kept = "The identity was kept as it is, and no token was used. To enroll again: --replace";
            lines.push(screen.hang("", 0, kept));
        }
        match &self.next {
            NextStep::Run(persona, program) => lines.extend(self.steps(*persona, program, screen)),
            NextStep::Nothing => lines.push("The daemon is running and renews it.".to_owned()),
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(dir: &str) -> EnrollReport {
        let text = str::to_owned;
        EnrollReport {
            node_id: text("n-1"),
            spiffe_id: text("spiffe://test.example/n-1"),
            state: text("active"),
            cert_serial: text("1"),
            cert_not_after: text("2030-01-01T00:00:00Z"),
            renew_at: None,
            tenant: text("default"),
            domain: text("test.example"),
            dir: text(dir),
            already_enrolled: false,
            asked: true,
            next: NextStep::Run(Persona::Enlist, text("enlist-agent")),
        }
    }

    #[test]
    fn what_comes_next_names_the_directory_only_if_it_is_not_the_usual_one() {
        let usual = report("/var/lib/enlist-agent").text(Columns::PIPE);
        assert!(usual.contains("\n  enlist-agent run\n"), "{usual}");
        assert!(usual.contains("systemctl enable --now enlist-agent"), "{usual}");
        let other = report("/srv/a b").text(Columns::PIPE);
        assert!(other.contains("\n  enlist-agent run --dir '/srv/a b'\n"), "{other}");
        assert!(!other.contains("systemctl"), "the unit has another directory: {other}");
        let plfm = report("/etc/plfm-agent").called(Persona::Plfm, "plfm-agent").text(Columns::PIPE);
        assert!(plfm.contains("\n  plfm-agent run\n") && !plfm.contains("systemctl"), "{plfm}");
    }

    #[test]
    fn only_a_state_that_was_asked_for_is_shown() {
        let first =
            |report: EnrollReport| report.text(Columns::PIPE).lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(report("/srv/a")), "enrolled as n-1 (active)");
        let again = EnrollReport { already_enrolled: true, asked: false, ..report("/srv/a") };
        assert_eq!(first(again), "already enrolled as n-1");
    }

    #[test]
    fn beside_a_running_daemon_nothing_comes_next() {
        let text = report("/srv/a").beside_daemon().called(Persona::Plfm, "plfm-agent").text(Columns::PIPE);
        assert!(!text.contains("-agent run"), "{text}");
    }
}
