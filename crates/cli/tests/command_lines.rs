//! The command lines on our pages are read by the programs' own parsers: a flag that is missing or does not exist, a value that is
//! refused, fails here and not at whoever copies the line.

#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

/// The Markdown pages of the project that people copy from. docs/cli.md is made from the definitions themselves, its examples included.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found: Vec<PathBuf> = Vec::new();
    let mut waiting = vec![root.join("docs")];
    for name in ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"] {
        found.push(root.join(name));
    }
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory of pages") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The commands in the blocks for the shell: lines that end with a backslash go on, comments are left out.
fn shell_lines(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut inside, mut begun) = (false, String::new());
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = !inside && line.starts_with("```sh");
            begun.clear();
        } else if inside && !line.starts_with('#') {
            let line = line.split_once(" #").map_or(line, |(command, _)| command).trim_end();
            match line.strip_suffix('\\') {
                Some(part) => begun.push_str(part),
                None => lines.push(std::mem::take(&mut begun) + line),
            }
        }
    }
    lines
}

/// The commands between backticks that name what they are about, such as `enlist node drain ID`. One that names nothing only speaks
/// of a command, and one with brackets or dots shows what it could be.
fn prose_lines(page: &str) -> Vec<String> {
    let (mut prose, mut inside) = (String::new(), false);
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            prose.push_str(line.trim());
            prose.push(' ');
        }
    }
    let coded = prose.split('`').skip(1).step_by(2);
    let whole = coded.filter(|code| !code.contains(['[', '|', '…', '{']) && !code.contains("..."));
    whole.filter(|code| code.split_whitespace().any(is_placeholder)).map(ToOwned::to_owned).collect()
}

/// The words of each of our programs' calls in a line, without quotes. Assignments and programs that start others come before
/// the call; a pipe, a redirection, a list or the parenthesis of a substitution ends it.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = vec![Vec::new()];
    let (mut word, mut quote, mut begun) = (String::new(), None, false);
    let mut letters = line.chars();
    loop {
        let letter = letters.next();
        match (letter, quote) {
            (Some(letter), Some(open)) if letter == open => quote = None,
            (Some(letter), Some(_)) => word.push(letter),
            (Some(letter @ ('"' | '\'')), None) => (quote, begun) = (Some(letter), true),
            (Some(letter), None) if !letter.is_whitespace() && !"|;&()<>".contains(letter) => {
                word.push(letter);
                begun = true;
            }
            (end, _) => {
                if begun {
                    calls.last_mut().expect("one is begun").push(std::mem::take(&mut word));
                }
                begun = false;
                match end {
                    None => break,
                    // A file follows, which is no word of the call.
                    Some('<' | '>') => calls.push(vec![String::new()]),
                    Some(letter) if !letter.is_whitespace() => calls.push(Vec::new()),
                    Some(_) => {}
                }
            }
        }
    }
    calls.into_iter().filter_map(|words| own(&words).map(<[String]>::to_vec)).collect()
}

/// The call of our program in these words, if it is one: assignments and programs that start others with their flags may lead to it.
fn own(words: &[String]) -> Option<&[String]> {
    let mut at = 0;
    loop {
        match words.get(at)?.as_str() {
            "enlist" | "enlist-agent" => return words.get(at..),
            // The name of a user follows.
            "-u" => at += 2,
            word if word.contains('=') || word.starts_with('-') || STARTERS.contains(&word) => at += 1,
            _ => return None,
        }
    }
}

const STARTERS: [&str; 4] = ["sudo", "env", "exec", "runuser"];

/// A value instead of a placeholder: the name of one in capital letters, or what is cut off by dots.
fn filled_in(word: &str) -> String {
    match word.strip_suffix("...") {
        Some(begun) if begun.starts_with("sha256:") => format!("sha256:{}", "0".repeat(64)),
        Some(begun) => begun.to_owned(),
        None if is_placeholder(word) => word.to_lowercase(),
        None => word.to_owned(),
    }
}

fn is_placeholder(word: &str) -> bool {
    word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

/// Why the program would refuse the call before it does anything.
fn refusal(words: &[String]) -> Option<String> {
    let is_agent = words.first().is_some_and(|program| program == "enlist-agent");
    let mut program = if is_agent { agent::command() } else { cli::command_line::definition() };
    let error = program.try_get_matches_from_mut(words.iter().map(|word| filled_in(word))).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        _ => Some(error.to_string()),
    }
}

#[test]
fn every_command_line_on_our_pages_is_accepted_by_the_programs() {
    let mut wrong = Vec::new();
    let mut read = 0;
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("a page");
        let lines = [shell_lines(&text), prose_lines(&text)].concat();
        for words in lines.iter().flat_map(|line| calls(line)) {
            read += 1;
            if let Some(why) = refusal(&words) {
                wrong.push(format!("{}: {}\n{why}", path.display(), words.join(" ")));
            }
        }
    }
    assert!(read > 250, "only {read} command lines were found");
    assert!(wrong.is_empty(), "{} of {read}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_line_is_read_as_a_shell_reads_it() {
    let words = |line: &str| calls(line).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    for (line, found) in [
        ("TOKEN=$(enlist token create --json | jq -r .token)", vec!["enlist token create --json"]),
        ("sudo A=1 enlist-agent run --dir /a > log", vec!["enlist-agent run --dir /a"]),
        ("echo x | enlist policy set a 'b c'", vec!["enlist policy set a b c"]),
        ("apt install enlist", vec![]),
        ("runuser -u enlist -- enlist server check --dir DIR", vec!["enlist server check --dir DIR"]),
    ] {
        assert_eq!(words(line), found, "{line}");
    }
    let continued = shell_lines("```sh\nenlist a \\\n  b  # why\n```\nenlist c\n```toml\nenlist d\n```");
    assert_eq!(continued, ["enlist a b"]);
}

#[test]
fn a_line_that_lacks_a_flag_or_has_one_too_many_is_found() {
    let refused = |line: &str| refusal(&calls(line).remove(0)).is_some();
    assert!(refused("enlist node repair-bundle web-1"), "--out is missing");
    assert!(refused("enlist node drain"), "the node is missing");
    assert!(refused("enlist node drain web-1 --soon"), "there is no such flag");
    assert!(!refused("enlist node repair-bundle web-1 --out bundle.json"));
}
