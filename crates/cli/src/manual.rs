//! `enlist man`: from the same definition as the parser.

use crate::command_line::definition;
use crate::error::CommandError;
use crate::examples;
use crate::output::Output;
use ::agent::manual::{literal, page, write_page};
use clap::Command;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Write one page per command to this directory instead of the program's page to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, output: Output) -> Result<(), CommandError> {
    let mut program = definition().disable_help_subcommand(true);
    program.build();
    match &arguments.out {
        None if io::stdout().is_terminal() && !output.is_json() => output.verbatim(&installing(&program)),
        None => {
            let mut text = Vec::new();
            page(&program, &notes(&program), &mut text)
                .map_err(|error| CommandError::fault("man", error.to_string()))?;
            output.verbatim(&String::from_utf8_lossy(&text))
        }
        Some(dir) => {
            let made = std::fs::create_dir_all(dir).and_then(|()| pages(&program, dir));
            made.map_err(|error| CommandError::file(dir, &error))?;
            let dir = dir.display().to_string();
            output
                .document(&serde_json::json!({ "dir": dir }), |_| format!("the manual pages are in {dir}\n"))
        }
    }
}

/// What a person at a terminal sees, for whom the source of a page is of no use.
fn installing(program: &Command) -> String {
    let mut names = Vec::new();
    name_pages(program, &mut names);
    format!(
        "{} manual pages:\n{}\nInstall all of them, then read one:\n  enlist man --out /usr/local/share/man/man1\n  man enlist-node-list\n\
         Print the page of the program itself: enlist man | man -l -\n",
        names.len(),
        names.iter().map(|name| format!("  {name}\n")).collect::<String>()
    )
}

fn name_pages(command: &Command, names: &mut Vec<String>) {
    names.push(command.get_bin_name().unwrap_or_else(|| command.get_name()).replace(' ', "-"));
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        name_pages(child, names);
    }
}

/// A file for the command, and one for each below it.
fn pages(command: &Command, dir: &Path) -> io::Result<()> {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        pages(child, dir)?;
    }
    write_page(command, &notes(command), dir)
}

/// The examples in roff, each below what it does.
fn notes(command: &Command) -> String {
    let examples = examples::of(command.get_bin_name().unwrap_or_else(|| command.get_name()));
    let mut notes = String::new();
    for (number, (what, line)) in examples.iter().enumerate() {
        if number == 0 {
            notes.push_str(".SH EXAMPLES\n");
        }
        let (what, line) = (literal(what), literal(line));
        notes.push_str(&format!(".PP\n{what}:\n.PP\n.RS 4\n.nf\n{line}\n.fi\n.RE\n"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let dir = tempfile::tempdir().unwrap();
        run(&Arguments { out: Some(dir.path().to_owned()) }, Output::new(true)).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("enlist.1").contains(".SH SUBCOMMANDS"));
        let page = read("enlist-ca-sign-intermediate.1");
        let example =
            "enlist ca sign\\-intermediate \\-\\-root\\-key root.key \\-\\-root\\-cert ca.pem \\e\n";
        assert!(page.contains(".SH EXAMPLES") && page.contains(example), "{page}");
        assert!(!page.contains(".SH EXTRA"), "{page}");
        assert!(page.contains("Authenticate with this certificate"), "a global flag has no text: {page}");
    }
}
