//! One name for one thing: a type of this workspace is called what no other is.

#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Read only qualified by their module: what clap derives from.
const REPEATED: &[&str] = &["Arguments", "Command", "CommandLine", "Family"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && name != "generated" {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The type that a line declares at the edge of the page; what is indented is associated, or inside of a function.
fn declared(line: &str) -> Option<&str> {
    let line =
        line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map_or(line, |(_, rest)| rest);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let keywords = ["struct ", "enum ", "trait ", "type "];
    let name = keywords.iter().find_map(|keyword| line.strip_prefix(keyword))?;
    name.split(|letter: char| !letter.is_ascii_alphanumeric()).next()
}

#[test]
fn no_two_types_have_the_same_name() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&crates).expect("the crates") {
        let source = entry.expect("a crate").path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        for name in text.lines().filter_map(declared) {
            places.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    assert!(places.len() > 500, "only {} types were found", places.len());
    places.retain(|name, places| places.len() > 1 && !REPEATED.contains(&name.as_str()));
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn a_declaration_is_told_from_other_lines() {
    for (line, name) in [
        ("pub struct Token {", Some("Token")),
        ("pub(in crate::registry) enum Rotate {", Some("Rotate")),
        ("type Done = Result<(), Failure>;", Some("Done")),
        ("struct Known<'a> {", Some("Known")),
        ("    type Err = ParseError;", None),
        ("impl Token {", None),
    ] {
        assert_eq!(declared(line), name, "{line}");
    }
}
