//! `enlist node show`: everything that is known of one node, for people. Nothing is said twice.

use super::{evidence, is_gone, label, state, tone};
use crate::fields::Fields;
use crate::screen::Screen;
use crate::table::{Table, Tone};
use anstyle::Style;
use api::rest::nodes::{AccountItem, HardwareFacts, NodeDetail, NodeHardware, NodeItem, NodeOverlay};

pub fn text(node: &NodeDetail, screen: Screen) -> String {
    let mut text = standing(node, screen).text_on(screen);
    let mut group = |title: &str, body: String| {
        let bold = Style::new().bold();
        text.push_str(&format!("\n{bold}{title}{bold:#}\n{body}"));
    };
    group("Identity", identity(node, screen).text_on(screen));
    if !node.sessions.is_empty() {
        group("Open sessions", sessions(node, screen).text(screen));
    }
    if !node.certificates.is_empty() {
        group("Certificates", certificates(node, screen).text(screen));
    }
    let host = host(node);
    if !host.is_empty() {
        group("Host", host.text_on(screen));
    }
    if let Some(report) = &node.evidence {
        group("Last report of the host", evidence::text(report, &node.item, screen));
    }
    if !node.alerts.is_empty() {
        group("Open alerts", alerts(node).text(screen));
    }
    text
}

/// What it is now, and who made it so.
fn standing(node: &NodeDetail, screen: Screen) -> Fields {
    let item = &node.item;
    let time = |at: &Option<String>| at.as_ref().map(|at| screen.full(at));
    let account = |account: &AccountItem| {
        format!("by {} at {}: {}", account.by, screen.full(&account.at), account.reason)
    };
    let refused = node.recovery.last_refused.as_ref();
    Fields::new()
        .with("node", &item.node_id)
        .painted("state", &state(item), tone(item))
        .with("connected", if item.connected { "yes" } else { "no" })
        .with_some("last seen", time(&item.last_seen).as_deref())
        .with("health", &health(node, screen))
        .with("schedulable", &schedulable(item))
        .with_some("drain until", time(&node.drain_by).as_deref())
        .with_some("renewal ordered", time(&node.rotation_ordered_at).as_deref())
        .with_some("ended", node.ended.as_ref().map(account).as_deref())
        .with_some("quarantined", node.quarantine.as_ref().map(account).as_deref())
        .with_some("recovery", without_recovery(node))
        .with_some(
            "recovery refused",
            refused.map(|last| format!("{} at {}", last.code, screen.full(&last.at))).as_deref(),
        )
}

/// Said of a node that has enrolled and keeps no recovery tokens.
fn without_recovery(node: &NodeDetail) -> Option<&'static str> {
    let without = node.item.enrolled_at.is_some() && !node.recovery.eligible && !is_gone(&node.item);
    without.then_some("not possible: enrolled without recovery")
}

fn identity(node: &NodeDetail, screen: Screen) -> Fields {
    let item = &node.item;
    Fields::new()
        .with_some("SPIFFE ID", item.spiffe_id.as_deref())
        .with("identity from", &item.identity_provider)
        .with("tenant", &item.tenant)
        .with_some("vCluster", vcluster(node))
        .with_some("configuration", configuration(node).as_deref())
        .with("profile", &item.profile)
        .with_some("labels", label::shown(&item.labels).as_deref())
        .with_some("enrolled", item.enrolled_at.as_ref().map(|at| screen.full(at)).as_deref())
        .with("generation", &item.generation.to_string())
}

/// In none it is in maintenance mode; of nodes that came by a token, perhaps of a fleet without vClusters, nothing is said.
fn vcluster(node: &NodeDetail) -> Option<&str> {
    let meant = node.registered_by.is_some().then_some("none (maintenance mode)");
    node.item.vcluster.as_deref().or(meant)
}

fn configuration(node: &NodeDetail) -> Option<String> {
    let (base, own) = (node.config.base_version, node.config.node_version);
    match (base, own) {
        (0, 0) => None,
        (base, 0) => Some(format!("version {base}")),
        (base, own) => Some(format!("version {base}, its own version {own}")),
    }
}

