//! `enlist audit list`: page after page, so that a long trail needs no memory.

use crate::failure::Failure;
use crate::output::Output;
use crate::table::harmless;
use api::rest::audit::{AuditLine, AuditQuery};
use api::rest::page::{LIMIT_MAX, Page};
use client::Operator;
use client::rest::Path;
use serde_json::Value;
use serde_json::value::RawValue;

pub async fn run(operator: &Operator, mut query: AuditQuery, output: Output) -> Result<(), Failure> {
    query.limit = Some(LIMIT_MAX);
    loop {
        let page: Page<Box<RawValue>> = operator.get(&Path::new("/v1/audit").queries(&query)?).await?;
        let mut text = String::new();
        for line in &page.items {
            // As JSON a line is shown byte for byte: its hash is over these bytes.
            text.push_str(&if output.is_json() { line.get().to_owned() } else { human(line)? });
            text.push('\n');
        }
        output.verbatim(&text)?;
        match page.next_cursor {
            Some(next) if query.cursor.as_ref() != Some(&next) => query.cursor = Some(next),
            _ => return Ok(()),
        }
    }
}

/// When, what, who, and the fields that tell which.
fn human(line: &RawValue) -> Result<String, Failure> {
    let line: AuditLine = serde_json::from_str(line.get())
        .map_err(|error| Failure::fault("line_unreadable", format!("audit line unreadable: {error}")))?;
    let mut text = format!("{:>6}  {}  {:<25}  {}", line.seq, line.at, line.event_type, line.actor);
    for name in ["node_id", "token_id", "name", "tenant", "key", "value", "reason", "count", "cert_serial"] {
        let value = match line.fields.get(name) {
            Some(Value::String(value)) => value.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            _ => continue,
        };
        text.push_str(&format!("  {name}={value}"));
    }
    Ok(harmless(&text))
}
