//! docs/cli.md is made from the definitions of both programs. `UPDATE_GOLDEN=1` rewrites it.

use clap::{Arg, Command};
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "\
# Command line

Every command and flag of `enlist` and `enlist-agent`. This page is generated from their definitions:
`UPDATE_GOLDEN=1 cargo test -p enlist reference` rewrites it.

Exit codes: 0 done, 1 fault, 2 usage or configuration, 3 refused by the control plane, 4 unreachable.
Errors go to standard error: a stable code, what happened, one line of remedy. With `--json` they are
`{\"error\":{\"code\",\"message\",\"hint\",\"request_id\",\"retryable\"}}`, and standard output holds one JSON document, or one
line per item.

## How `enlist` reaches the control plane

In this order:

1. the flag `--socket`, `--dir`, `--server` or `--context` (one of them);
2. the variable `ENLIST_SOCKET`, `ENLIST_DIR` or `ENLIST_SERVER`, or `ENLIST_CONTEXT`, which is refused beside the others;
3. the current context (`enlist context use`);
4. the operator socket in `/var/lib/enlist`.

Any flag beats any variable. A server that is named by a flag or a variable takes nothing from a context: its credentials
are `--cert` with `--key`, or `--api-key-file`, and `--ca` or `--ca-pin`; else `ENLIST_CERT`, `ENLIST_KEY`,
`ENLIST_API_KEY_FILE` and `ENLIST_CA`. Beside a context these flags take the place of what the context says. The
variables do not: they may belong to another control plane.

Contexts are in `$XDG_CONFIG_HOME/enlist/contexts.toml`, else in `~/.config/enlist`, mode 0600. They hold addresses and paths,
never a secret. `context add --file` accepts only files that lie beside the context.toml.

Beside a CA file (`ca.pem`) may lie the revocation lists of its roots (`ca-crls.pem`): issuers on them are refused. `enlist operator renew`
and `enlist ca update-trust` bring both up to date. A file of lists that is damaged, empty or a link that leads nowhere is an error, and never counts as none.

`ca import-crl --file`, `ca roll prepare --cert` and `node import --cert` refuse a file that holds a private key (`private_key_refused`) before anything is sent.

Files with a secret (`--key`, `--api-key-file`, `--root-key` and `--new-root-key` of `ca`, `--ca-key`, `--step-ca-key` and
`--step-ca-password-file` of `server init`, the agent's `--token-file`) are refused with `key_exposed` while others may read them: `chmod 600 FILE`. A Kubernetes secret needs `defaultMode: 0400`.
";

fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    for mut program in [cli::command_line::definition(), agent::command()] {
        program.build();
        write(&mut text, &program, program.get_name());
    }
    text
}

fn write(text: &mut String, command: &Command, path: &str) {
    let is_program = path == command.get_name();
    let _ = writeln!(text, "\n{} {path}\n", if is_program { "##" } else { "###" });
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let about = about.to_string();
        let paragraphs = about.trim().split("\n\n").map(|part| format!("{}.", part.trim_end_matches('.')));
        let _ = writeln!(text, "{}\n", paragraphs.collect::<Vec<_>>().join("\n\n"));
    }
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = writeln!(text, "Also called {}.\n", aliases.join(", "));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "```\n{}\n```", usage.trim_start_matches("Usage:").trim());
    let shown = |arg: &&Arg| {
        let own = is_program || !arg.is_global_set();
        own && !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
    };
    let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !arguments.is_empty() {
        let _ = writeln!(text, "\n| argument | meaning |\n|---|---|");
    }
    for argument in arguments {
        let _ = writeln!(text, "| `{}` | {} |", escape(&argument.to_string()), escape(&meaning(argument)));
    }
    if let Some(examples) = command.get_after_help() {
        let _ = writeln!(text, "\n{}", block(&examples.to_string()));
    }
    for child in command.get_subcommands().filter(|child| child.get_name() != "help" && !child.is_hide_set())
    {
        write(text, child, &format!("{path} {}", child.get_name()));
    }
}

/// `Examples:` with indented lines, as help has it.
fn block(help: &str) -> String {
    let (head, lines) = help.split_once('\n').unwrap_or((help, ""));
    let lines: Vec<&str> = lines.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    format!("{head}\n\n```sh\n{}\n```", lines.join("\n"))
}

fn meaning(argument: &Arg) -> String {
    let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let values = argument.get_possible_values();
    if takes_value && !values.is_empty() && !argument.is_hide_possible_values_set() {
        let words: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let _ = write!(meaning, "; one of {}", words.join(", "));
    }
    let defaults = argument.get_default_values();
    if takes_value && !defaults.is_empty() {
        let words: Vec<String> = defaults.iter().map(|value| format!("`{}`", value.display())).collect();
        let _ = write!(meaning, "; default {}", words.join(", "));
    }
    meaning.trim().to_owned()
}

/// A bar would end the cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[test]
fn the_reference_page_says_what_the_programs_take() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).expect("docs/cli.md can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/cli.md is out of date: UPDATE_GOLDEN=1 cargo test -p enlist reference");
}
