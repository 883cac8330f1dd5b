//! `enlist tenant`: sub-scopes of the domain.

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::{Table, Tone, harmless};
use api::rest::tenants::{CreateTenantRequest, TenantItem};
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create a tenant
    Create {
        /// Name of the new tenant
        name: String,
    },
    /// List tenants
    List,
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let operator = reach.operator()?;
    let path = Path::new("/v1/tenants");
    match command {
        Command::Create { name } => {
            let made: TenantItem = operator.post(&path, &CreateTenantRequest { name }).await?;
            output.document(&made, |made| format!("tenant {} is created\n", harmless(&made.name)))
        }
        Command::List => {
            let items: Vec<TenantItem> = operator.list(&path).await?;
            output.list(&items, table)
        }
    }
}

fn table(items: &[TenantItem]) -> Table {
    let mut table = Table::new(["TENANT", "CREATED", "CREATED BY"], "no tenants");
    for item in items {
        table.row(Tone::Plain, [&item.name, &item.created_at, &item.created_by]);
    }
    table
}
