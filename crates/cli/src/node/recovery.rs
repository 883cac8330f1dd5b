//! `enlist node recovery`: what a node recovers with.

use super::named;
use crate::error::CommandError;
use crate::output::Output;
use crate::table::harmless;
use api::rest::nodes::{NodeItem, Plainly};
use client::OperatorApi;
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Revoke the recovery tokens of a node, because one may have been copied; its host gets a new one
    ///
    /// The token of a repair bundle is revoked too. The node keeps its certificate, and its host is given a new recovery
    /// token over its live stream: at once if it is connected, otherwise when it connects.
    Revoke {
        /// Id of the node (NODE in `enlist node list`), or its hostname if no other node has it
        id: String,
    },
}

pub async fn run(command: Command, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Revoke { id } => {
            let revoked = async |id: &str| {
                let path = Path::new("/v1/nodes").segment(id).segment("recovery").segment("revoke");
                operator.post::<NodeItem>(&path, &Plainly {}).await
            };
            let item = named::ask(operator, &id, revoked).await?;
            output.document(&item, human)
        }
    }
}

fn human(item: &NodeItem) -> String {
    let id = harmless(&item.node_id);
    format!(
        "node {id} has no valid recovery token now; if it keeps any, its host gets a new one once it is connected\n"
    )
}
