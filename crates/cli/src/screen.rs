//! Where standard output goes: to a terminal, with a width and a reader who lives now, or to a file or pipe, which gets
//! everything in full and every time exact.

use crate::clock;
use lifecycle::names::Timestamp;
use std::io::IsTerminal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// What is "now" at a terminal.
    now: Option<Timestamp>,
    /// Unknown for some terminals: then nothing is left out.
    columns: Option<usize>,
}

impl Screen {
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self::none();
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        Self { now: Some(clock::now()), columns }
    }

    /// No terminal.
    pub const fn none() -> Self {
        Self { now: None, columns: None }
    }

    #[cfg(test)]
    pub const fn terminal(columns: usize, now: Timestamp) -> Self {
        Self { now: Some(now), columns: Some(columns) }
    }

    pub fn columns(self) -> Option<usize> {
        self.columns
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
