//! `plfm hosts`: the same nodes under the document's names and states.

use super::tenant_scope::PlfmTenant;
use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::nodes::{Decommission, Drain, NodeDetail, NodeItem, NodeQuery, Revoke};
use client::rest::Path;
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List hosts
    List,
    /// Show host details
    Show {
        /// Id of the host (HOST ID in `plfm hosts list`)
        host_id: String,
    },
    /// Stop new placements on a host and let its running work finish
    Drain {
        /// Id of the host (HOST ID in `plfm hosts list`)
        host_id: String,
    },
    /// Decommission a host: its certificates are refused from then on
    Decommission {
        /// Id of the host (HOST ID in `plfm hosts list`)
        host_id: String,
        /// Decommission the host even if it has open sessions: they get SIGHUP, and SIGKILL after 10 s
        #[arg(long)]
        force: bool,
    },
    /// Revoke a host: its certificates are refused at once
    Revoke {
        /// Id of the host (HOST ID in `plfm hosts list`)
        host_id: String,
        /// Reason, recorded in the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(command: Command, scope: PlfmTenant<'_>, output: Output) -> Result<(), CommandError> {
    let act = Acts { scope, output };
    match command {
        Command::List => act.list().await,
        Command::Show { host_id } => {
            let node = act.scope.host(&host_id).await?;
            let document = translated(&node, &node.item)?;
            output.document(&document, |_| details(&node))
        }
        Command::Drain { host_id } => act.perform(&host_id, "drain", &Drain::default()).await,
        Command::Decommission { host_id, force } => {
            act.perform(&host_id, "decommission", &Decommission { force: force.then_some(true) }).await
        }
        Command::Revoke { host_id, reason } => act.perform(&host_id, "revoke", &Revoke { reason }).await,
    }
}

struct Acts<'a> {
    scope: PlfmTenant<'a>,
    output: Output,
}

impl Acts<'_> {
    async fn list(self) -> Result<(), CommandError> {
        let query = NodeQuery { tenant: Some(self.scope.tenant), ..NodeQuery::default() };
        let path = Path::new("/v1/nodes").queries(&query)?;
        let items: Vec<NodeItem> = self.scope.operator.list(&path).await?;
        let hosts = items.iter().map(PlfmHost::of).collect::<Result<Vec<_>, _>>()?;
        self.output.list(&hosts, table)
    }

    async fn perform(&self, host_id: &str, verb: &str, words: &impl Serialize) -> Result<(), CommandError> {
        let host = self.scope.host(host_id).await?;
        let path = Path::new("/v1/nodes").segment(&host.item.node_id).segment(verb);
        let item: NodeItem = self.scope.operator.post(&path, words).await?;
        let document = translated(&item, &item)?;
        self.output
            .document(&document, |_| format!("Host {} is {}.\n", harmless(&item.node_id), state(&item)))
    }
}

/// What 000 calls the state that a node is in.
fn state(item: &NodeItem) -> &str {
    match item.state.as_str() {
        "active" | "inactive" if item.draining => "draining",
        "inactive" => "active",
        "revoked" => "disabled",
        other => other,
    }
}

/// A host for a list: the document that `--json` prints, and the node behind it.
struct PlfmHost<'a> {
    item: &'a NodeItem,
    document: Value,
}

impl<'a> PlfmHost<'a> {
    fn of(item: &'a NodeItem) -> Result<Self, CommandError> {
        Ok(Self { item, document: translated(item, item)? })
    }
}

impl Serialize for PlfmHost<'_> {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.document.serialize(out)
    }
}

/// A node's document with the document's own id and state beside Enlist's fields.
fn translated(node: &impl Serialize, item: &NodeItem) -> Result<Value, CommandError> {
    let unusable = |what: String| CommandError::new(Exit::Fault, "json", what, "");
    match serde_json::to_value(node).map_err(|error| unusable(error.to_string()))? {
        Value::Object(mut fields) => {
            fields.insert("host_id".to_owned(), Value::String(item.node_id.clone()));
            fields.insert("state".to_owned(), Value::String(state(item).to_owned()));
            Ok(Value::Object(fields))
        }
        _ => Err(unusable("a node is not a JSON object".to_owned())),
    }
}

fn details(node: &NodeDetail) -> String {
    let item = &node.item;
    Fields::new()
        .with("host", &item.node_id)
        .with("state", state(item))
        .with_some("enrolled", item.enrolled_at.as_deref())
        .with_some("last seen", item.last_seen.as_deref())
        .with_some("certificate", item.cert_serial.as_deref())
        .with_some("valid until", item.cert_not_after.as_deref())
        .with_some("underlay", node.overlay.underlay_endpoint.as_deref())
        .with_some("overlay", node.overlay.address.as_deref())
        .with_some("WireGuard key", node.overlay.wireguard_public_key.as_deref())
        .text()
}

fn table(hosts: &[PlfmHost<'_>]) -> Table {
    let mut table = Table::new(["HOST ID", "STATE", "ENROLLED", "LAST SEEN", "CERT UNTIL"], "no hosts");
    for PlfmHost { item, .. } in hosts {
        let tone = match state(item) {
            "active" => Tone::Good,
            "disabled" | "decommissioned" => Tone::Gone,
            _ => Tone::Plain,
        };
        let cells = [&item.enrolled_at, &item.last_seen, &item.cert_not_after];
        let [enrolled, seen, until] = cells.map(|cell| or_dash(cell.as_deref()));
        table.row(tone, [&item.node_id, state(item), enrolled, seen, until]);
    }
    table
}
