//! The agent's own codes, its source and their page are one.

#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use agent::code::CODES;

fn sources(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).expect("the source is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The words that stand first in the calls which name a trouble.
fn named(text: &str) -> Vec<&str> {
    let calls = ["Fault::usage(", "Fault::host(", ".say(", ".gone(", "Fault::new(Exit::Fault,"];
    let word = |call: &str, rest: &'_ str| -> Option<(usize, usize)> {
        let start = rest.len() - rest.trim_start().len();
        let quoted = rest.get(start..)?.strip_prefix('"')?;
        let end = quoted.find('"')?;
        let plain = quoted.get(..end)?.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        (plain && !call.is_empty()).then_some((start + 1, start + 1 + end))
    };
    let mut found = Vec::new();
    for call in calls {
        for (at, _) in text.match_indices(call) {
            let Some(rest) = text.get(at + call.len()..) else { continue };
            found.extend(word(call, rest).and_then(|(from, to)| rest.get(from..to)));
        }
    }
    found
}

#[test]
fn every_trouble_that_is_named_in_the_source_stands_in_the_table() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let texts: Vec<String> = files.iter().map(|path| fs::read_to_string(path).expect("text")).collect();
    let named: BTreeSet<&str> = texts.iter().flat_map(|text| named(text)).collect();
    assert!(named.len() > 20, "the source is read wrongly: {named:?}");
    let known: BTreeSet<&str> = CODES.iter().map(|code| code.word).collect();
    assert_eq!(known.len(), CODES.len(), "a word stands there twice");
    let missing: Vec<&&str> = named.difference(&known).collect();
    assert!(missing.is_empty(), "not in src/code.rs: {missing:?}");
}

#[test]
fn every_code_has_its_section_on_the_page_and_every_section_a_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors/agent.md");
    let page = fs::read_to_string(page).expect("the page exists");
    let mut sections: Vec<(&str, &str)> = Vec::new();
    for section in page.split("\n## ").skip(1) {
        sections.extend(section.split_once('\n'));
    }
    let words: Vec<&str> = sections.iter().map(|(word, _)| *word).collect();
    let expected: Vec<&str> = CODES.iter().map(|code| code.word).collect();
    assert_eq!(words, expected, "in the table's order");
    for (code, (_, text)) in CODES.iter().zip(&sections) {
        let head = format!("\nRemedy: {}.\n", code.remedy);
        assert!(text.starts_with(&head), "{} should begin with:{head}", code.word);
        assert!(text.len() > head.len() + 40, "{} says nothing of its own", code.word);
    }
}
