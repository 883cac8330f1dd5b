//! Some lines of the trail: between two numbers, about a node, of a kind, from a time on.

use super::handle::open;
use lifecycle::names::Timestamp;
use rusqlite::{Connection, params};
use serde::Deserialize;
use std::path::Path;

/// Which lines, and from which end.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only lines after this one.
    pub after: u64,
    /// Up to this one.
    pub until: u64,
    /// Only lines about this node.
    pub node: Option<String>,
    /// Only lines of this kind.
    pub event_type: Option<String>,
    /// Begin with the last one.
    pub newest_first: bool,
}

/// Looks through the text of every line in between instead of an index: an index would cost every change of the
/// registry, and this is asked now and then. The caller bounds how many lines that may be.
pub fn select(file: &Path, of: &Selection, limit: usize) -> Result<Vec<(u64, String)>, rusqlite::Error> {
    let connection = open(file)?;
    let order = if of.newest_first { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT seq, line FROM lines WHERE seq > ?1 AND seq <= ?2
         AND (?3 IS NULL OR instr(line, ?3) > 0) AND (?4 IS NULL OR instr(line, ?4) > 0)
         ORDER BY seq {order} LIMIT ?5"
    );
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let node = of.node.as_deref().map(|node| field("node_id", node));
    let event_type = of.event_type.as_deref().map(|name| field("event_type", name));
    let mut select = connection.prepare(&sql)?;
    let found = params![number(of.after), number(of.until), node, event_type, limit];
    select.query_map(found, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// How a line holds it. Inside another text of the line its quotes would stand behind backslashes.
fn field(name: &str, value: &str) -> String {
    format!(r#","{name}":{}"#, serde_json::Value::from(value))
}

/// The number of the first line at or after a time, or the one after the last: times never run backwards, so halving
/// finds it in a few steps.
pub fn first_since(file: &Path, at: Timestamp) -> Result<u64, rusqlite::Error> {
    let connection = open(file)?;
    let last: Option<u64> = connection.query_row("SELECT max(seq) FROM lines", [], |row| row.get(0))?;
    let (mut low, mut high) = (1, last.unwrap_or_default() + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match next(&connection, middle)? {
            Some((seq, line)) if is_before(&line, at) => low = seq + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The line with this number, or the one that follows if it is lost.
fn next(connection: &Connection, seq: u64) -> Result<Option<(u64, String)>, rusqlite::Error> {
    let mut select =
        connection.prepare_cached("SELECT seq, line FROM lines WHERE seq >= ? ORDER BY seq LIMIT 1")?;
    let mut rows = select.query([i64::try_from(seq).unwrap_or(i64::MAX)])?;
    rows.next()?.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
}

/// A line that cannot be read is not left out for it.
fn is_before(line: &str, at: Timestamp) -> bool {
    #[derive(Deserialize)]
    struct LineTime {
        at: String,
    }
    let read = serde_json::from_str::<LineTime>(line).ok().and_then(|line| Timestamp::parse(&line.at).ok());
    read.is_some_and(|written| written < at)
}
