//! `enlist operator`: who may run the fleet.

mod identity;
mod key;
mod renew;
mod replacement;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::reach::ca_trust;
use crate::reach::target::Target;
use crate::table::{Table, Tone, harmless, or_dash};
use api::rest::operators::{AddOperatorRequest, AddedOperator, OperatorItem, RemovedOperator};
use api::rest::scope::TenantScope;
use client::rest::Path;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Add an operator; with --out also issue a certificate
    ///
    /// The key is made on this machine and written to the directory, which has to be moved to the operator's machine. With --csr the
    /// operator makes the key, and nobody else ever has it.
    Add {
        /// Name of the operator
        name: String,
        #[command(flatten)]
        rights: Rights,
        /// Issue a certificate and write cert.pem, key.pem, ca.pem, ca-crls.pem (if the root has denied
        /// an issuer) and context.toml to this directory
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Certify the key of this certificate signing request, PKCS#10 in PEM, instead of making one
        #[arg(long, value_name = "FILE", requires = "out")]
        csr: Option<PathBuf>,
    },
    /// Renew your own certificate: make a new key and replace both files
    ///
    /// Asks with the certificate in use, from the context or the flags --server, --cert, --key and --ca. Role, tenants
    /// and identity stay the same. The old certificate stays valid until the new one is first used, which this command
    /// does at the end, unless --out is given. An expired certificate cannot be renewed. The CA file is brought up to
    /// date first, as by `enlist ca update-trust`.
    Renew {
        /// Write the new files into this directory instead, and leave the old ones
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// List operators
    List,
    /// Remove an operator; its certificates and API keys are refused from then on
    ///
    /// Revokes the API keys that carry its name, those that it made under another name, and those that were made with any of these,
    /// and prints their ids. CREATED BY in `enlist operator key list` says who made a key.
    Remove {
        /// Name of the operator (OPERATOR in `enlist operator list`)
        name: String,
    },
    /// Create, list and revoke API keys, for automation
    #[command(subcommand)]
    Key(key::Command),
}

/// What an operator or a key may do, and where.
#[derive(Debug, clap::Args)]
pub struct Rights {
    /// Role: viewer, operator or platform-admin
    #[arg(long)]
    role: String,
    /// Limit the role to this tenant; repeatable [default: all tenants]
    #[arg(long)]
    tenant: Vec<String>,
    /// Narrow the role operator to assigning, moving and reading the nodes of this vCluster; repeatable
    #[arg(long)]
    vcluster: Vec<String>,
}

impl Rights {
    fn scope(&self) -> Option<TenantScope> {
        match self.tenant.as_slice() {
            [] => None,
            [only] => Some(TenantScope::One(only.clone())),
            several => Some(TenantScope::Several(several.to_vec())),
        }
    }
}

impl Rights {
    fn request(&self, name: String, csr: Option<String>) -> AddOperatorRequest {
        let (role, vcluster) = (self.role.clone(), self.vcluster.clone().into());
        AddOperatorRequest { name, role, tenant: self.scope(), vcluster, csr }
    }
}

/// What a role is for, as people read it.
fn narrowed(tenant: Option<&TenantScope>, vclusters: &[String]) -> String {
    match vclusters {
        [] => tenants(tenant),
        names => format!("{} (vCluster {})", tenants(tenant), names.join(", ")),
    }
}

/// Tenants as people read them.
fn tenants(scope: Option<&TenantScope>) -> String {
    match scope {
        None => "all".to_owned(),
        Some(TenantScope::One(name)) => name.clone(),
        Some(TenantScope::Several(names)) => names.join(", "),
    }
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    if let Command::Renew { out } = command {
        return renew::run(reach, out.as_deref(), output).await;
    }
    let operator = reach.operator()?;
    let path = Path::new("/v1/operators");
    match command {
        // Above: it says as whom it comes in its own way.
        Command::Renew { .. } => Ok(()),
        Command::Add { name, rights, out: None, csr: _ } => {
            let request = rights.request(name, None);
            let added: AddedOperator = operator.post(&path, &request).await?;
            output.document(&added, |added| {
                let name = harmless(&added.name);
                let said = format!("operator {name} is added, without a certificate; create an API key with `enlist operator key create`, or remove the operator and add it again with --out DIR\n");
                output.screen().hang(0, 0, &said)
            })
        }
        Command::Add { name, rights, out: Some(dir), csr } => {
            let target = reach.chosen()?.target;
            let (ca, _) = ca_trust::follow(&target, &dir.join("ca.pem")).await?;
            let files = identity::IdentityFiles::prepare(&dir, csr.as_deref())?;
            let request = rights.request(name, Some(files.request()?));
            let added: AddedOperator = match operator.post(&path, &request).await {
                Ok(added) => added,
                Err(error) => {
                    files.discard();
                    return Err(error.into());
                }
            };
            // The caller's own addresses are known to work; on the socket only the control plane knows them.
            let servers = match target {
                Target::Server { servers, .. } => servers,
                Target::Socket(_) => added.servers(),
            };
            files.finish(&identity::OperatorCertificate::of(&added, &ca, &servers)?)?;
            output.document(&added, |added| {
                identity::text(added, &dir, (!servers.is_empty(), csr.is_none()), output.screen())
            })
        }
        Command::List => {
            let items: Vec<OperatorItem> = operator.list(&path).await?;
            output.list(&items, table)
        }
        Command::Remove { name } => {
            let removed: RemovedOperator = operator.remove(&path.segment(&name)).await?;
            output.document(&removed, removed_text)
        }
        Command::Key(command) => key::run(command, &operator, output).await,
    }
}

fn removed_text(removed: &RemovedOperator) -> String {
    let name = harmless(&removed.name);
    let keys: String = removed.keys_revoked.iter().map(|id| format!("  {}\n", harmless(id))).collect();
    match removed.keys_revoked.len() {
        0 => format!("operator {name} is removed\n"),
        1 => format!(
            "operator {name} is removed, and 1 API key is revoked with it (KEY ID in `enlist operator key list`):\n{keys}"
        ),
        many => format!(
            "operator {name} is removed, and {many} API keys are revoked with it (KEY ID in `enlist operator key list`):\n{keys}"
        ),
    }
}

fn table(items: &[OperatorItem]) -> Table {
    let head = ["OPERATOR", "ROLE", "TENANTS", "CERT UNTIL", "ADDED", "ADDED BY"];
    let mut table =
        Table::new(head, "no operators; the operator socket in the data directory works without one");
    for item in items {
        let tenants = narrowed(item.tenant.as_ref(), &item.vclusters);
        let until = or_dash(item.cert_not_after.as_deref());
        table.row(Tone::Plain, [&item.name, &item.role, &tenants, until, &item.added_at, &item.added_by]);
    }
    table
}
