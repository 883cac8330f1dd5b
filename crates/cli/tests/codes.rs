//! The program's own codes are on a page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension() == Some("rs".as_ref()) && path.file_stem() != Some("tests".as_ref()) {
            found.push(path);
        }
    }
    Ok(())
}

/// The word in quotes with which the text begins, if it is one.
fn word(text: &str) -> Option<&str> {
    let (word, _) = text.strip_prefix('"')?.split_once('"')?;
    let fits = |c: char| c.is_ascii_lowercase() || c == '_';
    (!word.is_empty() && word.chars().all(fits)).then_some(word)
}

#[test]
fn every_code_of_a_command_is_on_the_page_in_order() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../../docs/errors/cli.md")).expect("the page exists");
    let listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(word, _)| word))
        .collect();
    assert!(listed.is_sorted() && listed.len() > 40, "{listed:?}");
    let mut files = Vec::new();
    sources(&here.join("src"), &mut files).expect("readable");
    let mut used = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).expect("readable");
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(");
        let named = text.split("CommandError::fault(").skip(1).filter_map(word);
        used.extend(named.map(str::to_owned));
        for after in text.split("Exit::").skip(1) {
            used.extend(after.split_once(", ").and_then(|(_, rest)| word(rest)).map(str::to_owned));
        }
        if text.contains("match error { RunError::") {
            used.extend(text.split("=> ").filter_map(word).map(str::to_owned));
        }
    }
    assert!(used.len() > 35, "the source is read wrongly: {used:?}");
    let missing: Vec<&String> = used.iter().filter(|word| !listed.contains(&word.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
