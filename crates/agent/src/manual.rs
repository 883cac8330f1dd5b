//! `man`: manual pages from the same definition as the parser, for this program and for the operator's tool.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::builder::Resettable;
use clap::{Arg, Command};
use clap_mangen::Man;
use serde::Serialize;

use crate::code::AgentCode;
use crate::command;
use crate::fault::{Exit, Fault};
use crate::screen::{Columns, HumanText, harmless};

#[derive(Debug, Serialize)]
pub struct ManualDirectory {
    dir: String,
}

impl HumanText for ManualDirectory {
    fn text(&self, screen: Columns) -> String {
        screen.hang("", 2, &format!("the manual pages are in {}", harmless(&self.dir)))
    }
}

/// One page per command, one after the other.
pub fn whole() -> Vec<u8> {
    let mut pages = Vec::new();
    for command in commands() {
        // Writing to memory does not fail.
        _ = page(&command, &notes(&command), &mut pages);
    }
    pages
}

/// What a person at a terminal sees, for whom the source of the pages is of no use.
pub fn installing() -> String {
    let names = commands().into_iter().map(|command| format!("  {}\n", Man::new(command).get_filename()));
    format!(
        "manual pages:\n{}Install them, then read one:\n  enlist-agent man --out /usr/local/share/man/man1\n  man enlist-agent-enroll\n",
        names.collect::<String>()
    )
}

/// One file per command.
pub fn write(dir: &Path) -> Result<ManualDirectory, Fault> {
    let written = fs::create_dir_all(dir)
        .and_then(|()| commands().iter().try_for_each(|command| write_page(command, &notes(command), dir)));
    let hint = "name a directory that this user may create or write to";
    written.map_err(|error| {
        Fault::new(Exit::Fault, AgentCode::Fault, format!("{}: {error}", dir.display()), hint)
    })?;
    Ok(ManualDirectory { dir: dir.display().to_string() })
}

/// The program, then every command of it.
fn commands() -> Vec<Command> {
    let mut program = command().disable_help_subcommand(true);
    program.build();
    let commands: Vec<Command> = program.get_subcommands().cloned().collect();
    std::iter::once(program).chain(commands).collect()
}

/// The notes and examples below a command's help.
fn notes(command: &Command) -> String {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let parts = after.split_once("Examples:\n").or_else(|| after.split_once("Example:\n"));
    let (notes, examples) = parts.unwrap_or((&after, ""));
    let section = |(title, text): (&str, &str)| format!(".SH {title}\n.nf\n{}\n.fi\n", literal(text));
    let sections = [("NOTES", notes.trim_end()), ("EXAMPLES", examples)];
    sections.into_iter().filter(|(_, text)| !text.is_empty()).map(section).collect()
}

/// One page: the usual sections, then `notes` in roff: clap_mangen would fill examples into a paragraph named EXTRA.
pub fn page(command: &Command, notes: &str, to: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(command.clone().after_help(Resettable::Reset).mut_args(with_long_help))
        .source(concat!("Enlist ", env!("CARGO_PKG_VERSION")))
        .manual("Enlist manual");
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    if command.has_subcommands() {
        man.render_subcommands_section(to)?;
    }
    to.write_all(notes.as_bytes())?;
    if command.get_version().is_some() {
        man.render_version_section(to)?;
    }
    Ok(())
}

/// Writes the page of one command into a directory.
pub fn write_page(command: &Command, notes: &str, dir: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    page(command, notes, &mut text)?;
    fs::write(dir.join(Man::new(command.clone()).get_filename()), text)
}

/// A manual page is long help; clap_mangen leaves out the text of what only short help hides.
fn with_long_help(argument: Arg) -> Arg {
    match argument.get_help().cloned().filter(|_| argument.get_long_help().is_none()) {
        Some(help) => argument.long_help(help),
        None => argument,
    }
}

/// Text in which roff sees no escapes, and no hyphens where dashes are meant.
pub fn literal(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("man1")).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join("man1").join(name)).unwrap();
        assert!(read("enlist-agent.1").contains(".SH SUBCOMMANDS"));
        let footer = concat!("\"Enlist ", env!("CARGO_PKG_VERSION"), "\" \"Enlist manual\"");
        assert!(read("enlist-agent-enroll.1").contains(footer), "the footer names the program");
        let page = read("enlist-agent-enroll.1");
        let example = "\n  enlist\\-agent enroll \\-\\-replace \\-\\-token\\-file token\n";
        assert!(page.contains(".SH EXAMPLES") && page.contains(example), "{page}");
        assert!(page.contains("Redeem this token") && !page.contains(".SH EXTRA"), "{page}");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(write(&file.join("man1")).unwrap_err().exit, Exit::Fault);
    }
}
