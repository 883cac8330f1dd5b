//! How lines of the trail look: for programs byte for byte, for people when, what, who, and the fields that tell which.

use crate::audit::pairs;
use crate::error::CommandError;
use crate::output::Output;
use crate::table::{Table, Tone};
use api::rest::audit::AuditLine;
use serde_json::value::RawValue;

/// The fields that tell one event from another of its kind.
const TELLING: [&str; 12] = [
    "node_id",
    "token_id",
    "name",
    "tenant",
    "from_vcluster",
    "vcluster",
    "version",
    "key",
    "value",
    "reason",
    "count",
    "cert_serial",
];

/// One page; none of it is nothing.
pub fn text(lines: &[Box<RawValue>], output: Output) -> Result<String, CommandError> {
    if output.is_json() {
        // A line's hash is over these bytes.
        return Ok(lines.iter().map(|line| format!("{}\n", line.get())).collect());
    }
    if lines.is_empty() {
        return Ok(String::new());
    }
    let head = ["SEQ", "AT", "EVENT", "ACTOR", "DETAIL"];
    let mut table = Table::new(head, "").painting("EVENT").cutting("DETAIL").narrowing("ACTOR");
    for line in lines {
        let line: AuditLine = serde_json::from_str(line.get()).map_err(|error| {
            CommandError::fault("line_unreadable", format!("a line cannot be read: {error}"))
        })?;
        let cells = [&line.seq.to_string(), &line.at, &line.event_type, &line.actor, &detail(&line)];
        table.row(Tone::Plain, cells.map(String::as_str));
    }
    Ok(table.text(output.screen()))
}

fn detail(line: &AuditLine) -> String {
    // Everywhere else it would say the same on almost every line.
    let own: &[&'static str] = match line.event_type.split_once('.') {
        Some(("ca", _)) => &[
            "issuer",
            "issuers",
            "before",
            "use",
            "uses",
            "number",
            "forced",
            "left_behind",
            "without_new_root",
            "operators_left_behind",
            "denied_serials",
            "root_fingerprint",
            "issuer_fingerprint",
        ],
        Some(("cluster", _)) => &["replica_id", "peer"],
        Some(("session", _)) => &["user", "kind", "session_id", "exit_status"],
        Some(("alert", _)) => &["kind"],
        Some(("directory", "rollback_accepted")) => {
            &["directory_seq", "anchor_seq", "recovery_tokens_voided"]
        }
        // Who was refused may have no name: where it came from is all there is to go by.
        Some((_, "refused")) => &["network", "samples"],
        Some(("audit", "forwarding_gap")) => &["from", "to", "cause"],
        _ => &[],
    };
    pairs(line, own.iter().chain(&TELLING)).join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_replicas_name_the_replica() {
        let told = |text: &str| detail(&serde_json::from_str(text).expect("a line"));
        let common = r#""seq": 9, "at": "2026-01-01T00:00:00.000Z", "prev_hash": "", "hash": "", "actor": "local:root", "source": "unix"
            "#;
        let removed = format!(
            r#"{{{common}, "event_type": "cluster.removed", "replica_id": "2", "denied_serials": ["ab"]}}"#
        );
        assert_eq!(told(&removed), "replica_id=2");
        let joined = format!(
            r#"{{{common}, "event_type": "cluster.joined", "replica_id": "3", "peer": "cp-3:8444"}}"#
        );
        assert_eq!(told(&joined), "replica_id=3  peer=cp-3:8444");
    }
}
