//! Lists for people: aligned columns, a bold head, and nothing that could move the cursor. At a terminal a row is one
//! line, whatever its width: the least important columns are left out first.

mod fit;

use crate::screen::Screen;
pub use ::agent::screen::harmless;
use anstyle::{AnsiColor, Style};
use fit::ColumnPlan;
use std::fmt::Write;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns that are painted unless a table names another one.
const PAINTED: [&str; 3] = ["STATE", "STATUS", "CLASS"];
/// Between two columns.
const GAP: usize = 2;

/// How a row's state stands out on a terminal.
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
    pub fn style(self) -> Style {
        match self {
            Tone::Plain => Style::new(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Attention => AnsiColor::Yellow.on_default(),
            Tone::Gone => Style::new().dimmed(),
        }
    }
}

pub struct Table {
    head: Vec<String>,
    rows: Vec<(Tone, Vec<String>)>,
    empty: &'static str,
    /// The column that a row's tone is about.
    painted: Option<usize>,
    /// Prose, which may be cut at its end.
    elastic: Option<usize>,
    /// Left out first, in this order; then the others, the rightmost first.
    expendable: Vec<usize>,
    /// Never left out, beside the first one and the painted one.
    kept: Option<usize>,
    /// Left out at a terminal where no row has anything there.
    omitted_blank: Vec<usize>,
    /// What else shows what there is no room for.
    elsewhere: Option<&'static str>,
    /// Shortened in its middle before anything is left out, and never left out.
    narrow: Option<usize>,
}

impl Table {
    /// `empty` is said instead of a head without rows.
    pub fn new<const COLUMNS: usize>(head: [&str; COLUMNS], empty: &'static str) -> Self {
        let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
        let painted = head.iter().position(|name| PAINTED.contains(&name.as_str()));
        Self {
            head,
            rows: Vec::new(),
            empty,
            painted,
            elastic: None,
            expendable: Vec::new(),
            kept: None,
            omitted_blank: Vec::new(),
            elsewhere: None,
            narrow: None,
        }
    }

    /// A column that is never left out.
    pub fn keeping(mut self, name: &str) -> Self {
        self.kept = self.column(name);
        self
    }

    /// The columns that are left out at a terminal where no row has anything there.
    pub fn omitting_blank<const COLUMNS: usize>(mut self, names: [&str; COLUMNS]) -> Self {
        self.omitted_blank = names.iter().filter_map(|name| self.column(name)).collect();
        self
    }

    /// The command that shows what there is no room for.
    pub fn seeing(mut self, command: &'static str) -> Self {
        self.elsewhere = Some(command);
        self
    }

    /// The column that shows a row's tone, and is never left out.
    pub fn painting(mut self, name: &str) -> Self {
        self.painted = self.column(name);
        self
    }

    /// The column that may be cut at its end, because it is prose.
    pub fn cutting(mut self, name: &str) -> Self {
        self.elastic = self.column(name);
        self
    }

    /// The column whose values are known by both their ends: where there is no room they are shortened, and stay.
    pub fn narrowing(mut self, name: &str) -> Self {
        self.narrow = self.column(name);
        self
    }

    /// The columns that are left out first where there is no room, in this order.
    pub fn dropping<const COLUMNS: usize>(mut self, names: [&str; COLUMNS]) -> Self {
        self.expendable = names.iter().filter_map(|name| self.column(name)).collect();
        self
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.head.iter().position(|head| head == name)
    }

    pub fn row<const COLUMNS: usize>(&mut self, tone: Tone, cells: [&str; COLUMNS]) {
        self.rows.push((tone, cells.into_iter().map(harmless).collect()));
    }

    /// On a terminal it fits, and times are relative to now; elsewhere everything is there, exactly.
    pub fn text(&self, screen: Screen) -> String {
        if self.rows.is_empty() {
            return format!("{}\n", self.empty);
        }
        let rows: Vec<(Tone, Vec<String>)> = self
            .rows
            .iter()
            .map(|(tone, cells)| (*tone, cells.iter().map(|cell| screen.brief(cell)).collect()))
            .collect();
        let plan = self.plan(&rows, screen);
        let bold = Style::new().bold();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{bold}{}{bold:#}", plan.line(&self.head, |_| Style::new()));
        for (tone, cells) in &rows {
            let painted = |column| if Some(column) == self.painted { tone.style() } else { Style::new() };
            let _ = writeln!(text, "{}", plan.line(cells, painted));
        }
        if let Some(columns) = screen.columns().filter(|_| !plan.dropped.is_empty()) {
            let names: Vec<&str> =
                plan.dropped.iter().filter_map(|column| self.head.get(*column)).map(String::as_str).collect();
            let elsewhere = self.elsewhere.map(|command| format!("`{command}`, ")).unwrap_or_default();
            let note =
                format!("(no room for {}: see {elsewhere}--json, or use a wider terminal)", names.join(", "));
            for line in screen.hang(0, 0, &note).lines() {
                let _ = writeln!(text, "{}", shortened(line, columns));
            }
        }
        text
    }

    fn plan(&self, rows: &[(Tone, Vec<String>)], screen: Screen) -> ColumnPlan {
        let widest = |(column, name): (usize, &String)| {
            let cells = rows.iter().filter_map(|(_, cells)| cells.get(column));
            if screen.is_terminal()
                && self.omitted_blank.contains(&column)
                && cells.clone().all(|cell| cell == "-")
            {
                return None;
            }
            Some(cells.map(|cell| cell.width()).max().unwrap_or_default().max(name.width()))
        };
        let natural: Vec<Option<usize>> = self.head.iter().enumerate().map(widest).collect();
        let rightmost = (0..natural.len()).rev().filter(|column| !self.expendable.contains(column));
        let order = self.expendable.iter().copied().chain(rightmost);
        let may_go =
            |column: &usize| *column != 0 && ![self.painted, self.kept, self.narrow].contains(&Some(*column));
        let order: Vec<usize> = order.filter(may_go).collect();
        ColumnPlan::new(natural, &order, (self.elastic, self.narrow), screen.columns())
    }
}

/// At most so many columns of a terminal, with an ellipsis at the end if something is missing.
pub fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let kept = beginning(text.chars(), columns.saturating_sub(1));
    format!("{}{}", kept.trim_end(), if columns > 0 { "…" } else { "" })
}

/// The same with the ellipsis in the middle.
fn shortened_within(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(1);
    let end = beginning(text.chars().rev(), room / 2);
    let begin = beginning(text.chars(), room - room / 2);
    format!("{begin}{}{}", if columns > 0 { "…" } else { "" }, end.chars().rev().collect::<String>())
}

/// As many characters as there is room for.
fn beginning(chars: impl Iterator<Item = char>, mut room: usize) -> String {
    let fits = |c: &char| {
        let left = room.checked_sub(c.width().unwrap_or_default());
        room = left.unwrap_or_default();
        left.is_some()
    };
    chars.take_while(fits).collect()
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
mod tests;
