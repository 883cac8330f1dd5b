//! `pact node`: the same nodes under the document's states.

use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::node::register::batch::{self, LineDefaults};
use crate::output::Output;
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::nodes::{
    Decommission, IntoVcluster, NodeDetail, NodeItem, NodeQuery, Plainly, RegisterNodeRequest,
};
use client::OperatorApi;
use client::rest::Path;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

/// Nodes that are enrolled by these command lines have the profile of pact.
const PROFILE: &str = "pact";
const STATES: [&str; 4] = ["Registered", "Active", "Inactive", "Revoked"];

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Enroll a node: register its hardware, so that it gets a certificate when it boots
    Enroll {
        /// Id of the new node
        #[arg(required_unless_present = "batch", conflicts_with = "batch")]
        node_id: Option<String>,
        /// MAC address of the machine; repeatable
        #[arg(long, required_unless_present = "batch", conflicts_with = "batch")]
        mac: Vec<String>,
        /// Serial number of its board or BMC
        #[arg(long, value_name = "SERIAL", conflicts_with = "batch")]
        bmc_serial: Option<String>,
        /// Enroll every machine of this CSV file: node_id,mac,bmc_serial,vcluster
        #[arg(long, value_name = "FILE")]
        batch: Option<PathBuf>,
    },
    /// Decommission a node: its certificates are refused from then on
    Decommission {
        /// Id of the node
        node_id: String,
        /// Decommission the node even if it has open sessions: they get SIGHUP, and SIGKILL after 10 s
        #[arg(long)]
        force: bool,
    },
    /// Assign a node to a vCluster
    Assign {
        /// Id of the node
        node_id: String,
        #[command(flatten)]
        to: AssignTarget,
    },
    /// Take a node out of its vCluster: it goes into maintenance mode
    Unassign {
        /// Id of the node
        node_id: String,
    },
    /// Move a node from its vCluster to another
    Move {
        /// Id of the node
        node_id: String,
        #[command(flatten)]
        to: MoveTarget,
    },
    /// List nodes
    List {
        /// Show only nodes in this state: registered, active, inactive or revoked
        #[arg(long)]
        state: Option<String>,
        /// Show only nodes of this vCluster
        #[arg(long)]
        vcluster: Option<String>,
        /// Show only nodes in no vCluster
        #[arg(long)]
        unassigned: bool,
    },
    /// Show the enrollment of a node
    Inspect {
        /// Id of the node
        node_id: String,
    },
}

/// The vCluster, by its flag or as a second argument.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct AssignTarget {
    /// Name of the vCluster
    #[arg(long = "vcluster", value_name = "VCLUSTER")]
    named: Option<String>,
    /// Name of the vCluster
    vcluster: Option<String>,
}

/// The same for a move, whose flag has another name.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct MoveTarget {
    /// Name of the vCluster
    #[arg(long = "to-vcluster", visible_alias = "vcluster", value_name = "VCLUSTER")]
    named: Option<String>,
    /// Name of the vCluster
    vcluster: Option<String>,
}

pub async fn run(command: Command, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let act = PactCall { operator, output };
    match command {
        Command::Enroll { batch: Some(file), .. } => {
            let defaults = LineDefaults { profile: Some(PROFILE.to_owned()), ..LineDefaults::default() };
            batch::run(&file, &defaults, operator, output).await
        }
        Command::Enroll { node_id, mac, bmc_serial, batch: None } => {
            let request = RegisterNodeRequest {
                node_id: node_id.unwrap_or_default(),
                mac: mac.into(),
                bmc_serial,
                profile: Some(PROFILE.to_owned()),
                ..RegisterNodeRequest::default()
            };
            let item: NodeItem = operator.post(&Path::new("/v1/nodes"), &request).await?;
            act.done(&item, now)
        }
        Command::Decommission { node_id, force } => {
            let words = Decommission { force: force.then_some(true) };
            act.perform(&node_id, "decommission", &words, now).await
        }
        Command::Assign { node_id, to } => {
            let words = IntoVcluster { vcluster: to.named.or(to.vcluster).unwrap_or_default() };
            act.perform(&node_id, "assign", &words, placed).await
        }
        Command::Unassign { node_id } => act.perform(&node_id, "unassign", &Plainly {}, placed).await,
        Command::Move { node_id, to } => {
            let words = IntoVcluster { vcluster: to.named.or(to.vcluster).unwrap_or_default() };
            act.perform(&node_id, "move", &words, placed).await
        }
        Command::List { state, vcluster, unassigned } => act.list(state, vcluster, unassigned).await,
        Command::Inspect { node_id } => {
            let node: NodeDetail = operator.get(&Path::new("/v1/nodes").segment(&node_id)).await?;
            let document = translated(&node, &node.item)?;
            output.document(&document, |_| details(&node))
        }
    }
}

struct PactCall<'a> {
    operator: &'a OperatorApi,
    output: Output,
}

