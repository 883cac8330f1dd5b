//! `enlist audit list`: page after page, so that a long trail needs no memory; with --limit the newest of it.

mod line;
mod names;

use crate::error::CommandError;
use crate::node::named;
use crate::output::Output;
use api::rest::audit::AuditQuery;
use api::rest::page::LIMIT_MAX;
use client::OperatorApi;
use client::rest::{Pages, Path};
use lifecycle::names::{Malformed, Span, Timestamp};
use serde_json::value::RawValue;

/// Lines that --limit may ask for: they are held in memory, because they come newest first.
const NEWEST_MOST: u32 = 100_000;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only lines about this node
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Only lines of this event, such as host.enrolled
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only lines from then on: a duration before now (90s, 15m, 1h, 7d) or a time (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<String>,
    /// Only the newest N lines; they too are printed oldest first [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(NEWEST_MOST)))]
    limit: Option<u32>,
}

pub async fn run(operator: &OperatorApi, arguments: Arguments, output: Output) -> Result<(), CommandError> {
    let Arguments { node, event, since, limit } = arguments;
    let node = match node {
        Some(name) => Some(named::id(operator, name).await?),
        None => None,
    };
    let query = AuditQuery { node, event_type: event.clone(), since, ..AuditQuery::default() };
    let found = match limit.and_then(|limit| usize::try_from(limit).ok()) {
        None => all(operator, query, output).await?,
        Some(limit) => newest(operator, query, limit, output).await?,
    };
    match event {
        // A name that no control plane of this version writes is a mistake, unless there are such lines after all.
        Some(event) if !found => names::check(&event)?,
        _ => {}
    }
    if found || output.is_json() { Ok(()) } else { output.verbatim("no lines of the audit trail match\n") }
}

/// Every line, printed as it comes. Whether there was any.
async fn all(operator: &OperatorApi, mut query: AuditQuery, output: Output) -> Result<bool, CommandError> {
    query.limit = Some(LIMIT_MAX);
    let mut pages = pages(operator, &query)?;
    let mut found = false;
    while let Some(lines) = pages.next().await? {
        found |= !lines.is_empty();
        output.verbatim(&line::text(&lines, output)?)?;
    }
    Ok(found)
}

/// From the end of the trail backwards until there are enough, then the other way round.
async fn newest(
    operator: &OperatorApi,
    mut query: AuditQuery,
    limit: usize,
    output: Output,
) -> Result<bool, CommandError> {
    query.order = Some("desc".to_owned());
    query.limit = Some(LIMIT_MAX.min(limit));
    let mut pages = pages(operator, &query)?;
    let mut lines = Vec::new();
    while lines.len() < limit
        && let Some(page) = pages.next().await?
    {
        lines.extend(page);
    }
    lines.truncate(limit);
    lines.reverse();
    output.verbatim(&line::text(&lines, output)?)?;
    Ok(!lines.is_empty())
}

fn pages<'a>(
    operator: &'a OperatorApi,
    query: &AuditQuery,
) -> Result<Pages<'a, Box<RawValue>>, CommandError> {
    Ok(operator.pages(Path::new("/v1/audit").queries(query)?))
}

/// As it is written, known to be one of both.
fn when(text: &str) -> Result<String, Malformed> {
    let span = Span::parse(text).map(drop);
    span.or_else(|_| Timestamp::parse(text).map(drop)).map(|()| text.to_owned()).map_err(|_| Malformed {
        what: "a time",
        expected: "a duration before now such as 90s, 15m, 1h or 7d, or a time such as 2026-01-31T12:00:00Z",
    })
}
