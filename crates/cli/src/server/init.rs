//! `enlist server init`: initializes a domain, and hands out the root key once.

mod from_taskrun;
mod summary;

use crate::error::CommandError;
use crate::output::Output;
use crate::private_file::{self, PrivateFile};
use crate::reach;
use ::server::config::{RawConfig, RawDoors};
use ::server::datadir::DataDir;
use ::server::from_taskrun::Document;
use ::server::init::{InitError, InitRequest, InitializedDomain, IssuerChoice, init};
use lifecycle::names::{ProfileName, TrustDomain};
use lifecycle::registry::{EPHEMERAL_LEAF, Policy};
use pki::seal::KekSource;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the trust domain, such as prod.example
    #[arg(long, value_name = "NAME", value_parser = TrustDomain::parse)]
    domain: TrustDomain,
    /// Key-encryption key that seals the CA key: file:PATH (created if missing) or env:NAME
    #[arg(long, value_name = "KEK")]
    kek: String,
    /// Address to listen on; repeatable [default: [::]:8443]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Host name or IP address by which hosts reach the control plane; repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// URL that nodes are given for the control plane; repeatable [default: from the first --name, else the
    /// listen address]
    #[arg(long, value_name = "URL")]
    advertise: Vec<String>,
    /// Default certificate profile of the domain: default, plfm, pact, probectl, taskrun or taskrun-prod
    #[arg(long, value_parser = ProfileName::parse)]
    profile: Option<ProfileName>,
    /// Compatibility API to serve: plfm, pact, probectl or taskrun; repeatable [default: all]
    #[arg(long, value_name = "API")]
    door: Vec<String>,
    /// Common name of the server certificate
    #[arg(long, value_name = "CN")]
    server_cn: Option<String>,
    /// Origin of the CA
    #[arg(long, value_enum, default_value_t)]
    issuer: IssuerSource,
    /// Certificate of the CA to import, PEM: the issuer first, then its parents, the root last
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "imported"))]
    ca_cert: Option<PathBuf>,
    /// Private key of the CA to import, PEM
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "imported"))]
    ca_key: Option<PathBuf>,
    /// Take the CA, the server certificate and lifetimes from the TOML configuration of a TaskRun control plane; a
    /// CA that this file names and that does not exist is created
    #[arg(long, value_name = "FILE", conflicts_with_all = ["issuer", "ca_cert", "ca_key", "profile"])]
    from_taskrun: Option<PathBuf>,
    /// Write the root key to this new file instead of printing it
    #[arg(long, value_name = "FILE")]
    root_key_out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum IssuerSource {
    /// Create a root, whose key is handed out once, and an intermediate, whose key is sealed
    #[default]
    Sealed,
    /// The same for operators and the control plane; certificates of nodes are signed by a CA that exists in memory only, made
    /// anew at every start
    Ephemeral,
    /// Import an existing CA with its key: --ca-cert and --ca-key
    Imported,
}

/// What another program's command says of a new domain; the rest is as usual.
pub struct InitOptions {
    pub domain: &'static str,
    pub profile: &'static str,
    pub kek: String,
    pub listen: Vec<String>,
    pub name: Vec<String>,
    pub root_key_out: Option<PathBuf>,
}

pub async fn initialize(options: InitOptions, dir: DataDir, output: Output) -> Result<(), CommandError> {
    let unusable = |error: &dyn std::fmt::Display| CommandError::fault("domain", error.to_string());
    let arguments = Arguments {
        domain: TrustDomain::parse(options.domain).map_err(|error| unusable(&error))?,
        kek: options.kek,
        listen: options.listen,
        name: options.name,
        advertise: Vec::new(),
        profile: Some(ProfileName::parse(options.profile).map_err(|error| unusable(&error))?),
        door: Vec::new(),
        server_cn: None,
        issuer: IssuerSource::Sealed,
        ca_cert: None,
        ca_key: None,
        from_taskrun: None,
        root_key_out: options.root_key_out,
    };
    run(arguments, dir, output).await
}

