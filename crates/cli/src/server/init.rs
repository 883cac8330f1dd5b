//! `enlist server init`: initializes a domain, and hands out the root key once.

mod from_taskrun;
pub mod step_ca;
mod summary;

use super::error::IMPORTED;
use super::serving::StopSignals;
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::private_file::{self, PrivateFile};
use crate::reach;
use ::server::config::{RawConfig, RawDoors, RawPkcs11};
use ::server::datadir::DataDir;
use ::server::from_taskrun::Document;
use ::server::init::{InitError, InitRequest, InitializedDomain, IssuerChoice, init};
use lifecycle::names::{ProfileName, TrustDomain};
use lifecycle::registry::{EPHEMERAL_LEAF, Policy};
use pki::pkcs11::PinSource;
use pki::seal::KekSource;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

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
    /// Address for connections between replicas, which is also what other replicas are told [default: the first listen address,
    /// port 8444]
    #[arg(long, value_name = "ADDR:PORT")]
    peer_listen: Option<String>,
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
    /// PKCS#11 library of the HSM that keeps the keys of issuers
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "pkcs11"))]
    pkcs11_module: Option<PathBuf>,
    /// Label of the token in it
    #[arg(long, value_name = "LABEL", required_if_eq("issuer", "pkcs11"))]
    pkcs11_token: Option<String>,
    /// Label of the node issuer's key; that of the server issuer has `-server` appended. A P-256 or P-384 key that has it is
    /// used, else a P-256 key is made that cannot be extracted
    #[arg(long, value_name = "LABEL", required_if_eq("issuer", "pkcs11"))]
    pkcs11_key: Option<String>,
    /// PIN of the token's user: file:PATH or env:NAME
    #[arg(long, value_name = "PIN", required_if_eq("issuer", "pkcs11"))]
    pkcs11_pin: Option<String>,
    /// URL of the step-ca that signs the certificates of nodes
    #[arg(long, value_name = "URL", required_if_eq("issuer", "step-ca"))]
    step_ca_url: Option<String>,
    /// Root certificate of it, PEM
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "step-ca"))]
    step_ca_root: Option<PathBuf>,
    /// Name of the JWK provisioner by which the control plane asks it
    #[arg(long, value_name = "NAME", required_if_eq("issuer", "step-ca"))]
    step_ca_provisioner: Option<String>,
    /// Private key of the provisioner: a JWK, as JSON or encrypted as `step` writes it. It is read once and sealed
    #[arg(long, value_name = "FILE", required_if_eq("issuer", "step-ca"))]
    step_ca_key: Option<PathBuf>,
    /// File with the password of that key
    #[arg(long, value_name = "FILE")]
    step_ca_password_file: Option<PathBuf>,
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
    /// Create a root, whose key is handed out once, and issuers whose keys stay in an HSM: --pkcs11-module, --pkcs11-token,
    /// --pkcs11-key and --pkcs11-pin
    Pkcs11,
    /// Import an existing CA with its key: --ca-cert and --ca-key
    Imported,
    /// As sealed for operators and the control plane; certificates of nodes are signed by a step-ca: --step-ca-url, --step-ca-root,
    /// --step-ca-provisioner and --step-ca-key
    StepCa,
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
        peer_listen: None,
        profile: Some(ProfileName::parse(options.profile).map_err(|error| unusable(&error))?),
        door: Vec::new(),
        server_cn: None,
        issuer: IssuerSource::Sealed,
        ca_cert: None,
        ca_key: None,
        pkcs11_module: None,
        pkcs11_token: None,
        pkcs11_key: None,
        pkcs11_pin: None,
        step_ca_url: None,
        step_ca_root: None,
        step_ca_provisioner: None,
        step_ca_key: None,
        step_ca_password_file: None,
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
    let config = config(&arguments, document.as_ref())?;
    let mut signals = StopSignals::listen()?;
    made.map(from_taskrun::create_folders).transpose()?;
    let key_file = root_key_out.as_deref().map(PrivateFile::create).transpose()?;
    let request = InitRequest {
        dir: dir.clone(),
        domain: arguments.domain.clone(),
        profile,
        config,
        issuer,
        policy: document.as_ref().map(|document| document.policy.clone()).unwrap_or_default(),
        user: user(),
    };
    let mut initialized = unless_interrupted(request, &mut signals).await?;
    initialized.warnings.extend(lowered);
    let key_file = write_root_key(&initialized, key_file)?;
    if let Some(document) = &document {
        from_taskrun::publish_ca(document, &mut initialized)?;
    }
    summary::print(&arguments, (dir.path(), issuer_word), &initialized, root_key_out.as_deref(), output)?;
    initialized.finish().map_err(InitError::from)?;
    // Of a domain that does not come to be, no key is left behind.
    key_file.into_iter().for_each(|mut file| file.keep());
    Ok(())
}

/// How long an interrupted initialization may take to end by itself, and then to clear away what it made. While it waits for an HSM,
/// it has made nothing.
const CLEARING_LIMIT: Duration = Duration::from_secs(1);

