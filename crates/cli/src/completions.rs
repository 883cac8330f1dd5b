//! `enlist completions`: from the same definition as the parser.

use crate::command_line::definition;
use crate::error::CommandError;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Shell to write the script for
    shell: clap_complete::Shell,
}

pub fn run(arguments: &Arguments, output: Output) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "enlist", &mut script);
    output.verbatim(&String::from_utf8_lossy(&script))
}