fn host(node: &NodeDetail) -> Fields {
    let facts = node.hardware.as_ref().map(|of| hardware(&of.facts)).filter(|facts| !facts.is_empty());
    let identity = |text: fn(&NodeHardware) -> Option<String>| node.hardware.as_ref().and_then(text);
    let macs = |of: &NodeHardware| (!of.macs.is_empty()).then(|| of.macs.join(", "));
    Fields::new()
        .with_some("MAC addresses", identity(macs).as_deref())
        .with_some("BMC serial", identity(|of| of.bmc_serial.clone()).as_deref())
        .with_some("system UUID", identity(|of| of.system_uuid.clone()).as_deref())
        .with_some("TPM key hash", identity(|of| of.tpm_ek_hash.clone()).as_deref())
        .with_some("registered by", node.registered_by.as_deref())
        .with_some("hostname", node.item.hostname.as_deref())
        .with_some("agent version", node.agent_version.as_deref())
        .with_some("hardware", facts.as_deref())
        .with_some("overlay address", node.overlay.address.as_deref())
        .with_some("underlay address", underlay(&node.overlay).as_deref())
        .with_some("overlay", overlay_state(&node.overlay).as_deref())
}

/// Of a node that has ended nothing is expected any more, so it is neither good nor bad. What an alert or the report
/// below tells in full is only named.
fn health(node: &NodeDetail, screen: Screen) -> String {
    let (item, health) = (&node.item, &node.item.health);
    let Some(reason) = &health.reason else {
        let gone = matches!(item.state.as_str(), "revoked" | "decommissioned");
        return (if gone { "-" } else { "good" }).to_owned();
    };
    let since = health.since.as_ref();
    if node.alerts.iter().any(|alert| alert.kind == *reason && Some(&alert.since) == since) {
        return format!("{reason}, see the open alerts");
    }
    let reported = node.evidence.as_ref().is_some_and(|report| report.class.as_ref() == Some(reason));
    // "Not heard since" a time that stands one line above.
    let known =
        |evidence: &String| item.last_seen.as_ref().is_some_and(|seen| evidence.contains(seen.as_str()));
    let evidence = match &health.evidence {
        Some(_) if reported => ", see the last report".to_owned(),
        Some(evidence) if !known(evidence) => format!(": {evidence}"),
        _ => String::new(),
    };
    let since = since.map(|since| format!(" since {}", screen.full(since)));
    format!("{reason}{}{evidence}", since.unwrap_or_default())
}

/// A state that stands above is reason enough without being named again.
fn schedulable(item: &NodeItem) -> String {
    let excluded = super::exclusions(item);
    if excluded.is_empty() {
        return "yes".to_owned();
    }
    let named = |reason: &&str| *reason != item.state && !["draining", "quarantined"].contains(reason);
    let others: Vec<&str> = excluded.into_iter().filter(named).collect();
    if others.is_empty() { "no".to_owned() } else { format!("no: {}", others.join(", ")) }
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

fn certificates(node: &NodeDetail, screen: Screen) -> Table {
    let mut table =
        Table::new(["CERTIFICATE", "STATUS", "UNTIL", "ISSUED", "ISSUER"], "").dropping(["ISSUER", "ISSUED"]);
    for item in &node.certificates {
        let tone = if item.status == "live" { Tone::Good } else { Tone::Gone };
        let (until, issued) = (screen.full(&item.not_after), screen.full(&item.issued_at));
        table.row(tone, [&item.serial, &item.status, &until, &issued, &item.issuer]);
    }
    table
}

fn sessions(node: &NodeDetail, screen: Screen) -> Table {
    let mut table = Table::new(["SESSION", "KIND", "USER", "SINCE"], "");
    for item in &node.sessions {
        let since = screen.full(&item.opened_at);
        table.row(Tone::Plain, [&item.session_id, &item.kind, &item.user, &since]);
    }
    table
}

fn alerts(node: &NodeDetail) -> Table {
    let head = ["ALERT", "SINCE", "COUNT", "DETAIL"];
    let mut table = Table::new(head, "").painting("ALERT").cutting("DETAIL");
    for item in &node.alerts {
        let tone = if item.acknowledged { Tone::Plain } else { Tone::Attention };
        table.row(tone, [&item.kind, &item.since, &item.count.to_string(), &item.detail]);
    }
    table
}

/// As the host says.
fn overlay_state(overlay: &NodeOverlay) -> Option<String> {
    let state = overlay.state.as_ref()?;
    Some(match (&overlay.reason, overlay.peers) {
        (Some(reason), _) => format!("{state} ({reason})"),
        (None, Some(peers)) => {
            format!("{state}, {peers} peers, revision {}", overlay.revision.unwrap_or_default())
        }
        (None, None) => state.clone(),
    })
}

fn underlay(overlay: &NodeOverlay) -> Option<String> {
    // A control plane of before names one of them.
    let all = || overlay.underlay_endpoints.join(", ");
    let endpoint = Some(all()).filter(|all| !all.is_empty()).or_else(|| overlay.underlay_endpoint.clone())?;
    Some(match overlay.underlay_proven {
        true => endpoint,
        false => format!("{endpoint} (the host says so; it was not seen there)"),
    })
}
