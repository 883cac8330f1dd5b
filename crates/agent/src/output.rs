//! What goes to standard output and standard error, for people and for scripts.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::fault::Fault;
use crate::screen::{Columns, HumanText, harmless};

/// One document on standard output, with colours where there is a terminal and NO_COLOR does not forbid them. A reader
/// that has gone away is no fault of ours.
pub fn document<T: Serialize + HumanText>(document: &T, json: bool) {
    let text = if json { encoded(document) } else { document.text(Columns::stdout()) };
    _ = writeln!(anstream::stdout().lock(), "{text}");
}

/// The one error, on standard error.
pub fn error(fault: &Fault, json: bool) {
    #[derive(Serialize)]
    struct FaultDocument<'a> {
        error: &'a Fault,
    }
    let text = if json { encoded(&FaultDocument { error: fault }) } else { fault.text(Columns::stderr()) };
    _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// One line for a person at a terminal, while a command goes on.
pub fn notice(text: &str) {
    let text = Columns::stderr().hang("", 2, &harmless(text));
    _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Whether a person reads standard output.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Bytes made by a generator, as they are.
pub fn raw(bytes: &[u8]) {
    _ = io::stdout().lock().write_all(bytes);
}

/// These are plain structures of texts and numbers, so the fallback is never seen.
fn encoded(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()))
}
