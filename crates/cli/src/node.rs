//! `enlist node`: the machines of the fleet.

mod act;
mod show;
mod watch;

use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone, or_dash};
use api::rest::nodes::{NodeDetail, NodeItem, NodeQuery};
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List nodes
    List {
        /// Only those in this state: registered, enrolled, active, inactive, revoked, decommissioned
        #[arg(long)]
        state: Option<String>,
        /// Only those of this tenant
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show everything that is known of a node
    Show { id: String },
    /// List nodes, then a line for every change until interrupted
    Watch,
    #[command(flatten)]
    Act(act::Command),
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), Failure> {
    let operator = reach.operator()?;
    match command {
        Command::List { state, tenant } => {
            let query = NodeQuery { state, tenant, ..NodeQuery::default() };
            let items: Vec<NodeItem> = operator.list(&Path::new("/v1/nodes").queries(&query)?).await?;
            output.list(&items, table)
        }
        Command::Show { id } => {
            let node: NodeDetail = operator.get(&Path::new("/v1/nodes").segment(&id)).await?;
            output.document(&node, show::text)
        }
        Command::Watch => watch::follow(&operator, output).await,
        Command::Act(command) => act::run(command, &operator, output).await,
    }
}

fn table(items: &[NodeItem]) -> Table {
    let head = ["NODE", "STATE", "TENANT", "PROFILE", "LAST SEEN", "CERT UNTIL", "HEALTH"];
    let mut table = Table::new(head, "no nodes");
    for item in items {
        let (seen, until) = (or_dash(item.last_seen.as_deref()), or_dash(item.cert_not_after.as_deref()));
        let (state, health) = (state(item), or_dash(item.health.reason.as_deref()));
        table.row(tone(item), [&item.node_id, &state, &item.tenant, &item.profile, seen, until, health]);
    }
    table
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
        "revoked" | "decommissioned" => Tone::Gone,
        _ if item.quarantined || item.health.reason.is_some() => Tone::Attention,
        "active" => Tone::Good,
        _ => Tone::Plain,
    }
}
