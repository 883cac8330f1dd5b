//! The lines of a hosts file that are ours: a block between two marks. Everything else in the file is somebody else's
//! and stays as it is, to the byte.

use std::net::IpAddr;

use crate::config::hosts::Hosts;

const BEGIN: &str = "# BEGIN enlist-agent";
const END: &str = "# END enlist-agent";
const NOTE: &str = "# Kept by `enlist-agent`: change [hosts] in agent.toml instead.";

/// How a name was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostsEntry {
    Missing,
    /// In our block, with another address.
    Changed(String),
    /// Nobody wants it in our block any more.
    Unwanted(String),
    /// Outside our block, with another address. It is left alone, since somebody wrote it there.
    Taken(String),
}

/// What a file should be, and in which names it differs from that.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    pub text: Vec<u8>,
    pub names: Vec<(String, HostsEntry)>,
}

/// `owner` tells the blocks of several agents on one host apart.
pub fn settle(text: &[u8], owner: &str, wanted: &Hosts) -> Settled {
    let (begin, end) = (mark(BEGIN, owner), mark(END, owner));
    let parts = split(text, &begin, &end);
    let outside = pairs(parts.before.iter().chain(&parts.after).copied());
    let inside = pairs(parts.inside.iter().copied());
    let mut names = Vec::new();
    let mut block = Vec::new();
    for (name, address) in wanted {
        let elsewhere: Vec<&str> = addresses(&outside, name);
        if elsewhere.iter().any(|found| is(found, *address)) {
            continue;
        }
        let ours = addresses(&inside, name);
        if !elsewhere.is_empty() {
            names.push((name.clone(), HostsEntry::Taken(elsewhere.join(", "))));
            // What stood here before somebody else wrote theirs goes on to stand.
            if ours.iter().any(|found| is(found, *address)) {
                block.push(format!("{address} {name}"));
            }
            continue;
        }
        block.push(format!("{address} {name}"));
        match ours.as_slice() {
            [] => names.push((name.clone(), HostsEntry::Missing)),
            [one] if is(one, *address) => {}
            found => names.push((name.clone(), HostsEntry::Changed(found.join(", ")))),
        }
    }
    for (name, address) in &inside {
        if !wanted.contains_key(name) {
            names.push((name.clone(), HostsEntry::Unwanted(address.clone())));
        }
    }
    Settled { text: parts.with(&block, &begin, &end), names }
}

/// A file's lines, with their line breaks, around our block.
struct BlockLines<'a> {
    before: Vec<&'a [u8]>,
    inside: Vec<&'a [u8]>,
    after: Vec<&'a [u8]>,
}

/// A begin without an end is only a stray line: what follows it may be somebody else's. A second block goes.
fn split<'a>(text: &'a [u8], begin: &str, end: &str) -> BlockLines<'a> {
    let mut parts = BlockLines { before: Vec::new(), inside: Vec::new(), after: Vec::new() };
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let is = |line: &[u8], mark: &str| line.trim_ascii() == mark.as_bytes();
    let (mut seen, mut rest) = (false, lines.as_slice());
    while let Some((line, behind)) = rest.split_first() {
        rest = behind;
        let outside = if seen { &mut parts.after } else { &mut parts.before };
        if !is(line, begin) {
            outside.push(line);
            continue;
        }
        let ends = behind.iter().position(|line| is(line, end));
        let again = behind.iter().position(|line| is(line, begin));
        if let Some(at) = ends.filter(|at| again.is_none_or(|again| *at < again)) {
            parts.inside.extend(behind.iter().take(at));
            rest = behind.get(at + 1..).unwrap_or_default();
            seen = true;
        }
    }
    parts
}

impl BlockLines<'_> {
    fn with(&self, block: &[String], begin: &str, end: &str) -> Vec<u8> {
        let mut text = self.before.concat();
        if !block.is_empty() {
            if text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            for line in [begin, NOTE].into_iter().chain(block.iter().map(String::as_str)).chain([end]) {
                text.extend_from_slice(line.as_bytes());
                text.push(b'\n');
            }
        }
        text.extend(self.after.concat());
        text
    }
}

/// Name and address of every mapping in these lines, names in lower case.
fn pairs<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for line in lines {
        let line = String::from_utf8_lossy(line);
        let plain = line.split('#').next().unwrap_or_default();
        let mut words = plain.split_ascii_whitespace();
        let Some(address) = words.next() else { continue };
        pairs.extend(words.map(|name| (name.to_ascii_lowercase(), address.to_owned())));
    }
    pairs
}

fn addresses<'a>(pairs: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    pairs.iter().filter(|(found, _)| found == name).map(|(_, address)| address.as_str()).collect()
}

