use super::*;
use crate::compat;
use std::collections::BTreeSet;

fn programs() -> Vec<Command> {
    let mut programs = compat::definitions();
    programs.push(crate::command_line::definition());
    programs
}

/// Every command that a user can see, with its path.
fn commands() -> Vec<(String, Command)> {
    let mut todo: Vec<(String, Command)> =
        programs().into_iter().map(|program| (program.get_name().to_owned(), program)).collect();
    let mut found = Vec::new();
    while let Some((path, command)) = todo.pop() {
        let children = command.get_subcommands().filter(|child| !child.is_hide_set());
        todo.extend(children.map(|child| (format!("{path} {}", child.get_name()), child.clone())));
        found.push((path, command));
    }
    found
}

/// The words of a line as a shell would make them, up to a redirection or a pipe.
fn words(line: &str) -> Vec<String> {
    let line = line.replace("\\\n", " ");
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words.into_iter().take_while(|word| word != ">" && word != "|").collect()
}

#[test]
fn every_command_has_an_example() {
    let lacking: Vec<String> = commands()
        .into_iter()
        .filter(|(path, command)| !command.has_subcommands() && of(path).is_empty())
        .map(|(path, _)| path)
        .collect();
    assert!(lacking.is_empty(), "add a row to TABLE in crates/cli/src/examples.rs for each of {lacking:?}");
}

#[test]
fn the_table_names_each_command_once_and_no_other() {
    let known: BTreeSet<String> = commands().into_iter().map(|(path, _)| path).collect();
    let mut seen = BTreeSet::new();
    for (path, examples) in TABLE {
        assert!(known.contains(*path), "no command `{path}`: remove or rename its row in TABLE");
        assert!(seen.insert(path), "`{path}` has two rows in TABLE: join them");
        assert!(!examples.is_empty(), "`{path}` has a row without an example in TABLE");
    }
}

#[test]
fn every_example_is_a_command_line_of_its_command() {
    for (path, examples) in TABLE {
        for (_, line) in *examples {
            let words = words(line);
            let program = programs()
                .into_iter()
                .find(|program| words.first().is_some_and(|word| word == program.get_name()));
            let program = program.unwrap_or_else(|| panic!("`{line}` begins with no program of ours"));
            let mut reached = program.get_name().to_owned();
            let matches = program.try_get_matches_from(&words);
            let matches =
                matches.unwrap_or_else(|error| panic!("correct the example `{line}` of `{path}`: {error}"));
            let mut at = matches.subcommand();
            while let Some((name, below)) = at {
                reached = format!("{reached} {name}");
                at = below.subcommand();
            }
            // An example of a family may be one of any of its commands.
            let fits = reached == *path || reached.starts_with(&format!("{path} "));
            assert!(fits, "`{line}` is an example of `{reached}`, but stands under `{path}`");
        }
    }
}

#[test]
fn examples_fit_a_terminal_of_80_columns() {
    for (path, examples) in TABLE {
        for (what, line) in *examples {
            for text in
                std::iter::once(format!("  # {what}")).chain(line.lines().map(|line| format!("  {line}")))
            {
                assert!(
                    text.len() <= 80,
                    "shorten this line of `{path}`, or continue it after a backslash: {text}"
                );
            }
        }
    }
}

#[test]
fn every_command_says_what_it_does() {
    for (path, command) in commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty(), "`{path}` has no doc comment, so its help says nothing");
        assert!(!about.ends_with('.'), "`{path}`: help texts have no full stop at their end");
    }
}

#[test]
fn every_argument_has_help() {
    for (path, command) in commands() {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "`{}` of `{path}` has no doc comment, so no help", argument.get_id());
        }
    }
}
