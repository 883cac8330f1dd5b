//! `enlist overlay`: the WireGuard network between hosts.

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone, or_dash};
use api::rest::overlay::{OverlayPlace, OverlayStatusItem, OverlayStatusQuery};
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show every host of the overlay: its peers, how old its handshakes are, and where registry and host differ
    Status {
        /// Show only hosts of this tenant
        #[arg(long)]
        tenant: Option<String>,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    match command {
        Command::Status { tenant } => {
            let query = OverlayStatusQuery { tenant, ..OverlayStatusQuery::default() };
            let items: Vec<OverlayStatusItem> =
                operator.list(&Path::new("/v1/overlay").queries(&query)?).await?;
            output.list(&items, table)
        }
    }
}

fn table(items: &[OverlayStatusItem]) -> Table {
    let head = [
        "NODE",
        "VCLUSTER",
        "ADDRESS",
        "ENDPOINT",
        "STATE",
        "PEERS",
        "TOLD",
        "APPLIED",
        "OLDEST HANDSHAKE",
        "DIFFERS",
    ];
    let empty = "no host has a place in the overlay";
    let mut table = Table::new(head, empty).painting("DIFFERS").cutting("DIFFERS").dropping([
        "VCLUSTER",
        "OLDEST HANDSHAKE",
        "TOLD",
        "ENDPOINT",
        "APPLIED",
    ]);
    let count = |place: Option<OverlayPlace>| place.map(|place| place.peers.to_string());
    for item in items {
        let tone = if item.differs.is_empty() { Tone::Plain } else { Tone::Attention };
        let state = match (&item.state, &item.reason) {
            (Some(state), Some(reason)) => format!("{state} ({reason})"),
            (Some(state), None) => state.clone(),
            (None, _) => "-".to_owned(),
        };
        let (told, applied) = (count(item.told), count(item.applied));
        let oldest = item.oldest_handshake_s.map(|seconds| format!("{seconds}s"));
        let all = Some(item.underlay_endpoints.join(", ")).filter(|all| !all.is_empty());
        let endpoints = all.or_else(|| item.underlay_endpoint.clone());
        let differs = item.differs.join(", ");
        table.row(
            tone,
            [
                &item.node_id,
                or_dash(item.vcluster.as_deref()),
                or_dash(item.address.as_deref()),
                or_dash(endpoints.as_deref()),
                &state,
                &item.peers.to_string(),
                or_dash(told.as_deref()),
                or_dash(applied.as_deref()),
                or_dash(oldest.as_deref()),
                if differs.is_empty() { "-" } else { &differs },
            ],
        );
    }
    table
}
