//! `enlist node`: the machines of the fleet.

pub mod act;
mod bulk;
mod evidence;
pub mod label;
pub mod named;
mod recovery;
pub mod register;
mod repair;
mod selection;
mod show;
mod timeline;
mod watch;

use crate::command_line::duration;
use crate::document_file;
use crate::error::CommandError;
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::nodes::{ImportNode, NodeDetail, NodeItem, NodeQuery};
use clap::builder::PossibleValuesParser;
use client::rest::Path;
use lifecycle::registry::NodeState;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List nodes
    List {
        /// Show only nodes in this state
        #[arg(long, value_parser = states())]
        state: Option<String>,
        /// Show only nodes of this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// Show only nodes of this vCluster
        #[arg(long)]
        vcluster: Option<String>,
        /// Show only nodes in no vCluster, which are in maintenance mode
        #[arg(long, conflicts_with = "vcluster")]
        unassigned: bool,
        /// Show only nodes with this label; repeatable: all must be there
        #[arg(long, value_name = "KEY=VALUE", value_parser = label::pair)]
        label: Vec<(String, String)>,
        /// Show only nodes with this text in their id, hostname or a label, in upper or lower case
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Show the state, health and certificates of a node
    Show {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
        /// Show the audit events about the node instead, oldest first
        #[arg(long)]
        timeline: bool,
    },
    /// Register machines by their hardware, so that they may enroll without a token, or a node that comes in by an SVID
    ///
    /// Without hardware the node comes in by an SVID of SPIRE, or with a token for it alone. A machine may
    /// enroll with its hardware identity if the policy `attestors` contains `hardware`. Everything that is registered must match: one of the MAC addresses, and the serial number, the UUID and the key hash if given.
    /// Registering a revoked or decommissioned node begins a new generation of it.
    Register(register::Arguments),
    /// Set the configuration document of a node, beside that of its vCluster
    SetConfig {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
        /// File with a JSON object of at most 262,144 bytes, or `-` for standard input
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Import a node by its existing certificate of the imported CA
    Import {
        /// Certificate of the node, PEM; its common name, worker:ID or ID, becomes the node's id
        #[arg(long, value_name = "FILE")]
        cert: PathBuf,
    },
    /// Write a repair bundle for a host that cannot recover by itself; quarantines its node until repaired
    RepairBundle {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
        /// New file for the bundle, readable by its owner only: it contains a secret
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Lifetime of the bundle, such as 15m, 1h or 7d [default: 24h]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires: Option<String>,
    },
    /// Set and remove labels of a node
    Label(label::Arguments),
    /// Manage what a node recovers with
    #[command(subcommand)]
    Recovery(recovery::Command),
    /// List nodes, then print a line for each change, with its time, until interrupted
    Watch,
    #[command(flatten)]
    Act(act::Command),
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    // Its --cert is not the operator's own: that one comes from ENLIST_CERT.
    let reach = match &command {
        Command::Import { .. } => Reach { cert: None, ..reach.clone() },
        _ => reach.clone(),
    };
    let operator = reach.operator()?;
    match command {
        Command::List { state, tenant, vcluster, unassigned, label, search } => {
            let (unassigned, label) = (unassigned.then_some(true), label::list(label)?);
            let query =
                NodeQuery { state, tenant, vcluster, unassigned, label, search, ..NodeQuery::default() };
            let items: Vec<NodeItem> = operator.list(&Path::new("/v1/nodes").queries(&query)?).await?;
            output.list(&items, table)?;
            let counted = output.is_at_terminal() && !items.is_empty();
            if counted { output.verbatim(&counts(&items)) } else { Ok(()) }
        }
        Command::Show { id, timeline: true } => {
            let node = named::node(&operator, &id).await?;
            timeline::run(&operator, &node.item.node_id, output).await
        }
        Command::Show { id, timeline: false } => {
            let node = named::node(&operator, &id).await?;
            output.document(&node, |node| show::text(node, output.screen()))
        }
        Command::Register(arguments) => register::run(arguments, &operator, output).await,
        Command::SetConfig { id, file } => {
            let document = document_file::read(&file)?;
            let configured = async |id: &str| {
                let path = Path::new("/v1/nodes").segment(id).segment("config");
                operator.put_document::<NodeDetail>(&path, document.clone()).await
            };
            let node = named::ask(&operator, &id, configured).await?;
            output.document(&node, |node| {
                let version = node.config.node_version;
                format!("node {} has configuration version {version}\n", harmless(&node.item.node_id))
            })
        }
        Command::Import { cert } => {
            let request = ImportNode { certificate: reach::read_public(&cert)? };
            let node: NodeItem = operator.post(&Path::new("/v1/nodes/import"), &request).await?;
            output.document(&node, |node| {
                format!("node {} is {}\n", harmless(&node.node_id), harmless(&node.state))
            })
        }
        Command::RepairBundle { id, out, expires } => {
            repair::issue(&operator, output, &id, &out, expires).await
        }
        Command::Label(arguments) => label::run(arguments, &operator, output).await,
        Command::Recovery(command) => recovery::run(command, &operator, output).await,
        Command::Watch => watch::follow(&operator, output).await,
        Command::Act(command) => act::run(command, &operator, output).await,
    }
}

/// Every state that a node may be in.
fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(NodeState::ALL.map(NodeState::as_str))
}

