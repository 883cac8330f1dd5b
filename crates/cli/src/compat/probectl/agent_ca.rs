//! `probectl-control agent-ca`: initializing the domain `probectl`, and what verifies its agents.

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::{ca, server};
use ::server::datadir::DataDir;
use api::rest::ca::BundleQuery;
use pki::seal::KekSource;
use std::path::{Path, PathBuf};

/// The trust domain that 002 pins.
const DOMAIN: &str = "probectl";
const KEK: &str = "ENLIST_KEK";

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create the root and the issuing intermediate; the root key is printed only once and stored nowhere
    ///
    /// The data directory is --dir or ENLIST_DIR. The key of the intermediate is sealed with the key-encryption key of
    /// --kek or ENLIST_KEK, else with a new one in the data directory.
    Init(Arguments),
    /// Write the trust bundle that verifies agents, PEM: roots and issuers
    Export {
        /// File to write; `-` is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Key-encryption key: file:PATH (created if missing) or env:NAME [default: ENLIST_KEK, else
    /// file:DIR/keys/kek]
    #[arg(long, value_name = "KEK")]
    kek: Option<String>,
    /// Address that the control plane listens on; repeatable [default: [::]:8443]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Host name or IP address by which agents reach the control plane; repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Write the root key to this new file instead of printing it
    #[arg(long, value_name = "FILE")]
    root_key_out: Option<PathBuf>,
}

pub async fn run(command: Command, reach: Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::Init(arguments) => {
            let dir = reach.data_dir()?;
            let kek = arguments.kek.or_else(|| std::env::var(KEK).ok().filter(|kek| !kek.is_empty()));
            let kek = kek.unwrap_or_else(|| KekSource::File(dir.join("keys/kek")).to_string());
            let options = server::InitOptions {
                domain: DOMAIN,
                profile: DOMAIN,
                kek,
                listen: arguments.listen,
                name: arguments.name,
                root_key_out: arguments.root_key_out,
            };
            server::initialize(options, DataDir::new(dir), output).await
        }
        Command::Export { file } => {
            let query = BundleQuery { nodes: Some(true), ..BundleQuery::default() };
            let pem = ca::trust_bundle(&reach, &query).await?;
            if file == Path::new("-") {
                return output.document(&serde_json::json!({ "pem": pem }), |_| pem.clone());
            }
            std::fs::write(&file, &pem).map_err(|error| CommandError::file(&file, &error))?;
            let path = file.display().to_string();
            output.document(&serde_json::json!({ "file": path }), |_| {
                format!("the trust bundle is written to {path}\n")
            })
        }
    }
}
