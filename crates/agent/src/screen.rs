//! Text for people that fits the terminal it is written to. Through a pipe every line stays whole.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use lifecycle::names::is_steering;

pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const ATTENTION: Style = AnsiColor::Yellow.on_default();

/// Narrower than this nothing would be readable.
const LEAST: usize = 40;
const USUAL: usize = 80;
/// How far a word is indented that has no room where the others begin.
const LESS: usize = 4;

/// How a value is shown to people. Colours may be part of the text: whoever writes it strips them where they do not
/// belong.
pub trait HumanText {
    fn text(&self, screen: Columns) -> String;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    columns: Option<usize>,
}

impl Columns {
    /// Not a terminal.
    pub const PIPE: Columns = Columns { columns: None };

    pub fn stdout() -> Self {
        let stdout = io::stdout();
        if stdout.is_terminal() { Self::terminal(&stdout) } else { Self::PIPE }
    }

    pub fn stderr() -> Self {
        let stderr = io::stderr();
        if stderr.is_terminal() { Self::terminal(&stderr) } else { Self::PIPE }
    }

    pub fn of(columns: usize) -> Self {
        Self { columns: Some(columns.max(LEAST)) }
    }

    fn terminal(stream: &impl AsFd) -> Self {
        Self::of(terminal_columns(stream).unwrap_or(USUAL))
    }

    /// `lead` and `text` on one line; what does not fit goes on below, indented by as many columns, or hardly at all
    /// where a word needs the whole line. A word that is wider than that stays whole, so that it can be copied.
    pub fn hang(self, lead: &str, indent: usize, text: &str) -> String {
        let Some(columns) = self.columns else { return format!("{lead}{text}") };
        let mut shown = lead.to_owned();
        let (mut at, mut fresh) = (width(lead), true);
        for word in text.split(' ') {
            let gap = usize::from(!fresh);
            let wide = width(word);
            let indent = if indent + wide > columns { indent.min(LESS) } else { indent };
            let helps = !fresh || indent + wide <= columns;
            if at > indent && helps && at + gap + wide > columns {
                shown.truncate(shown.trim_end_matches(' ').len());
                shown.push('\n');
                shown.push_str(&" ".repeat(indent));
                at = indent;
            } else {
                shown.push_str(&" ".repeat(gap));
                at += gap;
            }
            shown.push_str(word);
            at += wide;
            fresh = false;
        }
        shown
    }

    /// A command line, ready to be copied: where it is broken, a shell reads on.
    pub fn command(self, indent: usize, words: &[String]) -> String {
        let mut shown = " ".repeat(indent);
        let mut at = indent;
        for (place, word) in words.iter().map(|word| quoted(word)).enumerate() {
            // Room for the backslash that may follow.
            let breaks = self.columns.is_some_and(|columns| at + 1 + width(&word) + 2 > columns);
            if place > 0 && breaks {
                shown.push_str(" \\\n");
                shown.push_str(&" ".repeat(indent + 2));
                at = indent + 2;
            } else if place > 0 {
                shown.push(' ');
                at += 1;
            }
            shown.push_str(&word);
            at += width(&word);
        }
        shown
    }
}

/// How wide a terminal is, where it says so.
pub fn terminal_columns(terminal: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// What came from elsewhere, without anything that steers a terminal.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if is_steering(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn width(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().chars().count()
}

/// As a shell reads it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@[]%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", harmless(word).replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_a_terminal_and_whole_in_a_pipe() {
        let text = "some words of which not all have room on the line that they begin on";
        assert_eq!(Columns::PIPE.hang("lead ", 5, text), format!("lead {text}"));
        let shown = Columns::of(40).hang("lead ", 5, text);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2, "{shown}");
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{shown}");
        assert!(lines.iter().skip(1).all(|line| line.starts_with("     ") && !line.starts_with("      ")));
    }

    #[test]
    fn colours_take_no_room_and_long_words_stay_whole() {
        let shown = Columns::of(40).hang("", 2, &format!("{BAD}{}{BAD:#} end", "x".repeat(36)));
        assert!(!shown.contains('\n'), "{shown:?}");
        let long = "y".repeat(60);
        assert!(Columns::of(40).hang("a ", 2, &format!("b {long} c")).contains(&long));
        let wide = "z".repeat(36);
        assert_eq!(Columns::of(40).hang("label      ", 11, &wide), format!("label\n    {wide}"));
    }

    #[test]
    fn a_broken_command_is_still_one_command() {
        let words = ["enlist-agent", "enroll", "--dir", "/a b", "--server", "https://cp.example:8443"];
        let words: Vec<String> = words.map(str::to_owned).into();
        let whole = "  enlist-agent enroll --dir '/a b' --server https://cp.example:8443";
        assert_eq!(Columns::PIPE.command(2, &words), whole);
        let shown = Columns::of(40).command(2, &words);
        assert!(shown.lines().count() > 1 && shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
        let joined: Vec<&str> = shown.split("\\\n").flat_map(str::split_whitespace).collect();
        assert_eq!(joined, whole.split_whitespace().collect::<Vec<_>>());
    }
}
