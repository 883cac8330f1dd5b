//! Where standard output goes: to a terminal, with a width and a reader who lives now, or to a file or pipe, which gets
//! everything in full and every time exact.

use crate::clock;
use lifecycle::names::Timestamp;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use unicode_width::UnicodeWidthStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// What is "now" at a terminal.
    now: Option<Timestamp>,
    /// Unknown for some terminals: then nothing is left out.
    columns: Option<usize>,
}

impl Screen {
    pub fn of_stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    pub fn of_stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        if !stream.is_terminal() {
            return Self::none();
        }
        Self { now: Some(clock::now()), columns: ::agent::screen::terminal_columns(stream) }
    }

    /// No terminal.
    pub const fn none() -> Self {
        Self { now: None, columns: None }
    }

    #[cfg(test)]
    pub const fn terminal(columns: usize, now: Timestamp) -> Self {
        Self { now: Some(now), columns: Some(columns) }
    }

    pub fn is_terminal(self) -> bool {
        self.now.is_some()
    }

    pub fn columns(self) -> Option<usize> {
        self.columns
    }

    /// Sentences behind a lead of so many columns: at a terminal, what does not fit goes on below, indented. No word is
    /// broken, nor is a command in backticks, so that it can be copied.
    pub fn hang(self, lead: usize, indent: usize, text: &str) -> String {
        let Some(columns) = self.columns else { return text.to_owned() };
        let mut shown = String::new();
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                shown.push('\n');
            }
            let mut used = if number > 0 { 0 } else { lead };
            if used + line.width() <= columns {
                shown.push_str(line);
                continue;
            }
            let mut fresh = true;
            for piece in pieces(line) {
                let wide = piece.width();
                if !fresh && used + 1 + wide > columns {
                    shown.push('\n');
                    shown.extend(std::iter::repeat_n(' ', indent));
                    used = indent;
                } else if !fresh {
                    shown.push(' ');
                    used += 1;
                }
                shown.push_str(&piece);
                used += wide;
                fresh = false;
            }
        }
        shown
    }

    /// A value of a list: a time is relative at a terminal, everything else stays as it is.
    pub fn brief(self, value: &str) -> String {
        match (self.now, Timestamp::parse(value)) {
            (Some(now), Ok(at)) => relative(at, now),
            _ => value.to_owned(),
        }
    }

    /// A time with what it means now, such as `2026-11-16T20:00:00Z (5m ago)`.
    pub fn full(self, value: &str) -> String {
        match (self.now, Timestamp::parse(value)) {
            (Some(now), Ok(at)) => format!("{value} ({})", relative(at, now)),
            _ => value.to_owned(),
        }
    }

    /// The time of a line that appears now: the time of day at a terminal, else exact.
    pub fn stamp(self, value: &str) -> String {
        match (self.now, value.get(11..19)) {
            (Some(_), Some(time)) if Timestamp::parse(value).is_ok() => format!("{time}Z"),
            _ => value.to_owned(),
        }
    }
}

/// The words of a line, a command in backticks as one of them.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in line.split(' ') {
        match pieces.last_mut() {
            Some(command) if quoted => {
                command.push(' ');
                command.push_str(word);
            }
            _ => pieces.push(word.to_owned()),
        }
        quoted ^= word.matches('`').count() % 2 == 1;
    }
    pieces
}

/// One number and one unit, rounded down: `5s ago`, `in 23h`.
fn relative(at: Timestamp, now: Timestamp) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    let secs = now.since(at).secs().max(at.since(now).secs());
    let length = match secs {
        0 => return "now".to_owned(),
        _ if secs < 2 * MINUTE => format!("{secs}s"),
        _ if secs < 2 * HOUR => format!("{}m", secs / MINUTE),
        _ if secs < 2 * DAY => format!("{}h", secs / HOUR),
        _ if secs < 2 * YEAR => format!("{}d", secs / DAY),
        _ => format!("{}y", secs / YEAR),
    };
    if at < now { format!("{length} ago") } else { format!("in {length}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000_000);

    fn terminal() -> Screen {
        Screen::terminal(80, NOW)
    }

    #[test]
    fn a_sentence_is_wrapped_and_a_command_in_it_is_not() {
        let text = "one two `enlist ca show` three four";
        assert_eq!(Screen::none().hang(8, 4, text), text);
        let narrow = Screen::terminal(22, NOW);
        assert_eq!(narrow.hang(8, 4, text), "one two\n    `enlist ca show`\n    three four");
        assert_eq!(narrow.hang(0, 2, "short\nand a line that is long"), "short\nand a line that is\n  long");
        assert_eq!(
            narrow.hang(2, 2, "an unbreakable-word-wider-than-this"),
            "an\n  unbreakable-word-wider-than-this"
        );
    }

    #[test]
    fn a_terminal_shows_how_long_ago_and_a_pipe_shows_when() {
        let second = |offset: i64| Timestamp::from_secs(1_000_000_000_u64.saturating_add_signed(offset));
        let day = 86_400;
        for (offset, expected) in [
            (0, "now"),
            (-5, "5s ago"),
            (-119, "119s ago"),
            (-300, "5m ago"),
            (23 * 3600 + 1, "in 23h"),
            (-3 * day, "3d ago"),
            (90 * day, "in 90d"),
            (3653 * day, "in 10y"),
        ] {
            let at = second(offset).to_string();
            assert_eq!(terminal().brief(&at), expected);
            assert_eq!(terminal().full(&at), format!("{at} ({expected})"));
            assert_eq!((Screen::none().brief(&at), Screen::none().full(&at)), (at.clone(), at));
        }
    }

    #[test]
    fn what_is_no_time_stays_as_it_is() {
        for text in ["-", "", "active", "2026-11-16"] {
            assert_eq!((terminal().brief(text), terminal().full(text)), (text.to_owned(), text.to_owned()));
            assert_eq!(terminal().stamp(text), text);
        }
    }

    #[test]
    fn a_line_has_the_time_of_day_at_a_terminal() {
        let at = "2026-11-16T20:01:02.345Z";
        assert_eq!((terminal().stamp(at), Screen::none().stamp(at)), ("20:01:02Z".to_owned(), at.to_owned()));
    }
}
