//! `enlist node drain|revoke|…`: one act each, and what is true of the node then.

use super::state;
use crate::command_line::duration;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::harmless;
use api::rest::nodes::{Decommission, Drain, NodeItem, Plainly, Quarantine, Revoke};
use client::Operator;
use client::rest::Path;
use serde::Serialize;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Let a node finish what it does and take nothing new
    Drain {
        id: String,
        /// How long it may take: 90s, 15m, 1h, 7d; another one counts from when it is said [default: no limit]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        within: Option<String>,
    },
    /// Let a draining node work again
    Undrain { id: String },
    /// Let a node authenticate, report and renew, and no more
    Quarantine {
        id: String,
        /// Why, for the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
    /// End a node's quarantine, and the suspicion that there is a copy of it
    Release { id: String },
    /// Order a node to renew its certificate now
    Rotate { id: String },
    /// End a node's life in good order; its certificates are refused from then on
    Decommission {
        id: String,
        /// End its sessions; there are none yet
        #[arg(long)]
        force: bool,
    },
    /// Take a node's identity away, at once and everywhere
    Revoke {
        id: String,
        /// Why, for the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Give the id of a node that is gone a new life; what was denied stays denied
    Reinstate { id: String },
}

pub async fn run(command: Command, operator: &Operator, output: Output) -> Result<(), Failure> {
    let act = Act { operator, output };
    match command {
        Command::Drain { id, within } => act.perform(&id, "drain", &Drain { within }, now).await,
        Command::Undrain { id } => act.perform(&id, "undrain", &Plainly {}, now).await,
        Command::Quarantine { id, reason } => {
            act.perform(&id, "quarantine", &Quarantine { reason }, now).await
        }
        Command::Release { id } => act.perform(&id, "release", &Plainly {}, now).await,
        Command::Rotate { id } => act.perform(&id, "rotate", &Plainly {}, ordered).await,
        Command::Decommission { id, force } => {
            act.perform(&id, "decommission", &Decommission { force: force.then_some(true) }, now).await
        }
        Command::Revoke { id, reason } => act.perform(&id, "revoke", &Revoke { reason }, now).await,
        Command::Reinstate { id } => act.perform(&id, "reinstate", &Plainly {}, living_again).await,
    }
}

struct Act<'a> {
    operator: &'a Operator,
    output: Output,
}

impl Act<'_> {
    async fn perform(
        &self,
        id: &str,
        verb: &str,
        words: &impl Serialize,
        human: fn(&NodeItem) -> String,
    ) -> Result<(), Failure> {
        let path = Path::new("/v1/nodes").segment(id).segment(verb);
        let item: NodeItem = self.operator.post(&path, words).await?;
        self.output.document(&item, human)
    }
}

fn now(item: &NodeItem) -> String {
    format!("node {} is {}\n", harmless(&item.node_id), harmless(&state(item)))
}

fn ordered(item: &NodeItem) -> String {
    format!("node {} is told to renew its certificate\n", harmless(&item.node_id))
}

fn living_again(item: &NodeItem) -> String {
    let (id, state) = (harmless(&item.node_id), harmless(&state(item)));
    format!("node {id} is {state}, generation {}\n", item.generation)
}
