//! `enlist policy show`: every value with its meaning, by what it is about.

use crate::screen::Screen;
use crate::table::harmless;
use api::rest::policy::PolicyItem;
use lifecycle::registry::Policy;
use std::collections::BTreeMap;

/// Below the key, its meaning.
const INDENT: usize = 6;

/// What the keys are about, in the order in which they are shown; a key belongs to the group with the longest beginning that it
/// has.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Who may enroll", &["attestors", "enroll", "token.", "hardware.", "failures.", "bootstrap."]),
    (
        "Nodes",
        &["liveness.", "clock.", "clone", "quarantine.", "recovery.", "renew.", "spire.", "stale_after"],
    ),
    ("Overlay", &["overlay.", "underlay."]),
    ("Certificates of nodes", &["profile."]),
    (
        "For the APIs and hosts of plfm, pact, probectl and TaskRun",
        &["agent.version_policy", "profile.plfm.", "profile.pact.", "profile.probectl.", "profile.taskrun"],
    ),
    (OTHER, &[""]),
];
/// Keys that this program does not know: the control plane may be newer.
const OTHER: &str = "Other";

pub fn text(items: &[PolicyItem], screen: Screen) -> String {
    let meanings: BTreeMap<String, &str> =
        Policy::reference().into_iter().map(|key| (key.key, key.help)).collect();
    let mut text = String::new();
    for (heading, _) in GROUPS {
        let group: Vec<&PolicyItem> = items.iter().filter(|item| group_of(&item.key) == heading).collect();
        if group.is_empty() {
            continue;
        }
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}{heading}\n"));
        for item in group {
            let value = if item.value.is_empty() { "(empty)" } else { &item.value };
            text.push_str(&format!("  {} = {}\n", harmless(&item.key), harmless(value)));
            if let Some(meaning) = meanings.get(&declared(&item.key)) {
                let blank = " ".repeat(INDENT);
                text.push_str(&format!("{blank}{}\n", screen.hang(INDENT, INDENT, meaning)));
            }
        }
    }
    text
}

fn group_of(key: &str) -> &'static str {
    let beginnings = GROUPS.iter().flat_map(|(heading, all)| all.iter().map(move |begin| (*heading, *begin)));
    let fitting = beginnings.filter(|(_, begin)| key.starts_with(begin));
    fitting.max_by_key(|(_, begin)| begin.len()).map_or(OTHER, |(heading, _)| heading)
}

/// The key as it is declared: of every profile the same.
fn declared(key: &str) -> String {
    match key.strip_prefix("profile.").and_then(|rest| rest.rsplit_once('.')) {
        Some((_, field)) => format!("profile.NAME.{field}"),
        None => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_meaning_and_a_group_and_none_is_left_out() {
        let list = Policy::default().list();
        let items: Vec<PolicyItem> = list.into_iter().map(|(key, value)| PolicyItem { key, value }).collect();
        let text = text(&items, Screen::none());
        assert!(!text.contains(OTHER), "{text}");
        for item in &items {
            assert!(text.contains(&format!("  {} = ", item.key)), "{}: {text}", item.key);
        }
        let lines: Vec<&str> = text.lines().collect();
        let bare = lines.windows(2).find(|pair| pair[0].contains(" = ") && !pair[1].starts_with("      "));
        assert_eq!(bare, None, "a key without a meaning");
        assert!(text.contains("attestors.require = (empty)\n"), "{text}");
        let foreign = text.split("For the APIs and hosts of plfm").nth(1).unwrap_or_default();
        assert!(
            foreign.contains("profile.taskrun-prod.cn") && !foreign.contains("profile.default"),
            "{text}"
        );
    }
}
