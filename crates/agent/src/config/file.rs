//! Reads agent.toml. Every mistake is collected, so that one look is enough to correct them all.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use toml::de::DeTable;
use toml::{Table, Value};

use super::Values;
use super::keys::{KEYS, SettingKey};
use super::kind::ValueKind;
use crate::code::AgentCode;
use crate::fault::{Fault, Mistake};

pub const NAME: &str = "agent.toml";

/// What the file holds; nothing if there is none.
pub fn read(dir: &Path, mistakes: &mut Vec<Mistake>) -> Result<Values, Fault> {
    let path = dir.join(NAME);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(check(&text, mistakes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Values::new()),
        Err(error) => Err(Fault::usage(
            AgentCode::ConfigUnreadable,
            format!("{} cannot be read: {error}", path.display()),
            "make it a UTF-8 text file that this user may read",
        )),
    }
}

/// The known keys of a text with their values. What is wrong goes to `mistakes` and is left out.
pub fn check(text: &str, mistakes: &mut Vec<Mistake>) -> Values {
    let (_, errors) = DeTable::parse_recoverable(text);
    // Without the library's excerpt of the text: a proxy's password may stand there.
    let syntax = errors.iter().map(|error| {
        let start = error.span().map_or(0, |span| span.start);
        Mistake::new(format!("{NAME} line {}", line_of(text, start)), error.message())
    });
    let before = mistakes.len();
    mistakes.extend(syntax);
    let table = match text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => {
            // What only the second reading refuses, such as a number out of range.
            if mistakes.len() == before {
                mistakes.push(Mistake::new(NAME, error.message()));
            }
            return Values::new();
        }
    };
    let mut values = BTreeMap::new();
    collect(&table, "", &mut values, mistakes);
    values
}

fn collect(table: &Table, prefix: &str, values: &mut Values, mistakes: &mut Vec<Mistake>) {
    for (word, value) in table {
        let name = format!("{prefix}{word}");
        match (SettingKey::of(&name), value) {
            (Some(key), value) => match key.kind.complaint(value) {
                Some(complaint) => mistakes.push(Mistake::new(format!("{NAME} {name}"), complaint)),
                None => _ = values.insert(key.name, value.clone()),
            },
            (None, Value::Table(inner)) if is_section(&name) => {
                collect(inner, &format!("{name}."), values, mistakes);
            }
            (None, _) => mistakes.push(Mistake::new(format!("{NAME} {name}"), "unknown key")),
        }
    }
}

/// Whether some key lies below this name.
fn is_section(name: &str) -> bool {
    let below = |key: &SettingKey| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().any(|key| key.kind != ValueKind::Hosts && below(key))
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let mut mistakes = Vec::new();
        check(text, &mut mistakes);
        mistakes.into_iter().map(|mistake| format!("{}: {}", mistake.at, mistake.message)).collect()
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let text =
            "servr = 'https://a'\nca_pin = 'zz'\nstorage = 'tape'\n[overlay]\nbackend = 7\ncolour = 'red'\n";
        let found = complaints(text);
        assert_eq!(found.len(), 5, "{found:#?}");
        for at in ["servr", "ca_pin", "storage", "overlay.backend", "overlay.colour"] {
            assert!(found.iter().any(|line| line.starts_with(&format!("agent.toml {at}: "))), "{found:#?}");
        }
    }

    #[test]
    fn every_broken_line_is_named_and_none_is_quoted() {
        let found = complaints("server = \nproxy = 'hush\nca_file = 'x'\nserver2 == 1\n");
        assert!(found.len() >= 2, "{found:#?}");
        assert!(found.iter().all(|line| line.starts_with("agent.toml line ") && !line.contains("hush")));
    }

    #[test]
    fn the_documented_keys_are_known() {
        let text = "server = ['https://a', 'https://b']\nca_file = 'ca.pem'\non_renew = ['systemctl', 'reload']\n\
                    check_interval = '30s'\nballast_bytes = 1048576\nexit_on_revoked = true\noverlay.backend = 'off'\n\
                    [paths]\ntask_retry = '/a'\nruntime = '/b'\n[hosts]\n'cp.example' = '10.0.0.1'\n[files]\ncert = '/c'\n";
        assert_eq!(complaints(text), Vec::<String>::new());
    }

    #[test]
    fn a_text_that_toml_cannot_hold_is_a_mistake() {
        assert!(!complaints("ballast_bytes = 99999999999999999999\n").is_empty());
        assert!(!complaints("server = 'a'\nserver = 'b'\n").is_empty());
    }
}
