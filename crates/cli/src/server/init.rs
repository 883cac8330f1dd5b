//! `enlist server init`: founds a domain, and hands out the root key once.

mod told;

use super::trouble;
use crate::failure::Failure;
use crate::output::Output;
use crate::private_file::PrivateFile;
use crate::reach;
use ::server::config::Raw;
use ::server::datadir::DataDir;
use ::server::init::{Founded, IssuerChoice, Request, init};
use lifecycle::names::{ProfileName, TrustDomain};
use pki::seal::KekSource;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the trust domain, such as prod.example
    #[arg(long, value_name = "NAME", value_parser = TrustDomain::parse)]
    domain: TrustDomain,
    /// What the CA key is sealed with: file:PATH (made if missing) or env:NAME
    #[arg(long, value_name = "KEK")]
    kek: String,
    /// Where to listen; repeatable [default: [::]:8443]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// A name or address that hosts call it by; repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Where nodes are told to go [default: from the first --name, else where it listens]
    #[arg(long, value_name = "URL")]
    advertise: Vec<String>,
    /// The domain's default profile: default, plfm, pact, probectl, taskrun or taskrun-prod
    #[arg(long, value_parser = ProfileName::parse)]
    profile: Option<ProfileName>,
    /// Common name of the server's certificate
    #[arg(long, value_name = "CN")]
    server_cn: Option<String>,
    /// Where the CA comes from
    #[arg(long, value_enum, default_value_t)]
    issuer: Issuer,
    /// The CA to import: its certificate, then its parents, root last
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "imported"))]
    ca_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "imported"))]
    ca_key: Option<PathBuf>,
    /// Write the root key to this new file instead of printing it
    #[arg(long, value_name = "FILE")]
    root_key_out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Issuer {
    /// A new root, whose key is given out once, and an intermediate whose key is sealed
    #[default]
    Sealed,
    /// A CA that exists, with its key
    Imported,
}

pub async fn run(arguments: Arguments, dir: DataDir, output: Output) -> Result<(), Failure> {
    let issuer = issuer(&arguments)?;
    let key_file = arguments.root_key_out.as_deref().map(PrivateFile::create).transpose()?;
    let request = Request {
        dir: dir.clone(),
        domain: arguments.domain.clone(),
        profile: arguments.profile.clone().unwrap_or_else(ProfileName::default_profile),
        config: config(&arguments)?,
        issuer,
        user: user(),
    };
    let founded = match init(request).await {
        Ok(founded) => founded,
        Err(error) => {
            key_file.into_iter().for_each(PrivateFile::discard);
            return Err(trouble::founding(error));
        }
    };
    hand_out(&founded, key_file)?;
    told::tell(&arguments.domain, dir.path(), &founded, arguments.root_key_out.as_deref(), output)?;
    founded.finish().map_err(|error| trouble::founding(error.into()))
}

fn hand_out(founded: &Founded, key_file: Option<PrivateFile>) -> Result<(), Failure> {
    match (&founded.root_key_pem, key_file) {
        (Some(key), Some(mut file)) => file.write(key.as_bytes()),
        _ => Ok(()),
    }
}

fn issuer(arguments: &Arguments) -> Result<IssuerChoice, Failure> {
    match (arguments.issuer, &arguments.ca_cert, &arguments.ca_key) {
        (Issuer::Sealed, None, None) => Ok(IssuerChoice::Sealed),
        (Issuer::Imported, Some(_), Some(_)) if arguments.root_key_out.is_some() => {
            Err(Failure::usage("an imported CA has no root key to write", "leave --root-key-out out"))
        }
        (Issuer::Imported, Some(cert), Some(key)) => {
            let key = zeroize::Zeroizing::new(reach::read(key)?);
            Ok(IssuerChoice::Imported { certificates: reach::read(cert)?, key })
        }
        _ => {
            Err(Failure::usage("--ca-cert and --ca-key go with --issuer imported", "give all three or none"))
        }
    }
}

fn config(arguments: &Arguments) -> Result<Raw, Failure> {
    Ok(Raw {
        listen: arguments.listen.clone(),
        names: arguments.name.clone(),
        advertise: arguments.advertise.clone(),
        kek: Some(kek(&arguments.kek)?),
        server_cn: arguments.server_cn.clone().or_else(|| default_cn(arguments.profile.as_ref()?)),
        ..Raw::default()
    })
}

/// The file is found again from wherever the control plane is started.
fn kek(text: &str) -> Result<String, Failure> {
    match KekSource::parse(text) {
        Ok(KekSource::File(path)) => Ok(KekSource::File(reach::absolute(&path)?).to_string()),
        // What is wrong is told with every other mistake.
        _ => Ok(text.to_owned()),
    }
}

/// Workers of that document look for this name.
fn default_cn(profile: &ProfileName) -> Option<String> {
    matches!(profile.as_str(), "taskrun" | "taskrun-prod").then(|| "taskrun-control-plane".to_owned())
}

/// Who founds the domain, for the record: the name that the operator socket would give.
pub fn user() -> String {
    server::user_name(rustix::process::getuid().as_raw())
}
