//! The list of error codes, the registry's refusals and the pages of the documentation are one.

use api::code::{CODES, Code};
use lifecycle::registry::AlertKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn pages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

#[test]
fn every_word_stands_in_the_table_once() {
    for (position, code) in CODES.iter().enumerate() {
        let first = CODES.iter().position(|other| other.word == code.word);
        assert_eq!(first, Some(position), "{}", code.word);
        assert_eq!(Code::of(code.word), Some(*code));
        assert!(code.word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", code.word);
        assert!(!code.hint.is_empty() && !code.hint.contains('\n') && code.hint.is_ascii(), "{}", code.word);
    }
}

/// Read from the source, because a variant that nobody lists in a test would otherwise be missed.
#[test]
fn every_refusal_of_the_registry_has_a_code() {
    let source = include_str!("../../lifecycle/src/registry/rejection.rs");
    let words: Vec<&str> = source
        .lines()
        .filter_map(|line| {
            line.trim().strip_prefix("Rejection::")?.split_once("=> \"")?.1.strip_suffix("\",")
        })
        .collect();
    assert!(words.len() > 25, "the source is read wrongly: {words:?}");
    for word in words {
        assert!(Code::of(word).is_some(), "{word}");
    }
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let files = std::fs::read_dir(pages()).expect("docs/errors exists");
    let found: BTreeSet<String> = files
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        // The agent and the operator's program keep a page each of their own words there.
        .filter(|name| !["README.md", "agent.md", "cli.md"].contains(&name.as_str()))
        .collect();
    let expected: BTreeSet<String> = CODES.iter().map(|code| format!("{}.md", code.word)).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_page_begins_with_the_facts() {
    for code in CODES {
        let page =
            std::fs::read_to_string(pages().join(format!("{}.md", code.word))).expect("the page exists");
        let again = if code.retryable { "retryable" } else { "not retryable" };
        let head = format!(
            "# {}\n\nHTTP {}, gRPC {}, {again}. Remedy: {}.\n\n",
            code.word,
            code.status,
            code.grpc.name(),
            code.hint
        );
        assert!(page.starts_with(&head), "{}.md should begin with:\n{head}", code.word);
        assert!(page.len() > head.len() + 80, "{}.md says nothing of its own", code.word);
    }
}

#[test]
fn every_kind_of_alert_is_explained() {
    let page = std::fs::read_to_string(pages().join("../alerts.md")).expect("the page exists");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let found: Vec<&str> = rows.map(|(kind, _)| kind).collect();
    let expected: BTreeSet<&str> = AlertKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(found.len(), expected.len(), "one row each");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}
