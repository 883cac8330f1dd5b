//! Called by another name, this program takes another document's command lines, each a thin translation to
//! Enlist's own. `enlist compat link` makes the names.

mod link;
mod pact;
mod plfm;
mod probectl;
mod taskrun;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create links to both programs under the names of other systems, in the directory --dir
    ///
    /// Called by such a name, the program takes the command lines of that system. plfm, pact, probectl-control and
    /// taskrun are links to enlist, plfm-agent and probectl-agent to the enlist-agent beside it. Existing files that
    /// are not such links are never changed.
    Link {
        /// Directory for the links, one that is in PATH, such as /usr/local/bin; created if missing
        // Takes the place of the global flag, whose word has another meaning here.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

pub fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Link { dir: _ } => link::run(reach, output),
    }
}

/// The names under which this program is another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Plfm,
    Pact,
    ProbectlControl,
    Taskrun,
}

impl Name {
    /// The name in the first argument, with or without a directory before it.
    pub fn of(program: &OsStr) -> Option<Self> {
        match Path::new(program).file_name()?.to_str()? {
            "plfm" => Some(Name::Plfm),
            "pact" => Some(Name::Pact),
            "probectl-control" => Some(Name::ProbectlControl),
            "taskrun" => Some(Name::Taskrun),
            _ => None,
        }
    }

    pub fn main(self, arguments: Vec<OsString>) -> ExitCode {
        match self {
            Name::Plfm => plfm::main(&arguments),
            Name::ProbectlControl => probectl::main(arguments),
            Name::Taskrun => taskrun::main(&arguments),
            Name::Pact => pact::main(&arguments),
        }
    }
}

/// The definitions of every name that has command lines.
#[cfg(test)]
pub fn definitions() -> Vec<clap::Command> {
    use clap::CommandFactory;
    let programs = [
        plfm::CommandLine::command(),
        pact::CommandLine::command(),
        probectl::CommandLine::command(),
        taskrun::CommandLine::command(),
    ];
    programs.into_iter().map(crate::examples::added_to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_last_part_of_the_path() {
        let name = |text: &str| Name::of(OsStr::new(text));
        assert_eq!(name("/usr/local/bin/plfm"), Some(Name::Plfm));
        assert_eq!(name("taskrun"), Some(Name::Taskrun));
        assert_eq!(name("./probectl-control"), Some(Name::ProbectlControl));
        for other in ["enlist", "plfm/enlist", "plfm2", ""] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn no_definition_contradicts_itself() {
        definitions().into_iter().for_each(clap::Command::debug_assert);
    }
}
