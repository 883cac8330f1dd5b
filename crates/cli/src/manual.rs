//! `enlist man`: from the same definition as the parser.

use crate::command_line::definition;
use crate::error::CommandError;
use crate::examples;
use crate::output::Output;
use clap::builder::Resettable;
use clap::{Arg, Command};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Write one page per command to this directory instead of standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, output: Output) -> Result<(), CommandError> {
    let mut program = definition().disable_help_subcommand(true);
    program.build();
    match &arguments.out {
        None => {
            let mut text = Vec::new();
            page(&program, &mut text).map_err(|error| CommandError::fault("man", error.to_string()))?;
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

/// A file for the command, and one for each below it.
fn pages(command: &Command, dir: &Path) -> io::Result<()> {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        pages(child, dir)?;
    }
    let mut text = Vec::new();
    page(command, &mut text)?;
    std::fs::write(dir.join(Man::new(command.clone()).get_filename()), text)
}

/// The usual sections, but examples line by line: clap_mangen would fill them into a paragraph named EXTRA.
fn page(command: &Command, to: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(command.clone().after_help(Resettable::Reset).mut_args(shown));
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    if command.has_subcommands() {
        man.render_subcommands_section(to)?;
    }
    let examples = examples::of(command.get_bin_name().unwrap_or_else(|| command.get_name()));
    if !examples.is_empty() {
        writeln!(to, ".SH EXAMPLES")?;
    }
    for (what, line) in examples {
        writeln!(to, ".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE", literal(what), literal(line))?;
    }
    if command.get_version().is_some() {
        man.render_version_section(to)?;
    }
    Ok(())
}

/// A manual page is long help; clap_mangen leaves out the text of what only short help hides.
fn shown(argument: Arg) -> Arg {
    match argument.get_help().cloned().filter(|_| argument.get_long_help().is_none()) {
        Some(help) => argument.long_help(help),
        None => argument,
    }
}

/// Text in which roff sees no escapes, and no hyphens where dashes are meant.
fn literal(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
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
