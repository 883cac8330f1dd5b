//! Long flags with one dash: `-tenant T`, as some languages' libraries write them.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::Command;

/// The arguments with the second dash before every long flag that the command line knows. What follows `--`
/// is left as it is, and so is what no flag is called.
pub fn two_dashes(arguments: Vec<OsString>, command: &Command) -> Vec<OsString> {
    let mut known = BTreeSet::from(["help".to_owned(), "version".to_owned()]);
    collect(command, &mut known);
    let mut behind = false;
    let fixed = arguments.into_iter().map(|argument| {
        behind |= argument == "--";
        let name = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let name = name.map(|name| name.split_once('=').map_or(name, |(name, _)| name));
        match name {
            Some(name) if !behind && known.contains(name) => {
                let mut longer = OsString::from("-");
                longer.push(&argument);
                longer
            }
            _ => argument,
        }
    });
    fixed.collect()
}

fn collect(command: &Command, known: &mut BTreeSet<String>) {
    for argument in command.get_arguments() {
        let long = argument.get_long_and_visible_aliases().unwrap_or_default();
        known.extend(long.into_iter().map(str::to_owned));
    }
    for sub in command.get_subcommands() {
        collect(sub, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_flags_get_a_second_dash() {
        let command = Command::new("p")
            .subcommand(Command::new("mint").arg(clap::Arg::new("tenant").long("tenant").short('t')));
        let given =
            ["p", "mint", "-tenant", "x", "-t", "-ttl", "-tenant=y", "--tenant", "-", "--", "-tenant"];
        let fixed = two_dashes(given.map(OsString::from).to_vec(), &command);
        let wanted =
            ["p", "mint", "--tenant", "x", "-t", "-ttl", "--tenant=y", "--tenant", "-", "--", "-tenant"];
        assert_eq!(fixed, wanted.map(OsString::from));
    }
}