fn is(text: &str, address: IpAddr) -> bool {
    text.parse() == Ok(address)
}

/// On one line, whatever the directory is called.
fn mark(word: &str, owner: &str) -> String {
    let owner: String = owner.chars().map(|sign| if sign.is_control() { '?' } else { sign }).collect();
    format!("{word} {owner}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "127.0.0.1 localhost\n# a note\n\n10.9.9.9\tother.example  Alias # x\n";

    fn hosts(pairs: &[(&str, &str)]) -> Hosts {
        pairs.iter().map(|(name, address)| ((*name).to_owned(), address.parse().unwrap())).collect()
    }

    fn settled(text: &str, wanted: &[(&str, &str)]) -> (String, Vec<(String, HostsEntry)>) {
        let settled = settle(text.as_bytes(), "/dir", &hosts(wanted));
        (String::from_utf8(settled.text).unwrap(), settled.names)
    }

    #[test]
    fn a_missing_name_is_added_and_a_second_time_changes_nothing() {
        let wanted = [("cp.example", "10.0.0.1"), ("t.example", "2001:db8::1")];
        let (text, names) = settled(OTHERS, &wanted);
        assert!(
            text.starts_with(OTHERS) && text.contains("10.0.0.1 cp.example\n2001:db8::1 t.example\n"),
            "{text}"
        );
        assert_eq!(names.len(), 2);
        assert_eq!(settled(&text, &wanted), (text.clone(), Vec::new()));
        assert_eq!(settled(&text, &[]).0, OTHERS, "no name, no block");
        assert_eq!(settled(OTHERS, &[]), (OTHERS.to_owned(), Vec::new()));
    }

    #[test]
    fn what_was_changed_in_the_block_is_put_right_in_its_place() {
        let wanted = [("cp.example", "10.0.0.1")];
        let right = format!("{}# the end", settled(OTHERS, &wanted).0);
        let wrong = right.replace("10.0.0.1 cp", "10.0.0.2 cp");
        let (text, names) = settled(&wrong, &wanted);
        assert_eq!(text, right);
        assert_eq!(names, [("cp.example".to_owned(), HostsEntry::Changed("10.0.0.2".to_owned()))]);
        let (_, names) = settled(&right, &[("b.example", "10.0.0.1")]);
        let unwanted = ("cp.example".to_owned(), HostsEntry::Unwanted("10.0.0.1".to_owned()));
        assert_eq!(names, [("b.example".to_owned(), HostsEntry::Missing), unwanted]);
    }

    #[test]
    fn a_name_that_somebody_else_maps_is_theirs() {
        let (text, names) = settled(OTHERS, &[("alias", "10.0.0.1")]);
        assert_eq!(text, OTHERS);
        assert_eq!(names, [("alias".to_owned(), HostsEntry::Taken("10.9.9.9".to_owned()))]);
        assert_eq!(settled(OTHERS, &[("alias", "10.9.9.9")]), (OTHERS.to_owned(), Vec::new()));
    }

    #[test]
    fn our_line_stays_when_somebody_else_maps_the_name_as_well() {
        let wanted = [("cp.example", "10.0.0.1")];
        let (ours, _) = settled(OTHERS, &wanted);
        let both = format!("{ours}10.6.6.6 cp.example\n");
        let taken = vec![("cp.example".to_owned(), HostsEntry::Taken("10.6.6.6".to_owned()))];
        assert_eq!(settled(&both, &wanted), (both.clone(), taken));
    }

    #[test]
    fn a_broken_block_costs_nobody_a_line() {
        let wanted = [("cp.example", "10.0.0.1")];
        let begin = format!("{OTHERS}# BEGIN enlist-agent /dir\n10.0.0.7 theirs\n");
        let (text, _) = settled(&begin, &wanted);
        assert!(text.contains("10.0.0.7 theirs\n"), "{text}");
        assert_eq!(settled(&text, &wanted), (text.clone(), Vec::new()));
        let twice = format!("{text}{}", settled("", &wanted).0);
        assert_eq!(settled(&twice, &wanted).0.matches("BEGIN").count(), 1);
    }

    #[test]
    fn other_agents_blocks_and_odd_bytes_stay() {
        let wanted = hosts(&[("cp.example", "10.0.0.1")]);
        let mut text = b"\xff\xfe no text\r\n".to_vec();
        text.extend(settle(b"", "/other", &hosts(&[("x.example", "10.0.0.3")])).text);
        text.extend(b"10.1.1.1 last");
        let settled = settle(&text, "/dir", &wanted);
        assert!(settled.text.starts_with(&text), "{}", String::from_utf8_lossy(&settled.text));
        assert_eq!(settle(&settled.text, "/dir", &wanted).names, []);
    }
}