/// `312 nodes: 300 active, 12 inactive`.
fn counts(items: &[NodeItem]) -> String {
    let of = |state: &NodeState| items.iter().filter(|item| item.state == state.as_str()).count();
    let by_state = NodeState::ALL.iter().map(|state| (of(state), state)).filter(|(count, _)| *count > 0);
    let by_state: Vec<String> = by_state.map(|(count, state)| format!("{count} {state}")).collect();
    let nodes = if items.len() == 1 { "node" } else { "nodes" };
    format!("{} {nodes}: {}\n", items.len(), by_state.join(", "))
}

fn table(items: &[NodeItem]) -> Table {
    let head = [
        "NODE",
        "HOSTNAME",
        "STATE",
        "CONNECTED",
        "VCLUSTER",
        "TENANT",
        "PROFILE",
        "LAST SEEN",
        "CERT UNTIL",
        "HEALTH",
        "EXCLUDED",
        "LABELS",
    ];
    let table = Table::new(head, "no nodes").omitting_blank(["HOSTNAME", "LABELS"]);
    // Of a fleet without vClusters the column says nothing.
    let mut table = if items.iter().any(|item| item.vcluster.is_some()) {
        table.dropping([
            "LABELS",
            "PROFILE",
            "EXCLUDED",
            "TENANT",
            "CERT UNTIL",
            "LAST SEEN",
            "VCLUSTER",
            "CONNECTED",
            "HOSTNAME",
        ])
    } else {
        table.dropping([
            "LABELS",
            "VCLUSTER",
            "PROFILE",
            "EXCLUDED",
            "TENANT",
            "CERT UNTIL",
            "LAST SEEN",
            "CONNECTED",
            "HOSTNAME",
        ])
    };
    for item in items {
        let (seen, until) = (or_dash(item.last_seen.as_deref()), or_dash(certificate_end(item)));
        let (state, health) = (state(item), or_dash(item.health.reason.as_deref().or(healthy(item))));
        let excluded = match exclusions(item).join(", ") {
            reasons if reasons.is_empty() => "-".to_owned(),
            reasons => reasons,
        };
        let (id, tenant, profile) = (&item.node_id, &item.tenant, &item.profile);
        let connected = if item.connected { "yes" } else { "no" };
        let (hostname, vcluster) = (or_dash(item.hostname.as_deref()), or_dash(item.vcluster.as_deref()));
        let labels = label::shown(&item.labels);
        let labels = or_dash(labels.as_deref());
        let cells = [
            id, hostname, &state, connected, vcluster, tenant, profile, seen, until, health, &excluded,
            labels,
        ];
        table.row(tone(item), cells);
    }
    table
}

/// Why no work may be given to it. A machine in no vCluster is in maintenance mode.
fn exclusions(item: &NodeItem) -> Vec<&str> {
    let resting = !item.macs.is_empty() && item.vcluster.is_none() && !is_gone(item);
    item.excluded.iter().map(String::as_str).chain(resting.then_some("unassigned")).collect()
}

/// Until when its certificate is good: that of a node that is gone is refused, and one that is registered anew has none yet.
fn certificate_end(item: &NodeItem) -> Option<&str> {
    let good = !is_gone(item) && item.state != "registered";
    item.cert_not_after.as_deref().filter(|_| good)
}

/// Said of an active node without a failure.
fn healthy(item: &NodeItem) -> Option<&'static str> {
    (item.state == "active").then_some("good")
}

fn is_gone(item: &NodeItem) -> bool {
    matches!(item.state.as_str(), "revoked" | "decommissioned")
}

/// The state, and what stands beside it.
fn state(item: &NodeItem) -> String {
    let mut state = item.state.clone();
    if item.draining {
        state.push_str(", draining");
    }
    if item.quarantined {
        state.push_str(", quarantined");
    }
    state
}

fn tone(item: &NodeItem) -> Tone {
    match item.state.as_str() {
        _ if is_gone(item) => Tone::Gone,
        _ if item.quarantined || item.health.reason.is_some() => Tone::Attention,
        "active" => Tone::Good,
        _ => Tone::Plain,
    }
}
