//! `enlist node show`: everything that is known of one node, for people.

use super::{evidence, state};
use crate::fields::Fields;
use crate::table::{Table, Tone};
use api::rest::nodes::{AccountItem, HardwareFacts, NodeDetail, NodeItem, RefusedItem};

pub fn text(node: &NodeDetail) -> String {
    let item = &node.item;
    let mut text = Fields::new()
        .with("node", &item.node_id)
        .with("state", &state(item))
        .with("tenant", &item.tenant)
        .with("profile", &item.profile)
        .with_some("vCluster", item.vcluster.as_deref())
        .with_some("SPIFFE id", item.spiffe_id.as_deref())
        .with_some("enrolled", item.enrolled_at.as_deref())
        .with_some("last seen", item.last_seen.as_deref())
        .with("connected", if node.connected { "yes" } else { "no" })
        .with_some("drained by", node.drain_by.as_deref())
        .with_some("renewal ordered", node.rotation_ordered_at.as_deref())
        .with("generation", &item.generation.to_string())
        .with("health", &health(item))
        .with("schedulable", &work(item))
        .with_some("ended", node.ended.as_ref().map(account).as_deref())
        .with_some("quarantine", node.quarantine.as_ref().map(account).as_deref())
        .with_some("recovery refused", node.recovery.last_refused.as_ref().map(refused).as_deref())
        .with_some("hostname", node.hostname.as_deref())
        .with_some("agent", node.agent_version.as_deref())
        .with_some("hardware", node.hardware.as_ref().map(hardware).as_deref())
        .with_some("overlay", node.overlay.address.as_deref())
        .with_some("underlay", node.overlay.underlay_endpoint.as_deref())
        .text();
    if let Some(said) = &node.evidence {
        text.push_str(&format!("\n{}", evidence::text(said)));
    }
    if !node.certificates.is_empty() {
        text.push_str(&format!("\n{}", certificates(node).text()));
    }
    if !node.alerts.is_empty() {
        text.push_str(&format!("\n{}", alerts(node).text()));
    }
    text
}

/// Of a node that has ended nothing is expected any more, so it is neither good nor bad.
fn health(item: &NodeItem) -> String {
    let gone = matches!(item.state.as_str(), "revoked" | "decommissioned");
    let health = &item.health;
    match (&health.reason, &health.since, &health.evidence) {
        (Some(reason), Some(since), Some(evidence)) => format!("{reason} since {since}: {evidence}"),
        (Some(reason), ..) => reason.clone(),
        _ => (if gone { "-" } else { "good" }).to_owned(),
    }
}

fn work(item: &NodeItem) -> String {
    if item.schedulable { "yes".to_owned() } else { format!("no: {}", item.excluded.join(", ")) }
}

fn account(account: &AccountItem) -> String {
    format!("by {} at {}: {}", account.by, account.at, account.reason)
}

fn refused(last: &RefusedItem) -> String {
    format!("{} at {}", last.code, last.at)
}

fn hardware(facts: &HardwareFacts) -> String {
    let mut parts = Vec::new();
    parts.extend(facts.arch.clone());
    parts.extend(facts.cpu_cores.map(|cores| format!("{cores} cores")));
    parts.extend(facts.memory_bytes.map(|bytes| format!("{} memory", size(bytes))));
    parts.extend(facts.disk_bytes.map(|bytes| format!("{} disk", size(bytes))));
    parts.join(", ")
}

/// Whole MiB or GiB: enough to tell machines apart.
pub fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    if bytes >= 10 * GIB { format!("{} GiB", bytes / GIB) } else { format!("{} MiB", bytes / MIB) }
}

fn certificates(node: &NodeDetail) -> Table {
    let mut table = Table::new(["CERTIFICATE", "STATUS", "ISSUED", "UNTIL", "ISSUER"], "");
    for item in &node.certificates {
        let tone = if item.status == "live" { Tone::Plain } else { Tone::Gone };
        table.row(tone, [&item.serial, &item.status, &item.issued_at, &item.not_after, &item.issuer]);
    }
    table
}

fn alerts(node: &NodeDetail) -> Table {
    let mut table = Table::new(["ALERT", "SINCE", "COUNT", "DETAIL"], "");
    for item in &node.alerts {
        let tone = if item.acknowledged { Tone::Plain } else { Tone::Attention };
        table.row(tone, [&item.kind, &item.since, &item.count.to_string(), &item.detail]);
    }
    table
}
