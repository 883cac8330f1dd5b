//! `enlist vcluster`: groups of nodes with a configuration of their own.

use crate::document_file;
use crate::error::CommandError;
use crate::fields::Fields;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone, harmless, harmless_lines};
use api::rest::vclusters::{CreateVclusterRequest, VclusterDefaults, VclusterDetail, VclusterItem};
use client::OperatorApi;
use client::rest::Path;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create a vCluster
    Create {
        /// Name of the new vCluster
        name: String,
        /// Tenant of the vCluster and of its nodes [default: the operator's only tenant, else `default`]
        #[arg(long)]
        tenant: Option<String>,
    },
    /// List vClusters
    List,
    /// Show a vCluster and its configuration, or the domain's defaults
    Show {
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        #[arg(required_unless_present = "defaults", conflicts_with = "defaults")]
        name: Option<String>,
        /// Show the configuration of nodes in no vCluster
        #[arg(long)]
        defaults: bool,
    },
    /// Set the configuration document of a vCluster, or the domain's defaults; its nodes are told at once
    SetConfig {
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        #[arg(required_unless_present = "defaults", conflicts_with = "defaults")]
        name: Option<String>,
        /// Set the configuration of nodes in no vCluster
        #[arg(long)]
        defaults: bool,
        /// File with a JSON object of at most 262,144 bytes, or `-` for standard input
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove a vCluster; refused while nodes are in it
    Remove {
        /// Name of the vCluster (VCLUSTER in `enlist vcluster list`)
        name: String,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    let (path, defaults) = (Path::new("/v1/vclusters"), Path::new("/v1/vcluster-defaults"));
    match command {
        Command::Create { name, tenant } => {
            let made: VclusterItem = operator.post(&path, &CreateVclusterRequest { name, tenant }).await?;
            output.document(&made, |made| format!("vCluster {} is created\n", harmless(&made.name)))
        }
        Command::List => {
            let items: Vec<VclusterItem> = operator.list(&path).await?;
            output.list(&items, table)
        }
        Command::Show { name: Some(name), .. } => {
            let vcluster: VclusterDetail = operator.get(&path.segment(&name)).await?;
            output.document(&vcluster, text)
        }
        Command::Show { name: None, .. } => {
            let shown: VclusterDefaults = operator.get(&defaults).await?;
            output.document(&shown, |shown| document(Fields::new(), shown.version, shown))
        }
        Command::SetConfig { name: Some(name), file, .. } => {
            set_config(&operator, &path.segment(&name).segment("config"), &file, output).await
        }
        Command::SetConfig { name: None, file, .. } => {
            let set: VclusterDefaults = operator.put_document(&defaults, document_file::read(&file)?).await?;
            output.document(&set, |set| format!("the defaults have version {}\n", set.version))
        }
        Command::Remove { name } => {
            operator.delete(&path.segment(&name)).await?;
            let done = serde_json::json!({ "name": name, "removed": true });
            output.document(&done, |_| format!("vCluster {} is removed\n", harmless(&name)))
        }
    }
}

async fn set_config(
    operator: &OperatorApi,
    path: &Path,
    file: &std::path::Path,
    output: Output,
) -> Result<(), CommandError> {
    let set: VclusterItem = operator.put_document(path, document_file::read(file)?).await?;
    output.document(&set, |set| {
        format!("vCluster {} has configuration version {}\n", harmless(&set.name), set.version)
    })
}

fn table(items: &[VclusterItem]) -> Table {
    let head = ["VCLUSTER", "VERSION", "NODES", "TENANT", "CREATED", "CREATED BY"];
    let mut table = Table::new(head, "no vClusters").dropping(["CREATED BY", "CREATED", "TENANT"]);
    for item in items {
        let (version, nodes) = (item.version.to_string(), item.nodes.to_string());
        table.row(
            Tone::Plain,
            [&item.name, &version, &nodes, &item.tenant, &item.created_at, &item.created_by],
        );
    }
    table
}

fn text(vcluster: &VclusterDetail) -> String {
    let fields = Fields::new()
        .with("vCluster", &vcluster.name)
        .with("tenant", &vcluster.tenant)
        .with("nodes", &vcluster.nodes.to_string())
        .with("created", &format!("{} by {}", vcluster.created_at, vcluster.created_by));
    let shown = VclusterDefaults {
        version: vcluster.version,
        checksum: vcluster.checksum.clone(),
        config: vcluster.config.clone(),
    };
    document(fields, vcluster.version, &shown)
}

/// The document as people read JSON, below what is said of it.
fn document(fields: Fields, version: u64, shown: &VclusterDefaults) -> String {
    let fields = fields.with("version", &version.to_string()).with("checksum", &shown.checksum);
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(shown.config.get());
    let pretty = parsed.and_then(|value| serde_json::to_string_pretty(&value));
    let pretty = pretty.unwrap_or_else(|_| shown.config.get().to_owned());
    format!("{}\n{}\n", fields.text(), harmless_lines(&pretty))
}
