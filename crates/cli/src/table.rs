//! Lists for people: aligned columns, a bold head on a terminal, and nothing that could move the cursor.

use anstyle::{AnsiColor, Style};
use comfy_table::presets::NOTHING;
use lifecycle::names::is_steering;
use std::fmt::Write;

/// How a row stands out on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    /// All is well.
    Good,
    /// Someone should look.
    Attention,
    /// Over and done.
    Gone,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Attention => AnsiColor::Yellow.on_default(),
            Tone::Gone => Style::new().dimmed(),
        }
    }
}

pub struct Table {
    inner: comfy_table::Table,
    tones: Vec<Tone>,
    empty: &'static str,
}

impl Table {
    /// `empty` is said instead of a head without rows.
    pub fn new<const COLUMNS: usize>(head: [&str; COLUMNS], empty: &'static str) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_preset(NOTHING).set_header(head);
        Self { inner, tones: Vec::new(), empty }
    }

    pub fn row<const COLUMNS: usize>(&mut self, tone: Tone, cells: [&str; COLUMNS]) {
        self.inner.add_row(cells.map(harmless));
        self.tones.push(tone);
    }

    pub fn text(&self) -> String {
        if self.tones.is_empty() {
            return format!("{}\n", self.empty);
        }
        let head = std::iter::once(Style::new().bold());
        let styles = head.chain(self.tones.iter().map(|tone| tone.style()));
        let mut text = String::new();
        for (line, style) in self.inner.lines().zip(styles) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{style}{}{style:#}", line.strip_prefix(' ').unwrap_or(&line).trim_end());
        }
        text
    }
}

/// A value from elsewhere as one line of text: what steers a terminal could rewrite what it shows.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if is_steering(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The same where several lines are meant.
pub fn harmless_lines(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

/// What is not there, in a cell.
pub fn or_dash(value: Option<&str>) -> &str {
    value.unwrap_or("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_values_stay_in_their_cells() {
        let mut table = Table::new(["NODE", "STATE"], "no nodes");
        assert_eq!(table.text(), "no nodes\n");
        table.row(Tone::Plain, ["a-long-name", "active"]);
        table.row(Tone::Plain, ["b\u{1b}[2J", "x\ny"]);
        let text = anstream::adapter::strip_str(&table.text()).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(harmless("a\u{202e}b\u{2028}c\u{2066}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(lines, ["NODE         STATE", "a-long-name  active", "b\u{fffd}[2J        x\u{fffd}y"]);
    }
}
