//! `enlist operator key`: an operator's automation.

use super::{Rights, narrowed};
use crate::command_line::duration;
use crate::error::CommandError;
use crate::error::not_the_secret;
use crate::fields::Fields;
use crate::output::Output;
use crate::private_file::{PrivateFile, sync_dir};
use crate::screen::Screen;
use crate::table::{Table, Tone, harmless};
use api::rest::operators::{CreateOperatorKeyRequest, CreatedKey, KeyItem};
use api::rest::scope::TenantScope;
use client::OperatorApi;
use client::rest::Path;
use serde::Serialize;
use std::path::PathBuf;

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
        /// Write the key to this new file, readable by this user alone, instead of printing it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
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
        Command::Create { name, rights, expires, out } => {
            let mut file = out.as_deref().map(PrivateFile::create).transpose()?;
            let request = CreateOperatorKeyRequest {
                name,
                role: rights.role.clone(),
                tenant: rights.scope(),
                vcluster: rights.vcluster.clone().into(),
                expires,
            };
            let created: CreatedKey = operator.post(&path, &request).await?;
            let Some((file, out)) = file.as_mut().zip(out) else {
                return output.document(&created, |created| text(created, output.screen()));
            };
            // It cannot be had again, so what is there of it stays.
            file.keep();
            file.write(format!("{}\n", created.key.reveal()).as_bytes())?;
            sync_dir(&out)?;
            let written = WrittenKey {
                key_id: created.key_id,
                name: created.name,
                role: created.role,
                tenant: created.tenant,
                vclusters: created.vclusters,
                expires_at: created.expires_at,
                out: out.display().to_string(),
            };
            output.document(&written, written_text)
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

/// A key that is in a file and nowhere else.
#[derive(Serialize)]
struct WrittenKey {
    key_id: String,
    name: String,
    role: String,
    tenant: Option<TenantScope>,
    vclusters: Vec<String>,
    expires_at: String,
    out: String,
}

fn written_text(written: &WrittenKey) -> String {
    let fields = Fields::new()
        .with("key", &written.out)
        .with("id", &written.key_id)
        .with("name", &written.name)
        .with("role", &written.role)
        .with("tenants", &narrowed(written.tenant.as_ref(), &written.vclusters))
        .with("expires", &written.expires_at);
    format!("{}\nPass the file with --api-key-file.\n", fields.text())
}

fn text(created: &CreatedKey, screen: Screen) -> String {
    let fields = Fields::new()
        .with("key", created.key.reveal())
        .with("id", &created.key_id)
        .with("name", &created.name)
        .with("role", &created.role)
        .with("tenants", &narrowed(created.tenant.as_ref(), &created.vclusters))
        .with("expires", &created.expires_at);
    let advice = "Store the key in a file that only its user can read (--out FILE writes one), and pass that file with --api-key-file.";
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
