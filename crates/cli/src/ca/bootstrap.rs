//! `enlist ca bootstrap`: an identity that hosts share until they have one of their own.

use crate::error::CommandError;
use crate::output::Output;
use crate::private_file::{PrivateFile, own_directory};
use crate::reach::Reach;
use crate::table::{Table, Tone, harmless};
use api::rest::bootstrap::{BootstrapItem, IssueBootstrapRequest, IssuedBootstrap};
use client::rest::Path;
use pki::agent_key::HostKey;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the identity, such as that of the image that it is for
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Lifetime, 1m to 365d
    #[arg(long, value_name = "DURATION", default_value = "90d", conflicts_with_all = ["list", "revoke"])]
    expires: String,
    /// Write key.pem, cert.pem, chain.pem and ca.pem to this directory: `[bootstrap] dir` of the agents
    #[arg(long, value_name = "DIR", required_unless_present_any = ["list", "revoke"], conflicts_with_all = ["list", "revoke"])]
    out: Option<PathBuf>,
    /// List the bootstrap identities
    #[arg(long, conflicts_with_all = ["name", "revoke"])]
    list: bool,
    /// Revoke the identity: every certificate of this name is refused from now on
    #[arg(long)]
    revoke: bool,
}

pub async fn run(arguments: Arguments, reach: &Reach, output: Output) -> Result<(), CommandError> {
    let path = Path::new("/v1/ca/bootstrap");
    let operator = reach.operator()?;
    match arguments {
        Arguments { list: true, .. } => {
            let items: Vec<BootstrapItem> = operator.list(&path).await?;
            output.list(&items, table)
        }
        Arguments { name: Some(name), revoke: true, .. } => {
            operator.delete(&path.segment(&name)).await?;
            let done = serde_json::json!({ "name": name, "revoked": true });
            output.document(&done, |_| format!("bootstrap identity {} is revoked\n", harmless(&name)))
        }
        Arguments { name: Some(name), out: Some(dir), expires, .. } => {
            let files = BootstrapFiles::prepare(dir)?;
            let csr = files.key.csr_pem().map_err(|error| CommandError::fault("key", error.to_string()))?;
            let request = IssueBootstrapRequest { name, csr, expires: Some(expires) };
            // Without a certificate the key is of no use, and is removed when it is dropped.
            let issued: IssuedBootstrap = operator.post(&path, &request).await?;
            let dir = files.finish(&issued)?;
            output.document(&issued, |issued| {
                let said = format!(
                    "{} is issued until {}{}, in {}; put these files into the image of the hosts and name the directory as \
                     `[bootstrap] dir` in agent.toml\n",
                    harmless(&issued.spiffe_id),
                    harmless(&issued.not_after),
                    if issued.shortened { " (earlier than asked for: its issuer ends then)" } else { "" },
                    dir.display()
                );
                output.screen().hang(0, 0, &said)
            })
        }
        Arguments { .. } => Ok(()),
    }
}

/// The directory, with the key in it, before anyone is asked.
struct BootstrapFiles {
    dir: PathBuf,
    key: HostKey,
    key_file: PrivateFile,
}

impl BootstrapFiles {
    fn prepare(dir: PathBuf) -> Result<Self, CommandError> {
        let there = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        there.map_err(|error| CommandError::file(&dir, &error))?;
        own_directory(&dir)?;
        for name in ["cert.pem", "chain.pem", "ca.pem"] {
            let path = dir.join(name);
            if path.symlink_metadata().is_ok() {
                return Err(CommandError::exists(&path, "choose another --out directory"));
            }
        }
        let key = HostKey::generate().map_err(|error| CommandError::fault("key", error.to_string()))?;
        let mut key_file = PrivateFile::create(&dir.join("key.pem"))?;
        key_file.write(key.to_pem().as_bytes())?;
        Ok(Self { dir, key, key_file })
    }

    fn finish(mut self, issued: &IssuedBootstrap) -> Result<PathBuf, CommandError> {
        // A certificate of it is issued, whatever becomes of the other files.
        self.key_file.keep();
        let files = [("cert.pem", &issued.certificate), ("chain.pem", &issued.chain), ("ca.pem", &issued.ca)];
        for (name, text) in files {
            let path = self.dir.join(name);
            let made = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
            made.map_err(|error| CommandError::file(&path, &error))?;
        }
        Ok(self.dir)
    }
}

fn table(items: &[BootstrapItem]) -> Table {
    let head = ["BOOTSTRAP IDENTITY", "STATE", "VALID UNTIL", "CERTIFICATES", "ISSUED", "ISSUED BY"];
    let mut table = Table::new(head, "no bootstrap identities");
    for item in items {
        let certificates = match item.revoked {
            0 => item.valid.to_string(),
            revoked => format!("{} ({revoked} revoked)", item.valid),
        };
        table.row(
            Tone::Plain,
            [&item.name, &item.state, &item.not_after, &certificates, &item.issued_at, &item.issued_by],
        );
    }
    table
}
