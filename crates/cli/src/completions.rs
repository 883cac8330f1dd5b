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
    let mut whole = definition();
    // Gives every command the global flags that it has, before hidden ones that stand in their place are left out.
    whole.build();
    clap_complete::generate(arguments.shell, &mut offered(&whole), "enlist", &mut script);
    output.verbatim(&String::from_utf8_lossy(&script))
}

/// The same command without what is hidden, which clap_complete would offer.
fn offered(command: &clap::Command) -> clap::Command {
    let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    let aliases = command.get_visible_aliases().map(str::to_owned);
    let made = clap::Command::new(command.get_name().to_owned())
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true)
        .version(env!("CARGO_PKG_VERSION"))
        .visible_aliases(aliases.collect::<Vec<_>>())
        .args(flags.map(|arg| arg.clone().global(false)))
        .groups(
            command.get_groups().filter(|group| !group.get_args().any(|id| is_hidden(command, id))).cloned(),
        )
        .subcommands(below.map(offered));
    match command.get_about() {
        Some(about) => made.about(about.clone()),
        None => made,
    }
}

fn is_hidden(command: &clap::Command, id: &clap::Id) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == id && arg.is_hide_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_offered_and_everything_else_is() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut whole = definition();
            whole.build();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut offered(&whole), "enlist", &mut script);
            let script = String::from_utf8(script).unwrap();
            for hidden in ["client-cert", "server-url"] {
                assert!(!script.contains(hidden), "{shell}: {hidden}");
            }
            for shown in ["csr-out", "new-root", "ca-pin", "sign-intermediate", "hosts"] {
                assert!(script.contains(shown), "{shell}: {shown}");
            }
        }
    }
}
