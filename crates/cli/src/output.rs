//! Standard output: for people, or as JSON with `--json`.

use crate::error::CommandError;
use crate::screen::Screen;
use crate::table::Table;
use serde::Serialize;
use std::io::{ErrorKind, Write};

#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    screen: Screen,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Self { json, screen: Screen::of_stdout() }
    }

    pub fn is_json(self) -> bool {
        self.json
    }

    /// Whether people look at it.
    pub fn is_at_terminal(self) -> bool {
        !self.json && self.screen.is_terminal()
    }

    /// What people look at.
    pub fn screen(self) -> Screen {
        self.screen
    }

    /// One thing.
    pub fn document<T: Serialize>(
        self,
        value: &T,
        human: impl FnOnce(&T) -> String,
    ) -> Result<(), CommandError> {
        if self.json { self.json_line(value) } else { write(&human(value)) }
    }

    /// Several of a kind: a table, or a line of JSON each.
    pub fn list<T: Serialize>(
        self,
        items: &[T],
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), CommandError> {
        if !self.json {
            return write(&table(items).text(self.screen));
        }
        let mut text = String::new();
        for item in items {
            text.push_str(&encode(item)?);
            text.push('\n');
        }
        write(&text)
    }

    /// What is the same for people and programs, such as PEM.
    pub fn verbatim(self, text: &str) -> Result<(), CommandError> {
        write(text)
    }

    fn json_line<T: Serialize>(self, value: &T) -> Result<(), CommandError> {
        write(&format!("{}\n", encode(value)?))
    }
}

fn encode<T: Serialize>(value: &T) -> Result<String, CommandError> {
    serde_json::to_string(value).map_err(|error| {
        CommandError::fault("json", format!("the result cannot be written as JSON: {error}"))
    })
}

/// Colour only where there is a terminal and NO_COLOR does not forbid it.
fn write(text: &str) -> Result<(), CommandError> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(CommandError::OutputClosed),
        Err(error) => Err(CommandError::fault("output", format!("standard output: {error}"))),
    }
}
