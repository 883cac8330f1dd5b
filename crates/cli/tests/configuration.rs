//! The tables of keys in docs/ are made from the declarations of the keys. `UPDATE_GOLDEN=1` rewrites them.

#![expect(clippy::expect_used, reason = "a page that cannot be read fails the test")]

use agent::config::keys::{KEYS, SettingKey};
use lifecycle::registry::Policy;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Tests of one page must not write it at the same time.
static PAGES: Mutex<()> = Mutex::new(());

/// Holds a table of a page, between its two marks, against what the declarations say.
fn check(page: &str, mark: &str, header: &[&str], rows: &[Vec<String>]) {
    let _alone = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let there = std::fs::read_to_string(&path).expect("the page can be read");
    let (first, last) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->\n"));
    let (before, rest) = there.split_once(&first).expect("the table's first mark");
    let (_, after) = rest.split_once(&last).expect("the table's last mark");
    let page = format!("{before}{first}{}{last}{after}", table(header, rows));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).expect("the page can be read");
    let command = "UPDATE_GOLDEN=1 cargo test -p enlist --test configuration";
    assert!(there == page, "{} is out of date: {command}", path.display());
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    // A bar would end the cell.
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let header: Vec<String> = header.iter().map(|word| (*word).to_owned()).collect();
    let rule = format!("|{}\n", "---|".repeat(header.len()));
    row(&header) + &rule + &rows.iter().map(|cells| row(cells)).collect::<String>()
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn the_page_has_every_policy_key() {
    let row = |key: lifecycle::registry::PolicyKeyReference| {
        vec![code(&key.key), key.help.to_owned(), key.accepts, code(&key.default)]
    };
    let rows: Vec<_> = Policy::reference().into_iter().map(row).collect();
    check("configuration.md", "policy keys", &["key", "meaning", "value", "default"], &rows);
}

#[test]
fn the_page_has_every_key_of_the_control_planes_configuration() {
    let row = |key: server::config::ConfigKeyReference| {
        vec![code(&key.key), key.help.to_owned(), key.accepts, key.default]
    };
    let rows: Vec<_> = server::config::reference().into_iter().map(row).collect();
    check("configuration.md", "keys of enlist.toml", &["key", "meaning", "value", "default"], &rows);
}

#[test]
fn the_page_has_every_key_of_the_agents_configuration() {
    let row = |key: &SettingKey| {
        let default = key.default_text().map(code).unwrap_or_default();
        vec![code(key.name), default, key.kind.expected(), key.help().to_owned()]
    };
    let rows: Vec<_> = KEYS.iter().map(row).collect();
    check("agent.md", "keys of agent.toml", &["key", "default", "value", "meaning"], &rows);
}

#[test]
fn the_page_has_every_variable_of_another_system() {
    let row = |theirs: &str, ours: &str| vec![code(theirs), code(ours)];
    let [own, foreign @ ..] = agent::config::TOKENS;
    let tokens = foreign.iter().map(|theirs| row(theirs, own));
    let keys = KEYS.iter().filter_map(|key| Some(row(key.foreign_variable?, key.name)));
    let rows: Vec<_> = tokens.chain(keys).collect();
    check("agent.md", "variables of other systems", &["variable", "means"], &rows);
}
