//! The command line. Help, completions and the man page all come from these definitions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use lifecycle::names::Span;
use toml::Value;

use crate::config::{Environment, Values, keys};
use crate::layout::Layout;

#[derive(Debug, Parser)]
#[command(
    name = "enlist-agent",
    version,
    about = "Gives this host an identity and keeps it",
    after_help = "Exit codes: 0 done, 1 fault, 2 usage or configuration, 3 refused by the control plane, 4 unreachable.\n\
                  ENLIST_LOG sets the level of the log on standard error."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// One JSON document on standard output; errors as JSON on standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Redeem a token for an identity
    Enroll(Box<EnrollArgs>),
    /// Keep this host's identity: renew it, stay connected, do what the control plane asks
    Run(Box<RunArgs>),
    /// Show this host's identity; exits 1 if it has none that is usable, or a revoked one
    Status(StatusArgs),
    /// Find out what is wrong with this host and what to do about it; exits 1 if something is
    Doctor(DoctorArgs),
    /// Put back what this host needs: names in its hosts file, directories, modes of secrets; exits 1 if something
    /// could not be put back
    Reconcile(ReconcileArgs),
    /// Get a new certificate for a host that has lost the use of its own, by its recovery token or a repair bundle
    Recover(RecoverArgs),
    /// Write a completion script for a shell
    Completions { shell: Shell },
    /// Write the manual page
    Man,
}

#[derive(Debug, Args)]
pub struct Place {
    /// The agent's directory [env: ENLIST_AGENT_DIR] [default: /var/lib/enlist-agent]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl Place {
    /// Absolute, so that what is written about it holds from anywhere.
    pub fn path(&self, environment: &Environment) -> PathBuf {
        let named = self.dir.clone().or_else(|| environment.dir().map(PathBuf::from));
        let path = named.unwrap_or_else(|| PathBuf::from(environment.persona().dir()));
        std::path::absolute(&path).unwrap_or(path)
    }
}

const ELSEWHERE: &str = "\
What is not given as a flag is taken from ENLIST_AGENT_SERVER, ENLIST_AGENT_CA_FILE, ENLIST_AGENT_CA_PIN,\n\
ENLIST_AGENT_SYSTEM_ROOTS, ENLIST_AGENT_TOKEN or ENLIST_AGENT_TOKEN_FILE, then from DIR/agent.toml.";

const BY_HAND: &str = "\
The daemon recovers by itself, and only one may work in DIR: stop it, recover, start it again.";

/// Whom to ask for an identity, and with what. What is not said here is taken from the variable
/// ENLIST_AGENT_<KEY>, then from DIR/agent.toml.
#[derive(Debug, Args)]
pub struct Contact {
    /// The control plane, https://HOST[:PORT]; repeat for several, tried in order
    #[arg(long, value_name = "URL")]
    pub server: Vec<String>,
    /// The enrollment token; `-` reads it from standard input, which keeps it out of the process list
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub token: Option<String>,
    /// A file that holds the enrollment token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Trust the control plane by this CA, a PEM file
    #[arg(long, value_name = "FILE", group = "trust")]
    pub ca_file: Option<String>,
    /// Trust the control plane by the SHA-256 of a certificate of its chain
    #[arg(long, value_name = "PIN", group = "trust", value_parser = pki::pin::Pin::parse)]
    pub ca_pin: Option<pki::pin::Pin>,
    /// Trust the control plane by the operating system's CAs
    #[arg(long, group = "trust")]
    pub system_roots: bool,
    #[command(flatten)]
    pub place: Place,
    /// An address at which this host's WireGuard can be reached, with or without a port [default port: 51820];
    /// repeat for IPv4 and IPv6
    #[arg(long, value_name = "ADDR")]
    pub underlay: Vec<String>,
    /// Put links to the identity where this system looks for it
    #[arg(long, value_name = "SYSTEM", value_parser = clap::builder::PossibleValuesParser::new(Layout::NAMES))]
    pub layout: Option<String>,
    /// The name to show to operators [default: this host's]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
}

impl Contact {
    /// What the flags say, under the names of agent.toml's keys.
    pub fn values(&self) -> Values {
        let text = |text: &str| Value::String(text.to_owned());
        let mut values = Values::new();
        if !self.server.is_empty() {
            values.insert(keys::SERVER, Value::Array(self.server.iter().map(|url| text(url)).collect()));
        }
        values.extend(self.ca_file.as_deref().map(|path| (keys::CA_FILE, text(path))));
        values.extend(self.ca_pin.map(|pin| (keys::CA_PIN, text(&pin.to_string()))));
        if !self.underlay.is_empty() {
            values.insert(keys::UNDERLAY, Value::Array(self.underlay.iter().map(|at| text(at)).collect()));
        }
        values.extend(self.layout.as_deref().map(|layout| (keys::LAYOUT, text(layout))));
        values.extend(self.system_roots.then_some((keys::SYSTEM_ROOTS, Value::Boolean(true))));
        values
    }
}

#[derive(Debug, Args)]
#[command(after_help = ELSEWHERE)]
pub struct EnrollArgs {
    #[command(flatten)]
    pub contact: Contact,
    /// Enroll even if there is a valid identity, which becomes the previous one; a revoked one needs no such word
    #[arg(long)]
    pub replace: bool,
    /// How long to try: 90s, 15m, 1h
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = Span::parse)]
    pub timeout: Span,
}

/// A directory without an identity is enrolled first, if there is a token.
#[derive(Debug, Args)]
#[command(after_help = ELSEWHERE)]
pub struct RunArgs {
    #[command(flatten)]
    pub contact: Contact,
    /// Take trust, token and the places of the identity from the configuration of a TaskRun worker
    #[arg(long, value_name = "FILE")]
    pub from_taskrun: Option<PathBuf>,
}

/// Needs DIR/agent.toml and DIR/recovery/token, or a bundle, and no identity. Where neither recovery_url nor what the
/// control plane said is known, it goes to `server` by the trust of first contact, since both are named there for the
/// sending of a secret.
#[derive(Debug, Args)]
#[command(after_help = BY_HAND)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub place: Place,
    /// A repair bundle, from `enlist node repair-bundle ID --out FILE`; for this user alone (0600)
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
pub struct ReconcileArgs {
    #[command(flatten)]
    pub place: Place,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub place: Place,
}
