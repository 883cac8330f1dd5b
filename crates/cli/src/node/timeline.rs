//! `enlist node show ID --timeline`: what has happened to a node, oldest first.

use crate::audit::pairs;
use crate::error::CommandError;
use crate::output::Output;
use crate::table::{Table, Tone, or_dash};
use api::rest::audit::AuditLine;
use api::rest::page::{LIMIT_MAX, PageQuery};
use client::OperatorApi;
use client::rest::Path;
use serde_json::value::RawValue;

/// What tells one event from another of its kind.
const TELLING: [&str; 14] = [
    "kind",
    "detail",
    "reason",
    "class",
    "cert_serial",
    "not_after",
    "token_id",
    "recovery_token_id",
    "expires_at",
    "last_seen",
    "hardware",
    "from_vcluster",
    "vcluster",
    "version",
];

/// As JSON a line is shown byte for byte, page after page: its hash is over these bytes.
pub async fn run(operator: &OperatorApi, id: &str, output: Output) -> Result<(), CommandError> {
    let mut table = Table::new(["AT", "EVENT", "ACTOR", "SOURCE", "CORRELATION", "DETAIL"], "no events")
        .painting("EVENT")
        .cutting("DETAIL")
        .dropping(["CORRELATION", "SOURCE"]);
    let query = PageQuery { limit: Some(LIMIT_MAX), cursor: None };
    let path = Path::new("/v1/nodes").segment(id).segment("timeline").queries(&query)?;
    let mut pages = operator.pages::<Box<RawValue>>(path);
    while let Some(page) = pages.next().await? {
        if output.is_json() {
            output.verbatim(&page.iter().map(|line| format!("{}\n", line.get())).collect::<String>())?;
        } else {
            page.iter().try_for_each(|line| row(&mut table, line))?;
        }
    }
    if output.is_json() { Ok(()) } else { output.verbatim(&table.text(output.screen())) }
}

fn row(table: &mut Table, line: &RawValue) -> Result<(), CommandError> {
    let line: AuditLine = serde_json::from_str(line.get())
        .map_err(|error| CommandError::fault("line_unreadable", format!("audit line unreadable: {error}")))?;
    let tone = if line.event_type.starts_with("alert.raised") { Tone::Attention } else { Tone::Plain };
    let correlation = or_dash(line.correlation_id.as_deref());
    let cells = [
        &line.at,
        &line.event_type,
        &line.actor,
        &line.source,
        correlation,
        &pairs(&line, &TELLING).join(" "),
    ];
    table.row(tone, cells);
    Ok(())
}
