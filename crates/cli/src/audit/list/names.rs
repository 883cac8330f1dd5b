//! A name that no event has, and what may have been meant.

use crate::error::CommandError;
use lifecycle::registry::audit_event_names;

/// Names that are offered instead.
const OFFERED: usize = 5;

pub fn check(event: &str) -> Result<(), CommandError> {
    if audit_event_names().contains(&event) {
        return Ok(());
    }
    let near = near(event);
    let hint = match near.as_slice() {
        [] => format!("use one of {}", audit_event_names().into_iter().collect::<Vec<_>>().join(", ")),
        near => format!("did you mean {}?", near.join(", ")),
    };
    Err(CommandError::usage(format!("there is no audit event {event:?}"), hint))
}

/// Those that have a word in common with it: `enrolled` and `node.enrolled` mean `host.enrolled`.
fn near(event: &str) -> Vec<&'static str> {
    let split = |c: char| !c.is_ascii_alphanumeric();
    let words: Vec<String> =
        event.split(split).filter(|word| word.len() > 1).map(str::to_ascii_lowercase).collect();
    let shared = |name: &str| {
        let is_near = |word: &str| words.iter().filter(|asked| alike(asked, word)).count();
        name.split(split).map(is_near).sum::<usize>()
    };
    let mut found: Vec<(usize, &'static str)> = audit_event_names()
        .iter()
        .map(|name| (shared(name), *name))
        .filter(|(count, _)| *count > 0)
        .collect();
    found.sort_by_key(|(count, name)| (std::cmp::Reverse(*count), *name));
    found.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// `enroll`, `enrolled` and `enrolment` begin alike.
fn alike(asked: &str, word: &str) -> bool {
    let same = asked.chars().zip(word.chars()).take_while(|(one, other)| one == other).count();
    same >= 4 || asked == word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_accepted_and_another_one_is_told_what_is_near() {
        assert!(check("host.enrolled").is_ok());
        assert!(check("host.enroled").is_err());
        assert_eq!(near("host.enroled").first(), Some(&"host.enrolled"));
        assert_eq!(near("node.renewed"), ["certificate.renewed", "operator.renewed"]);
        assert!(near("zzz").is_empty());
        assert!(near("token").len() <= OFFERED);
    }
}