impl PactCall<'_> {
    async fn perform(
        &self,
        id: &str,
        verb: &str,
        words: &impl Serialize,
        human: fn(&NodeItem) -> String,
    ) -> Result<(), CommandError> {
        let path = Path::new("/v1/nodes").segment(id).segment(verb);
        let item: NodeItem = self.operator.post(&path, words).await?;
        self.done(&item, human)
    }

    fn done(&self, item: &NodeItem, human: fn(&NodeItem) -> String) -> Result<(), CommandError> {
        self.output.document(&translated(item, item)?, |_| human(item))
    }

    /// The document's states are fewer than Enlist's, so that they are told apart here.
    async fn list(
        &self,
        state: Option<String>,
        vcluster: Option<String>,
        unassigned: bool,
    ) -> Result<(), CommandError> {
        let wanted = state.map(|word| state_word(&word)).transpose()?;
        let unassigned = unassigned.then_some(true);
        let query = NodeQuery { vcluster, unassigned, limit: Some(LIMIT), ..NodeQuery::default() };
        let items: Vec<NodeItem> = self.operator.list(&Path::new("/v1/nodes").queries(&query)?).await?;
        let items = items.iter().filter(|item| wanted.is_none_or(|wanted| pact_state(item) == wanted));
        let nodes = items.map(PactNode::of).collect::<Result<Vec<_>, _>>()?;
        self.output.list(&nodes, table)
    }
}

const LIMIT: usize = api::rest::page::LIMIT_MAX;

fn state_word(word: &str) -> Result<&'static str, CommandError> {
    let known = STATES.into_iter().find(|state| state.eq_ignore_ascii_case(word));
    known.ok_or_else(|| {
        let message = format!("there is no state {word}");
        CommandError::usage(message, "use registered, active, inactive or revoked")
    })
}

/// What 001 calls the state that a node is in.
fn pact_state(item: &NodeItem) -> &'static str {
    match item.state.as_str() {
        "registered" => "Registered",
        "inactive" => "Inactive",
        "revoked" | "decommissioned" => "Revoked",
        _ => "Active",
    }
}

/// A node for a list: the document that `--json` prints, and the node behind it.
struct PactNode<'a> {
    item: &'a NodeItem,
    document: Value,
}

impl<'a> PactNode<'a> {
    fn of(item: &'a NodeItem) -> Result<Self, CommandError> {
        Ok(Self { item, document: translated(item, item)? })
    }
}

impl Serialize for PactNode<'_> {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.document.serialize(out)
    }
}

/// A node's document with the document's own names beside Enlist's fields.
fn translated(node: &impl Serialize, item: &NodeItem) -> Result<Value, CommandError> {
    let unusable = |what: String| CommandError::new(Exit::Fault, "json", what, "");
    match serde_json::to_value(node).map_err(|error| unusable(error.to_string()))? {
        Value::Object(mut fields) => {
            fields.insert("enrollment_state".to_owned(), Value::String(pact_state(item).to_owned()));
            fields.insert("vcluster_id".to_owned(), item.vcluster.clone().map_or(Value::Null, Value::String));
            Ok(Value::Object(fields))
        }
        _ => Err(unusable("a node is not a JSON object".to_owned())),
    }
}

fn now(item: &NodeItem) -> String {
    format!("node {} is {}\n", harmless(&item.node_id), pact_state(item))
}

fn placed(item: &NodeItem) -> String {
    crate::node::act::placed(item)
}

fn details(node: &NodeDetail) -> String {
    let (item, hardware) = (&node.item, node.hardware.as_ref());
    let macs = hardware.map(|hardware| hardware.macs.join(", ")).filter(|macs| !macs.is_empty());
    Fields::new()
        .with("node", &item.node_id)
        .with("state", pact_state(item))
        .with("vCluster", item.vcluster.as_deref().unwrap_or("none (maintenance mode)"))
        .with_some("MAC addresses", macs.as_deref())
        .with_some("BMC serial", hardware.and_then(|hardware| hardware.bmc_serial.as_deref()))
        .with_some("certificate", item.cert_serial.as_deref())
        .with_some("valid until", item.cert_not_after.as_deref())
        .with_some("last seen", item.last_seen.as_deref())
        .with_some("enrolled", item.enrolled_at.as_deref())
        .with_some("registered by", node.registered_by.as_deref())
        .text()
}

fn table(nodes: &[PactNode<'_>]) -> Table {
    let head = ["NODE ID", "STATE", "VCLUSTER", "LAST SEEN", "CERT UNTIL", "MAC"];
    let mut table = Table::new(head, "no nodes").dropping(["CERT UNTIL", "LAST SEEN"]);
    for PactNode { item, .. } in nodes {
        let tone = match pact_state(item) {
            "Active" => Tone::Good,
            "Revoked" => Tone::Gone,
            _ => Tone::Plain,
        };
        let cells = [&item.vcluster, &item.last_seen, &item.cert_not_after];
        let [vcluster, seen, until] = cells.map(|cell| or_dash(cell.as_deref()));
        let macs = item.macs.join(";");
        table.row(tone, [&item.node_id, pact_state(item), vcluster, seen, until, &macs]);
    }
    table
}
