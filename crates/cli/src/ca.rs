//! `enlist ca`: what is trusted and what signs.

use crate::failure::Failure;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone};
use api::rest::ca::{BundleQuery, Ca};
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show root, issuers and how far the trust bundle has spread
    Show,
    /// Write PEM to standard output: what verifies nodes
    Export {
        /// Without a URL: what hosts trust to reach the control plane instead; with one: as everywhere
        // The word has two meanings here: the one of this command, and the global flag's.
        #[arg(long, id = "server_trust", value_name = "URL")]
        server: Option<Option<String>>,
        /// Takes the place of the global flag, whose name is taken.
        #[arg(long, id = "server", value_name = "URL", hide = true)]
        server_url: Option<String>,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), Failure> {
    match command {
        Command::Show => {
            let operator = reach.operator()?;
            let ca: Ca = operator.get(&Path::new("/v1/ca")).await?;
            output.document(&ca, text)
        }
        Command::Export { server, server_url: _ } => {
            let url = server.clone().flatten().or_else(|| reach.server.clone());
            let operator = Reach { server: url, ..reach.clone() }.operator()?;
            let query = BundleQuery { server: (server == Some(None)).then_some(true) };
            let pem = operator.text(&Path::new("/v1/ca/bundle").queries(&query)?).await?;
            output.document(&serde_json::json!({ "pem": pem }), |_| pem.clone())
        }
    }
}

fn text(ca: &Ca) -> String {
    let adoption = format!("{} of {} nodes have it", ca.adoption.current, ca.adoption.total);
    let fields = Fields::new()
        .with("root", &ca.root.fingerprint)
        .with("root until", &ca.root.not_after)
        .with("bundle", &format!("version {}, {adoption}", ca.bundle_version));
    let mut table = Table::new(["ISSUER", "KIND", "STATE", "UNTIL", "LEAVES", "SUBJECT"], "no issuers");
    for issuer in &ca.issuers {
        let leaves = issuer.leaves.to_string();
        let cells = [&issuer.id, &issuer.kind, &issuer.state, &issuer.not_after, &leaves, &issuer.subject];
        table.row(Tone::Plain, cells.map(String::as_str));
    }
    format!("{}\n{}", fields.text(), table.text())
}
