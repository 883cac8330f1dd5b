//! Which crate may use which. A wall that is only written down is not one.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on may panic")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Every arrow that is allowed, by package name. A crate may always use itself in its tests.
const ARROWS: &[(&str, &[&str])] = &[
    ("lifecycle", &[]),
    ("pki", &["lifecycle"]),
    ("api", &["lifecycle"]),
    ("journal", &["lifecycle"]),
    ("client", &["api", "pki", "lifecycle"]),
    ("enlist-agent", &["lifecycle", "pki", "api", "client"]),
    ("server", &["lifecycle", "pki", "api", "journal", "client"]),
    ("enlist", &["lifecycle", "pki", "api", "journal", "client", "server", "enlist-agent"]),
];

/// All that the rules may stand on: no I/O, no runtime, no clock, no chance, no cryptography.
const LIFECYCLE_MAY_USE: &[&str] = &["imbl", "serde", "serde_bytes", "thiserror"];

struct Dependency {
    from: String,
    to: String,
    /// Absent for a normal one, else `dev` or `build`.
    kind: Option<String>,
}

fn dependencies() -> Vec<Dependency> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let each = packages.iter().flat_map(|package| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        dependencies.iter().map(move |dependency| Dependency {
            from: text(&package["name"]).expect("name"),
            to: text(&dependency["name"]).expect("name"),
            kind: text(&dependency["kind"]),
        })
    });
    each.collect()
}

#[test]
fn no_arrow_leads_where_none_is_drawn() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for Dependency { from, to, .. } in dependencies() {
        if arrows.contains_key(to.as_str()) && from != to {
            let allowed = arrows.get(from.as_str()).is_some_and(|allowed| allowed.contains(&to.as_str()));
            assert!(allowed, "{from} may not use {to}");
        }
        seen.insert(from);
    }
    // A crate that this list does not know could use anything.
    let known: BTreeSet<String> = arrows.keys().map(|&name| name.to_owned()).collect();
    assert_eq!(seen, known);
}

#[test]
fn the_rules_stand_on_nothing_that_acts() {
    for Dependency { from, to, kind } in dependencies() {
        if from == "lifecycle" && kind.as_deref() != Some("dev") {
            assert!(LIFECYCLE_MAY_USE.contains(&to.as_str()), "lifecycle may not use {to}");
        }
    }
}
