//! Called by another name, the agent is another document's: the same commands, with that document's places.

mod dashes;

use std::ffi::OsStr;
use std::path::Path;

use clap::Command;

pub use dashes::two_dashes;

use crate::layout::Layout;
use crate::store::dir;

/// Who the agent is called, and what follows from it where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persona {
    #[default]
    Enlist,
    /// `plfm-agent` of 000.
    Plfm,
    /// `probectl-agent` of 002.
    Probectl,
}

impl Persona {
    /// By the program's name, with or without a directory before it.
    pub fn of(program: Option<&OsStr>) -> Self {
        program.and_then(Persona::known).unwrap_or_default()
    }

    /// The same, if the name is an agent's.
    pub fn known(program: &OsStr) -> Option<Self> {
        match Path::new(program).file_name()?.to_str()? {
            "enlist-agent" => Some(Persona::Enlist),
            "plfm-agent" => Some(Persona::Plfm),
            "probectl-agent" => Some(Persona::Probectl),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Persona::Enlist => "enlist-agent",
            Persona::Plfm => "plfm-agent",
            Persona::Probectl => "probectl-agent",
        }
    }

    /// Where it keeps its identity.
    pub fn dir(self) -> &'static str {
        match self {
            Persona::Enlist => dir::DEFAULT,
            Persona::Plfm => "/etc/plfm-agent",
            Persona::Probectl => "/var/lib/probectl-agent/identity",
        }
    }

    pub fn layout(self) -> Option<Layout> {
        match self {
            Persona::Enlist => None,
            Persona::Plfm => Some(Layout::Plfm),
            Persona::Probectl => Some(Layout::Probectl),
        }
    }

    /// A file in its directory that holds the token, if it is there.
    pub fn token_file(self) -> Option<&'static str> {
        (self == Persona::Plfm).then_some("enrollment-token")
    }

    /// Whether a control plane that nothing was said about is recognised as any web site is: the document
    /// leaves its pin out where the certificate is publicly trusted.
    pub fn system_roots(self) -> bool {
        self == Persona::Probectl
    }

    /// The command line under this name.
    pub fn command(self, mut command: Command) -> Command {
        if self == Persona::Enlist {
            return command;
        }
        for sub in ["enroll", "run", "status", "doctor", "recover", "reconcile"] {
            let help = format!(
                "Use this directory for the agent's files [env: ENLIST_AGENT_DIR] [default: {}]",
                self.dir()
            );
            command = command.mut_subcommand(sub, |sub| sub.mut_arg("dir", |arg| arg.help(help)));
        }
        command.name(self.name()).bin_name(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_last_part_of_the_path() {
        let persona = |text: &str| Persona::of(Some(OsStr::new(text)));
        assert_eq!(persona("/usr/bin/plfm-agent"), Persona::Plfm);
        assert_eq!(persona("probectl-agent"), Persona::Probectl);
        assert_eq!(persona("some-other-name"), Persona::Enlist);
        assert!(crate::is_agent(OsStr::new("/tmp/enlist-agent")) && !crate::is_agent(OsStr::new("enlist")));
        assert_eq!(Persona::of(None), Persona::Enlist);
    }

    #[test]
    fn every_name_has_a_whole_command_line() {
        for persona in [Persona::Enlist, Persona::Plfm, Persona::Probectl] {
            let command = persona.command(crate::command());
            command.clone().debug_assert();
            assert_eq!(command.get_name(), persona.name());
        }
    }
}
