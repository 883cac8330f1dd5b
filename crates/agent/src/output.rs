//! What goes to standard output and standard error, for people and for scripts.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::fault::Fault;

/// One document on standard output. A reader that has gone away is no fault of ours.
pub fn document<T: Serialize + Display>(document: &T, json: bool) {
    let text = if json { encoded(document) } else { document.to_string() };
    _ = writeln!(io::stdout().lock(), "{text}");
}

/// The one error, on standard error.
pub fn error(fault: &Fault, json: bool) {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a Fault,
    }
    let text = if json { encoded(&Body { error: fault }) } else { fault.to_string() };
    _ = writeln!(io::stderr().lock(), "{text}");
}

/// Bytes made by a generator, as they are.
pub fn raw(bytes: &[u8]) {
    _ = io::stdout().lock().write_all(bytes);
}

/// These are plain structures of texts and numbers, so the fallback is never seen.
fn encoded(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":{:?}}}", error.to_string()))
}
