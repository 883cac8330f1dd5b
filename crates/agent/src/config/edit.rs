//! Changes a few keys of agent.toml and leaves every other byte, comments included, as it was.

use std::ops::Range;

use toml::de::DeTable;
use toml::{Table, Value};

/// One top-level key's new value, or none to take the key out.
pub type KeyEdit = (&'static str, Option<Value>);

/// The new text; nothing if it could not be done without touching something else.
pub fn apply(text: &str, changes: &[KeyEdit]) -> Option<String> {
    let mut wanted: Table = text.parse().ok()?;
    let mut edited = text.to_owned();
    for (key, value) in changes {
        match value {
            Some(value) => {
                let same = wanted.insert((*key).to_owned(), value.clone()).as_ref() == Some(value);
                if !same {
                    edited = set(&edited, key, value)?;
                }
            }
            None if wanted.remove(*key).is_some() => edited = remove(&edited, key)?,
            None => {}
        }
    }
    // The proof that nothing else has changed its meaning.
    (edited.parse::<Table>().ok()? == wanted).then_some(edited)
}

fn set(text: &str, key: &str, value: &Value) -> Option<String> {
    let line = format!("{key} = {value}");
    if let Some(span) = place(text, key)? {
        return Some(format!("{}{line}{}", text.get(..span.start)?, text.get(span.end..)?));
    }
    let at = end_of_line(text, last_plain_key(text)?);
    let (before, after) = (text.get(..at)?, text.get(at..)?);
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    Some(format!("{before}{gap}{line}\n{after}"))
}

/// Takes the whole line, with a comment behind the value.
fn remove(text: &str, key: &str) -> Option<String> {
    let Some(span) = place(text, key)? else { return Some(text.to_owned()) };
    let start = text.get(..span.start)?.rfind('\n').map_or(0, |found| found + 1);
    Some(format!("{}{}", text.get(..start)?, text.get(end_of_line(text, span.end)..)?))
}

/// From the key's first byte to its value's last.
fn place(text: &str, key: &str) -> Option<Option<Range<usize>>> {
    let parsed = DeTable::parse(text).ok()?;
    let found = parsed.get_ref().iter().find(|(name, _)| name.get_ref().as_ref() == key);
    Some(found.map(|(name, value)| name.span().start..value.span().end))
}

/// Where the last key before any table ends; a new key belongs behind it, or it would fall into a table.
fn last_plain_key(text: &str) -> Option<usize> {
    let parsed = DeTable::parse(text).ok()?;
    let plain = parsed.get_ref().values().filter(|value| !value.get_ref().is_table());
    Some(plain.map(|value| value.span().end).max().unwrap_or(0))
}

/// Just behind the line break; a place at the very beginning stays there.
fn end_of_line(text: &str, at: usize) -> usize {
    if at == 0 {
        return 0;
    }
    let rest = text.get(at..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |found| at + found + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    fn list(items: &[&str]) -> Value {
        Value::Array(items.iter().map(|item| text(item)).collect())
    }

    #[test]
    fn other_keys_and_comments_are_kept_to_the_byte() {
        let before = "# ours\nserver = [ # first\n  'https://old',\n] # where\ncheck_interval = '30s'   # often\n\n\
                      # names\n[hosts]\nserver = '10.0.0.1'\n";
        let after =
            apply(before, &[("server", Some(list(&["https://new"]))), ("ca_file", Some(text("/ca.pem")))]);
        assert_eq!(
            after.unwrap(),
            "# ours\nserver = [\"https://new\"] # where\ncheck_interval = '30s'   # often\nca_file = \"/ca.pem\"\n\n\
             # names\n[hosts]\nserver = '10.0.0.1'\n"
        );
    }

    #[test]
    fn a_key_can_be_taken_out() {
        let before = "ca_file = '/old.pem' # gone\nproxy = 'p'\n";
        let after = apply(before, &[("ca_file", None), ("ca_pin", None)]).unwrap();
        assert_eq!(after, "proxy = 'p'\n");
    }

    #[test]
    fn keys_land_before_the_first_table() {
        for before in
            ["", "# note\n", "[hosts]\na = 'b'", "overlay.backend = 'off'\n[paths]\n", "proxy = 'p'"]
        {
            let after = apply(before, &[("server", Some(list(&["https://a"])))]).unwrap();
            assert!(after.contains(before), "{after}");
            let table: Table = after.parse().unwrap();
            assert_eq!(table.get("server"), Some(&list(&["https://a"])), "{after}");
        }
    }

    #[test]
    fn what_is_right_already_is_not_touched() {
        let before = "server=['https://a']#x";
        assert_eq!(apply(before, &[("server", Some(list(&["https://a"])))]).unwrap(), before);
    }

    #[test]
    fn a_text_inside_a_text_is_no_key() {
        let before = "proxy = '''\nserver = 'no'\n'''\n";
        let after = apply(before, &[("server", Some(list(&["https://a"])))]).unwrap();
        assert!(after.starts_with(before), "{after}");
    }
}
