//! One thing for people: its fields, a line each.

use crate::screen::Screen;
use crate::table::{Tone, harmless};
use anstyle::Style;
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// Before a label, and between it and its value.
const INDENT: usize = 2;

#[derive(Default)]
pub struct Fields(Vec<(&'static str, String, Tone)>);

impl Fields {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with(self, label: &'static str, value: &str) -> Self {
        self.painted(label, value, Tone::Plain)
    }

    /// A state, in its colour.
    pub fn painted(mut self, label: &'static str, value: &str, tone: Tone) -> Self {
        self.0.push((label, harmless(value), tone));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Left out when there is nothing to say.
    pub fn with_some(self, label: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(label, value),
            None => self,
        }
    }

    pub fn text(&self) -> String {
        self.text_on(Screen::none())
    }

    /// The same for a terminal: a value that is too long for its line goes on below itself, and one that is too long
    /// for any such line begins further left. A word is never broken, so that it can be copied.
    pub fn text_on(&self, screen: Screen) -> String {
        let width = self.0.iter().map(|(label, ..)| label.len()).max().unwrap_or_default();
        let indent = width + 2 * INDENT;
        let room = screen.columns().map(|columns| columns.saturating_sub(indent));
        let bold = Style::new().bold();
        let mut text = String::new();
        for (label, value, tone) in &self.0 {
            let paint = tone.style();
            let value = room.map_or_else(|| value.clone(), |room| wrapped(value, room, indent));
            // Writing to a string cannot fail.
            let _ = match value.strip_prefix('\n') {
                Some(below) => writeln!(text, "  {bold}{label}{bold:#}\n{paint}{below}{paint:#}"),
                None => writeln!(text, "  {bold}{label:width$}{bold:#}  {paint}{value}{paint:#}"),
            };
        }
        text
    }
}

fn wrapped(value: &str, room: usize, indent: usize) -> String {
    let longest = value.split(' ').map(UnicodeWidthStr::width).max().unwrap_or_default();
    let further_left = longest > room && indent > 2 * INDENT;
    let (room, indent) = if further_left { (room + indent - 2 * INDENT, 2 * INDENT) } else { (room, indent) };
    let mut text = String::new();
    if further_left {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', indent));
    }
    let mut used = 0;
    for word in value.split(' ') {
        let wide = word.width();
        if used > 0 && used + 1 + wide > room {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        } else if used > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += wide;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::Timestamp;

    #[test]
    fn a_long_value_goes_on_below_itself_and_no_word_is_broken() {
        let fields = Fields::new().with("a", "one two three").with("long", "abcdefghijklmnopqrstuvwxyz x");
        let plain = |screen| anstream::adapter::strip_str(&fields.text_on(screen)).to_string();
        assert_eq!(plain(Screen::none()), "  a     one two three\n  long  abcdefghijklmnopqrstuvwxyz x\n");
        let narrow = plain(Screen::terminal(16, Timestamp::from_secs(1)));
        let expected = "  a     one two\n        three\n  long\n    abcdefghijklmnopqrstuvwxyz\n    x\n";
        assert_eq!(narrow, expected);
    }
}