pub async fn run(arguments: Arguments, dir: DataDir, output: Output) -> Result<(), CommandError> {
    let document = arguments.from_taskrun.as_deref().map(from_taskrun::load).transpose()?;
    let issuer = match &document {
        Some(document) => from_taskrun::issuer(document, arguments.root_key_out.is_some())?,
        None => issuer(&arguments)?,
    };
    let issuer_word = issuer_word(&issuer);
    let profile = profile(&arguments)?.unwrap_or_else(ProfileName::default_profile);
    let lowered = lowered(&issuer, &profile);
    let made = document.as_ref().filter(|document| document.makes_ca);
    let root_key_out = arguments.root_key_out.clone().or_else(|| made.map(|made| made.ca_key.clone()));
    made.map(from_taskrun::create_folders).transpose()?;
    let key_file = root_key_out.as_deref().map(PrivateFile::create).transpose()?;
    let request = InitRequest {
        dir: dir.clone(),
        domain: arguments.domain.clone(),
        profile,
        config: config(&arguments, document.as_ref())?,
        issuer,
        policy: document.as_ref().map(|document| document.policy.clone()).unwrap_or_default(),
        user: user(),
    };
    let mut initialized = match init(request).await {
        Ok(initialized) => initialized,
        Err(error) => {
            key_file.into_iter().for_each(PrivateFile::discard);
            return Err(error.into());
        }
    };
    initialized.warnings.extend(lowered);
    write_root_key(&initialized, key_file)?;
    if let Some(document) = &document {
        from_taskrun::publish_ca(document, &mut initialized)?;
    }
    summary::print(&arguments, (dir.path(), issuer_word), &initialized, root_key_out.as_deref(), output)?;
    Ok(initialized.finish().map_err(InitError::from)?)
}

fn issuer_word(issuer: &IssuerChoice) -> &'static str {
    match issuer {
        IssuerChoice::Sealed => "sealed",
        IssuerChoice::Ephemeral => "ephemeral",
        IssuerChoice::Imported { .. } => "imported",
    }
}

/// What the profile would have been elsewhere.
fn lowered(issuer: &IssuerChoice, profile: &ProfileName) -> Option<String> {
    let lifetime = Policy::default().profiles.get(profile)?.lifetime;
    let is_shorter = matches!(issuer, IssuerChoice::Ephemeral) && lifetime > EPHEMERAL_LEAF;
    is_shorter.then(|| {
        format!(
            "certificates of profile {profile} live {EPHEMERAL_LEAF} here, and not {lifetime}: that is the most in a domain \
             with ephemeral issuers"
        )
    })
}

fn write_root_key(
    initialized: &InitializedDomain,
    key_file: Option<PrivateFile>,
) -> Result<(), CommandError> {
    match (&initialized.root_key_pem, key_file) {
        (Some(key), Some(mut file)) => file.write(key.as_bytes()),
        _ => Ok(()),
    }
}

fn issuer(arguments: &Arguments) -> Result<IssuerChoice, CommandError> {
    match (arguments.issuer, &arguments.ca_cert, &arguments.ca_key) {
        (IssuerSource::Sealed, None, None) => Ok(IssuerChoice::Sealed),
        (IssuerSource::Ephemeral, None, None) => Ok(IssuerChoice::Ephemeral),
        (IssuerSource::Imported, Some(_), Some(_)) if arguments.root_key_out.is_some() => {
            Err(CommandError::usage("an imported CA has no root key to write", "omit --root-key-out"))
        }
        (IssuerSource::Imported, Some(cert), Some(key)) => {
            let key = private_file::read(key, "make another CA")?;
            Ok(IssuerChoice::Imported { certificates: reach::read(cert)?, key })
        }
        _ => Err(CommandError::usage(
            "--ca-cert and --ca-key are used with --issuer imported only",
            "give all three or none",
        )),
    }
}

fn config(arguments: &Arguments, document: Option<&Document>) -> Result<RawConfig, CommandError> {
    let profile = profile(arguments)?;
    Ok(RawConfig {
        listen: arguments.listen.clone(),
        names: arguments.name.clone(),
        advertise: arguments.advertise.clone(),
        kek: Some(kek(&arguments.kek)?),
        server_cn: arguments.server_cn.clone().or_else(|| default_cn(profile.as_ref()?)),
        own_certificate: document.map(from_taskrun::server_certificate).transpose()?.unwrap_or_default(),
        doors: RawDoors { serve: Some(arguments.door.clone()).filter(|doors| !doors.is_empty()) },
        ..RawConfig::default()
    })
}

/// The file is found again from wherever the control plane is started.
fn kek(text: &str) -> Result<String, CommandError> {
    match KekSource::parse(text) {
        Ok(KekSource::File(path)) => Ok(KekSource::File(reach::absolute(&path)?).to_string()),
        // Reported with every other mistake of the configuration.
        _ => Ok(text.to_owned()),
    }
}

/// The TaskRun document's file asks for its profile.
fn profile(arguments: &Arguments) -> Result<Option<ProfileName>, CommandError> {
    match (&arguments.profile, &arguments.from_taskrun) {
        (None, Some(_)) => ProfileName::parse("taskrun")
            .map(Some)
            .map_err(|error| CommandError::fault("profile", error.to_string())),
        (profile, _) => Ok(profile.clone()),
    }
}

/// Workers of that document look for this name.
fn default_cn(profile: &ProfileName) -> Option<String> {
    matches!(profile.as_str(), "taskrun" | "taskrun-prod").then(|| "taskrun-control-plane".to_owned())
}

/// The user who initializes the domain, for the audit trail: the name that the operator socket would give.
pub fn user() -> String {
    server::user_name(rustix::process::getuid().as_raw())
}
