//! `enlist node drain|revoke|…`: one act each, and what is true of the node then. Some are done for every node of a selection.

use super::selection::ActTarget;
use super::{bulk, named, state};
use crate::command_line::duration;
use crate::confirm::ConfirmFlag;
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
    /// Drain a node, or all of a selection: they finish their work and are given no new work
    Drain {
        #[command(flatten)]
        target: ActTarget,
        /// Time limit for draining, counted from now, such as 15m, 1h or 7d [default: no limit]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        within: Option<String>,
    },
    /// End the draining of a node, or of a selection: they are given work again
    Undrain {
        #[command(flatten)]
        target: ActTarget,
    },
    /// Quarantine a node, or a selection: they may only authenticate, report and renew
    Quarantine {
        #[command(flatten)]
        target: ActTarget,
        /// Reason, recorded in the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Release a node, or a selection, from quarantine, and clear a suspected clone
    Release {
        #[command(flatten)]
        target: ActTarget,
    },
    /// Order a node, or a selection, to renew the certificate, or to replace the WireGuard key, now
    Rotate {
        #[command(flatten)]
        target: ActTarget,
        /// Replace the WireGuard key of the host instead of its certificate
        #[arg(long)]
        overlay: bool,
        /// Take the new key of a host that has lost the one on record, once: whoever has its certificate can answer
        #[arg(long, requires = "overlay")]
        replace: bool,
    },
    /// Decommission a node: its certificates are refused from then on
    Decommission {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
        /// Decommission the node even if it has open sessions: they get SIGHUP, and SIGKILL after 10 s
        #[arg(long)]
        force: bool,
    },
    /// Revoke a node, or a selection: the certificates are refused at once, everywhere
    Revoke {
        #[command(flatten)]
        target: ActTarget,
        /// Reason, recorded in the audit trail [default: unspecified]
        #[arg(long)]
        reason: Option<String>,
    },
    /// Assign a node that is in no vCluster to one
    Assign {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        vcluster: String,
    },
    /// Take a node out of its vCluster: it goes into maintenance mode
    Unassign {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
    },
    /// Move a node from its vCluster to another, at once and without a new certificate
    Move {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        vcluster: String,
    },
    /// Let a revoked or decommissioned node enroll again; its old certificates stay refused
    Reinstate {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
    },
}

pub async fn run(command: Command, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let call = NodeCall { operator, output };
    match command {
        Command::Drain { target, within } => {
            call.each(target, NodeAct::new("drain", Drain { within }, now)).await
        }
        Command::Undrain { target } => call.each(target, NodeAct::new("undrain", Plainly {}, now)).await,
        Command::Quarantine { target, reason } => {
            call.each(target, NodeAct::new("quarantine", Quarantine { reason }, now)).await
        }
        Command::Release { target } => call.each(target, NodeAct::new("release", Plainly {}, now)).await,
        Command::Rotate { target, overlay, replace } => {
            let said = if overlay { rekey_ordered } else { ordered };
            let (overlay, replace) = (overlay.then_some(true), replace.then_some(true));
            call.each(target, NodeAct::new("rotate", RotateRequest { overlay, replace }, said)).await
        }
        Command::Decommission { id, force } => {
            let words = Decommission { force: force.then_some(true) };
            call.one(&id, &NodeAct::new("decommission", words, now)).await
        }
        Command::Revoke { target, reason } => {
            call.each(target, NodeAct::new("revoke", Revoke { reason }, revoked)).await
        }
        Command::Assign { id, vcluster } => {
            call.one(&id, &NodeAct::new("assign", IntoVcluster { vcluster }, placed)).await
        }
        Command::Unassign { id } => call.one(&id, &NodeAct::new("unassign", Plainly {}, placed)).await,
        Command::Move { id, vcluster } => {
            call.one(&id, &NodeAct::new("move", IntoVcluster { vcluster }, placed)).await
        }
        Command::Reinstate { id } => call.one(&id, &NodeAct::new("reinstate", Plainly {}, reinstated)).await,
    }
}

/// One act, and what is said of the node then.
pub struct NodeAct<W> {
    pub verb: &'static str,
    words: W,
    pub human: fn(&NodeItem) -> String,
}

impl<W: Serialize> NodeAct<W> {
    fn new(verb: &'static str, words: W, human: fn(&NodeItem) -> String) -> Self {
        Self { verb, words, human }
    }

    /// On the node of this id or hostname.
    pub async fn perform(&self, operator: &OperatorApi, name: &str) -> Result<NodeItem, CommandError> {
        let asked = async |id: &str| {
            let path = Path::new("/v1/nodes").segment(id).segment(self.verb);
            operator.post(&path, &self.words).await
        };
        named::ask(operator, name, asked).await
    }
}

struct NodeCall<'a> {
    operator: &'a OperatorApi,
    output: Output,
}

impl NodeCall<'_> {
    async fn one<W: Serialize>(&self, name: &str, act: &NodeAct<W>) -> Result<(), CommandError> {
        let item = act.perform(self.operator, name).await?;
        self.output.document(&item, |item| self.output.screen().hang(0, 0, &(act.human)(item)))
    }

    async fn each<W: Serialize>(&self, target: ActTarget, act: NodeAct<W>) -> Result<(), CommandError> {
        let ActTarget { id, selection, yes } = target;
        match id {
            Some(id) => self.one(&id, &act).await,
            None => bulk::run(&act, selection, &ConfirmFlag { yes }, self.operator, self.output).await,
        }
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
