//! `enlist node drain|revoke|…`: one act each, and what is true of the node then.

use super::state;
use crate::command_line::duration;
use crate::error::CommandError;
use crate::output::Output;
use crate::table::harmless;
use api::rest::nodes::{
    Decommission, Drain, IntoVcluster, NodeItem, Plainly, Quarantine, Revoke, RotateRequest,
};
use client::OperatorApi;
use client::rest::Path;
use serde::Serialize;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Drain a node: it finishes its work and is given no new work
    Drain {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Time limit for draining, counted from now, such as 15m, 1h or 7d [default: no limit]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        within: Option<String>,
    },
    /// End the draining of a node: it is given work again
    Undrain {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
    },
    /// Quarantine a node: it may only authenticate, report and renew
    Quarantine {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Reason, recorded in the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Release a node from quarantine, and clear a suspected clone
    Release {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
    },
    /// Order a node to renew its certificate, or to replace its WireGuard key, now
    Rotate {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Replace the WireGuard key of the host instead of its certificate
        #[arg(long)]
        overlay: bool,
        /// Take the new key of a host that has lost the one on record, once: whoever has its certificate can answer
        #[arg(long, requires = "overlay")]
        replace: bool,
    },
    /// Decommission a node: its certificates are refused from then on
    Decommission {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Decommission the node even if it has open sessions: they get SIGHUP, and SIGKILL after 10 s
        #[arg(long)]
        force: bool,
    },
    /// Revoke a node: its certificates are refused at once, everywhere
    Revoke {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Reason, recorded in the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Assign a node that is in no vCluster to one
    Assign {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        vcluster: String,
    },
    /// Take a node out of its vCluster: it goes into maintenance mode
    Unassign {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
    },
    /// Move a node from its vCluster to another, at once and without a new certificate
    Move {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        vcluster: String,
    },
    /// Let a revoked or decommissioned node enroll again; its old certificates stay refused
    Reinstate {
        /// Id of the node (NODE in `enlist node list`)
        id: String,
    },
}

pub async fn run(command: Command, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let call = NodeCall { operator, output };
    match command {
        Command::Drain { id, within } => call.perform(&id, "drain", &Drain { within }, now).await,
        Command::Undrain { id } => call.perform(&id, "undrain", &Plainly {}, now).await,
        Command::Quarantine { id, reason } => {
            call.perform(&id, "quarantine", &Quarantine { reason }, now).await
        }
        Command::Release { id } => call.perform(&id, "release", &Plainly {}, now).await,
        Command::Rotate { id, overlay, replace } => {
            let said = if overlay { rekey_ordered } else { ordered };
            let (overlay, replace) = (overlay.then_some(true), replace.then_some(true));
            call.perform(&id, "rotate", &RotateRequest { overlay, replace }, said).await
        }
        Command::Decommission { id, force } => {
            call.perform(&id, "decommission", &Decommission { force: force.then_some(true) }, now).await
        }
        Command::Revoke { id, reason } => call.perform(&id, "revoke", &Revoke { reason }, revoked).await,
        Command::Assign { id, vcluster } => {
            call.perform(&id, "assign", &IntoVcluster { vcluster }, placed).await
        }
        Command::Unassign { id } => call.perform(&id, "unassign", &Plainly {}, placed).await,
        Command::Move { id, vcluster } => call.perform(&id, "move", &IntoVcluster { vcluster }, placed).await,
        Command::Reinstate { id } => call.perform(&id, "reinstate", &Plainly {}, reinstated).await,
    }
}

struct NodeCall<'a> {
    operator: &'a OperatorApi,
    output: Output,
}

impl NodeCall<'_> {
    async fn perform(
        &self,
        id: &str,
        verb: &str,
        words: &impl Serialize,
        human: fn(&NodeItem) -> String,
    ) -> Result<(), CommandError> {
        let path = Path::new("/v1/nodes").segment(id).segment(verb);
        let item: NodeItem = self.operator.post(&path, words).await?;
        self.output.document(&item, |item| self.output.screen().hang(0, 0, &human(item)))
    }
}

pub fn now(item: &NodeItem) -> String {
    format!("node {} is {}\n", harmless(&item.node_id), harmless(&state(item)))
}

/// Where it is now.
pub fn placed(item: &NodeItem) -> String {
    let id = harmless(&item.node_id);
    match &item.vcluster {
        Some(vcluster) => format!("node {id} is in vCluster {}\n", harmless(vcluster)),
        None => format!("node {id} is in no vCluster: maintenance mode\n"),
    }
}

fn ordered(item: &NodeItem) -> String {
    format!("node {} is ordered to renew its certificate\n", harmless(&item.node_id))
}

fn rekey_ordered(item: &NodeItem) -> String {
    format!("node {} is ordered to replace its WireGuard key\n", harmless(&item.node_id))
}

fn revoked(item: &NodeItem) -> String {
    format!(
        "node {} is {}: its connections are closed, and its certificates are refused\n",
        harmless(&item.node_id),
        harmless(&state(item))
    )
}

fn reinstated(item: &NodeItem) -> String {
    let (id, state) = (harmless(&item.node_id), harmless(&state(item)));
    if item.state != "registered" {
        return format!(
            "node {id} is {state}: it is not revoked or decommissioned, so nothing was changed\n"
        );
    }
    let generation = item.generation;
    if !item.macs.is_empty() {
        return format!(
            "node {id} is {state}, generation {generation}\nIts machine may enroll by its hardware again, where policy allows that\n"
        );
    }
    format!(
        "node {id} is {state}, generation {generation}\nTo enroll it again, create a token for it:\n  \
         enlist token create --node {id}\n"
    )
}
