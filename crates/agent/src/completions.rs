//! `completions`: from the same definition as the parser.

use clap_complete::Shell;

use crate::command;

const PROGRAM: &str = "enlist-agent";

/// The script for one shell.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), PROGRAM, &mut script);
    let script = String::from_utf8_lossy(&script);
    if shell == Shell::Bash { agreeing(&script) } else { script.into_owned() }
}

/// The generator sets `cmd` to `enlist__agent__subcmd__X` and then looks for `enlist__subcmd__agent__subcmd__X`: in the
/// second place it takes the dash in the program's name for the border of a subcommand.
fn agreeing(script: &str) -> String {
    script.replace("enlist__subcmd__agent__subcmd__", "enlist__agent__subcmd__")
}
