//! `enlist explain`: what an error code means and what to do, from the pages of docs/errors, which are part of the program.

use crate::error::{CommandError, Exit};
use crate::output::Output;
use api::code::{Code, PAGES};
use serde::Serialize;

const OF_THE_HOST: &str = include_str!("../../../docs/errors/agent.md");
const OF_COMMANDS: &str = include_str!("../../../docs/errors/cli.md");

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Error code: the word before the colon of an error, and `code` in JSON
    code: String,
}

/// One meaning of a code: several programs may use the same word.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Explanation {
    code: String,
    /// Who says it: `control plane`, `enlist-agent` or `enlist`.
    said_by: &'static str,
    http_status: Option<u16>,
    grpc_status: Option<&'static str>,
    retryable: Option<bool>,
    text: String,
}

impl Explanation {
    fn of_the_control_plane((code, page): &(&Code, &str)) -> Self {
        Self {
            code: code.word.to_owned(),
            said_by: "control plane",
            http_status: Some(code.status),
            grpc_status: Some(code.grpc.name()),
            retryable: Some(code.retryable),
            text: without_links(page.split_once('\n').map_or(*page, |(_, text)| text)),
        }
    }

    fn local(code: &str, said_by: &'static str, text: &str) -> Self {
        Self {
            code: code.to_owned(),
            said_by,
            http_status: None,
            grpc_status: None,
            retryable: None,
            text: without_links(text),
        }
    }
}

pub fn run(arguments: &Arguments, output: Output) -> Result<(), CommandError> {
    let found = explanations(&word(&arguments.code));
    if found.is_empty() {
        return Err(CommandError::new(
            Exit::Usage,
            "code_unknown",
            format!("no error code is called {:?}", arguments.code),
            "pass the word before the colon of the error, such as `token_used`",
        ));
    }
    if output.is_json() {
        return output.document(&found, |_| String::new());
    }
    let screen = output.screen();
    let shown = |one: &Explanation| {
        let lines = paragraphs(&one.text);
        let lines: Vec<String> = lines
            .iter()
            .map(|line| screen.hang(0, if line.starts_with('-') { 2 } else { 0 }, line))
            .collect();
        format!("{} ({})\n\n{}\n", one.code, one.said_by, lines.join("\n"))
    };
    output.verbatim(&found.iter().map(shown).collect::<Vec<_>>().join("\n"))
}

/// The code in what was pasted: `error: token_used: the token...`, or written in another way.
fn word(pasted: &str) -> String {
    let text = pasted.trim().to_ascii_lowercase().replace('-', "_");
    let text = text.strip_prefix("error:").unwrap_or(&text).trim_start();
    text.split([':', ' ']).next().unwrap_or_default().to_owned()
}

fn explanations(code: &str) -> Vec<Explanation> {
    let of_the_control_plane = PAGES.iter().filter(|(known, _)| known.word == code);
    let of_the_host = section(code).map(|text| Explanation::local(code, "enlist-agent", text));
    let of_commands = row(code).map(|text| Explanation::local(code, "enlist", &text));
    of_the_control_plane
        .map(Explanation::of_the_control_plane)
        .chain(of_the_host)
        .chain(of_commands)
        .collect()
}

/// The section of a code on the page of the agent.
fn section(code: &str) -> Option<&'static str> {
    let sections = OF_THE_HOST.split("\n## ").skip(1);
    sections
        .filter_map(|section| section.split_once('\n'))
        .find(|(name, _)| *name == code)
        .map(|(_, text)| text)
}

/// The row of a code on the page of the operator's commands.
fn row(code: &str) -> Option<String> {
    let cells = OF_COMMANDS.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let (_, rest) = cells.into_iter().find(|(name, _)| *name == code)?;
    let (means, helps) = rest.trim_end_matches(" |").split_once(" | ")?;
    Some(format!("It means: {means}.\n\nRemedy: {helps}."))
}

/// The text of a page without its links: their targets are files that are not there.
pub fn without_links(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page.trim();
    while let Some((before, link)) = rest.split_once('[') {
        let parts = link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1)));
        let Some((name, after)) = parts else { break };
        text.push_str(before);
        text.push_str(name);
        rest = after;
    }
    text + rest
}

/// Lines that belong together are joined, so that they fill the terminal; items of a list stay apart.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        match found.last_mut() {
            Some(last) if !line.is_empty() && !line.starts_with(['-', '|']) && !last.is_empty() => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => found.push(line.to_owned()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained_by_its_page() {
        for (code, page) in PAGES {
            let found = explanations(code.word);
            assert!(found.iter().any(|one| one.said_by == "control plane"), "{}", code.word);
            assert!(page.starts_with(&format!("# {}\n", code.word)), "{}", code.word);
        }
        assert_eq!(PAGES.len(), api::code::CODES.len());
        let found = explanations("no_quorum");
        assert!(found[0].text.starts_with("HTTP 503") && !found[0].text.contains("]("), "{}", found[0].text);
    }

    #[test]
    fn a_code_of_the_host_or_of_a_command_is_explained_too() {
        assert_eq!(explanations("agent_unavailable")[0].said_by, "enlist-agent");
        let found = explanations("cannot_listen");
        assert_eq!(found[0].said_by, "enlist");
        assert!(found[0].text.contains("It means: the address is taken"), "{}", found[0].text);
        assert!(explanations("no_such_code").is_empty());
    }

    #[test]
    fn a_code_is_found_in_what_people_paste() {
        for pasted in ["token_used", "token_used:", " Token-Used ", "error: token_used: the token is used"] {
            assert_eq!(word(pasted), "token_used", "{pasted}");
        }
    }

    #[test]
    fn lines_of_a_paragraph_are_joined_and_items_stay_apart() {
        assert_eq!(paragraphs("a\nb\n\n- c\n  d\n- e"), ["a b", "", "- c d", "- e"]);
        assert_eq!(without_links("see [x](y.md) and [z](w)."), "see x and z.");
        assert_eq!(without_links("an [open one"), "an [open one");
    }
}