/// In a task of its own: it may be waiting for an HSM, or for a file, when the signal comes.
async fn unless_interrupted(
    request: InitRequest,
    signals: &mut StopSignals,
) -> Result<InitializedDomain, CommandError> {
    let mut task = tokio::spawn(init(request));
    let done = tokio::select! {
        done = &mut task => done,
        () = signals.next() => {
            // What it made goes away with its result, or with itself.
            if tokio::time::timeout(CLEARING_LIMIT, &mut task).await.is_err() {
                task.abort();
                let _ = tokio::time::timeout(CLEARING_LIMIT, task).await;
            }
            let message = "the initialization was interrupted; the data directory and the root key were not made";
            let hint = "run the command again; keys that were made in an HSM stay there, and are found by their labels";
            return Err(CommandError::new(Exit::Fault, "interrupted", message, hint));
        }
    };
    let done = done.map_err(|error| CommandError::fault("founding", error.to_string()))?;
    Ok(done?)
}

fn issuer_word(issuer: &IssuerChoice) -> &'static str {
    match issuer {
        IssuerChoice::Sealed => "sealed",
        IssuerChoice::Ephemeral => "ephemeral",
        IssuerChoice::Pkcs11 => "pkcs11",
        IssuerChoice::Imported { .. } => "imported",
        IssuerChoice::StepCa(_) => "step-ca",
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
    mut key_file: Option<PrivateFile>,
) -> Result<Option<PrivateFile>, CommandError> {
    if let (Some(key), Some(file)) = (&initialized.root_key_pem, &mut key_file) {
        file.write(key.as_bytes())?;
    }
    Ok(key_file)
}

fn issuer(arguments: &Arguments) -> Result<IssuerChoice, CommandError> {
    step_ca::check_flags(arguments)?;
    match (arguments.issuer, &arguments.ca_cert, &arguments.ca_key) {
        (IssuerSource::Sealed, None, None) => Ok(IssuerChoice::Sealed),
        (IssuerSource::Ephemeral, None, None) => Ok(IssuerChoice::Ephemeral),
        (IssuerSource::Pkcs11, None, None) => Ok(IssuerChoice::Pkcs11),
        (IssuerSource::StepCa, None, None) => step_ca::choice(arguments),
        (IssuerSource::Imported, Some(_), Some(_)) if arguments.root_key_out.is_some() => {
            Err(CommandError::usage("an imported CA has no root key to write", "omit --root-key-out"))
        }
        (IssuerSource::Imported, Some(cert), Some(key)) => {
            let key = imported_key(key)?;
            Ok(IssuerChoice::Imported { certificates: reach::read(cert)?, key })
        }
        _ => Err(CommandError::usage(
            "--ca-cert and --ca-key are used with --issuer imported only",
            "give all three or none",
        )),
    }
}

/// The key of a CA that exists.
fn imported_key(path: &Path) -> Result<Zeroizing<Vec<u8>>, CommandError> {
    private_file::read_key(path, "make another CA").map_err(|error| {
        error.or_bad(|why| {
            let message = format!("the CA cannot be used: {}: {why}", path.display());
            CommandError::new(Exit::Usage, "ca_unusable", message, IMPORTED)
        })
    })
}

fn config(arguments: &Arguments, document: Option<&Document>) -> Result<RawConfig, CommandError> {
    let profile = profile(arguments)?;
    Ok(RawConfig {
        listen: arguments.listen.clone(),
        names: arguments.name.clone(),
        advertise: arguments.advertise.clone(),
        peer_listen: arguments.peer_listen.clone(),
        kek: Some(kek(&arguments.kek)?),
        server_cn: arguments.server_cn.clone().or_else(|| default_cn(profile.as_ref()?)),
        pkcs11: pkcs11(arguments)?,
        own_certificate: document.map(from_taskrun::server_certificate).transpose()?.unwrap_or_default(),
        doors: RawDoors { serve: Some(arguments.door.clone()).filter(|doors| !doors.is_empty()) },
        ..RawConfig::default()
    })
}

/// Where the token is, for the configuration.
fn pkcs11(arguments: &Arguments) -> Result<Option<RawPkcs11>, CommandError> {
    let Arguments { pkcs11_module, pkcs11_token, pkcs11_key, pkcs11_pin, .. } = arguments;
    let is_given =
        pkcs11_module.is_some() || pkcs11_token.is_some() || pkcs11_key.is_some() || pkcs11_pin.is_some();
    if is_given && arguments.issuer != IssuerSource::Pkcs11 {
        return Err(CommandError::usage(
            "the --pkcs11 flags are used with --issuer pkcs11 only",
            "give --issuer pkcs11, or none of them",
        ));
    }
    let module = pkcs11_module.as_deref().map(reach::absolute).transpose()?;
    let pin = match pkcs11_pin.as_deref().map(PinSource::parse) {
        Some(Ok(PinSource::File(path))) => Some(PinSource::File(reach::absolute(&path)?).to_string()),
        // Reported with every other mistake of the configuration.
        _ => pkcs11_pin.clone(),
    };
    Ok(is_given.then(|| RawPkcs11 {
        module: module.map(|path| path.display().to_string()),
        token: pkcs11_token.clone(),
        key: pkcs11_key.clone(),
        pin,
    }))
}

/// The file is found again from wherever the control plane is started.
pub(super) fn kek(text: &str) -> Result<String, CommandError> {
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
