//! `enlist operator key`: an operator's automation.

use super::{Rights, narrowed};
use crate::command_line::duration;
use crate::error::CommandError;
use crate::error::not_the_secret;
use crate::fields::Fields;
use crate::output::Output;
use crate::screen::Screen;
use crate::table::{Table, Tone, harmless};
use api::rest::operators::{CreateOperatorKeyRequest, CreatedKey, KeyItem};
use client::OperatorApi;
use client::rest::Path;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create an API key; its value is shown only once
    Create {
        /// Name of the key, such as the program that uses it
        name: String,
        #[command(flatten)]
        rights: Rights,
        /// Lifetime of the key, such as 30d [default: 90d]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires: Option<String>,
    },
    /// List API keys
    List,
    /// Revoke an API key
    Revoke {
        /// Id of the key (KEY ID in `enlist operator key list`), not its value
        id: String,
    },
}

pub async fn run(command: Command, operator: &OperatorApi, output: Output) -> Result<(), CommandError> {
    let path = Path::new("/v1/operator-keys");
    match command {
        Command::Create { name, rights, expires } => {
            let request = CreateOperatorKeyRequest {
                name,
                role: rights.role.clone(),
                tenant: rights.scope(),
                vcluster: rights.vcluster.clone().into(),
                expires,
            };
            let created: CreatedKey = operator.post(&path, &request).await?;
            output.document(&created, |created| text(created, output.screen()))
        }
        Command::List => {
            let items: Vec<KeyItem> = operator.list(&path).await?;
            output.list(&items, table)
        }
        Command::Revoke { id } => {
            not_the_secret(&id, server::chance::KEY_PREFIX)?;
            operator.delete(&path.segment(&id)).await?;
            let done = serde_json::json!({ "key_id": id, "state": "revoked" });
            output.document(&done, |_| format!("API key {} is revoked\n", harmless(&id)))
        }
    }
}

fn text(created: &CreatedKey, screen: Screen) -> String {
    let fields = Fields::new()
        .with("key", created.key.reveal())
        .with("id", &created.key_id)
        .with("name", &created.name)
        .with("role", &created.role)
        .with("tenants", &narrowed(created.tenant.as_ref(), &created.vclusters))
        .with("expires", &created.expires_at);
    let advice =
        "Store the key in a file that only its user can read, and pass that file with --api-key-file.";
    format!("{}\n{}\n", fields.text(), screen.hang(0, 0, advice))
}

fn table(items: &[KeyItem]) -> Table {
    let head = ["KEY ID", "NAME", "STATE", "ROLE", "TENANTS", "EXPIRES", "CREATED BY"];
    let mut table = Table::new(head, "no API keys");
    for item in items {
        let tone = if item.state == "good" { Tone::Plain } else { Tone::Gone };
        let tenants = narrowed(item.tenant.as_ref(), &item.vclusters);
        let (id, by) = (&item.key_id, &item.created_by);
        table.row(tone, [id, &item.name, &item.state, &item.role, &tenants, &item.expires_at, by]);
    }
    table
}
