//! The command line. Help, completions and the man page all come from these definitions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use lifecycle::names::Span;
use toml::Value;

use crate::config::{Environment, Values, keys};
use crate::layout::Layout;

mod examples;

#[derive(Debug, Parser)]
#[command(
    name = "enlist-agent",
    version,
    max_term_width = 100,
    about = "Give this host an identity and keep it valid",
    after_help = examples::PROGRAM
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Write one JSON document to standard output; errors are JSON on standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Enroll this host: redeem a token for a certificate
    Enroll(Box<EnrollArgs>),
    /// Run the daemon: stay connected to the control plane and renew the certificate in time
    Run(Box<RunArgs>),
    /// Show this host's identity and what the daemon knows of it; exits 1 unless it is ready
    Status(StatusArgs),
    /// Check this host for faults and show the remedy for each; exits 1 if a fault is found
    ///
    /// With --server, or any of the flags for trust, it is a preflight: it checks whether this host could enroll with
    /// these settings, needs no identity and writes nothing.
    Doctor(DoctorArgs),
    /// Restore host names, directories and file modes that the agent manages; exits 1 if something could not be restored
    Reconcile(ReconcileArgs),
    /// Recover this host's identity with its recovery token or a repair bundle
    ///
    /// Needs DIR/agent.toml and DIR/recovery/token, or a repair bundle, and no identity. Without recovery_url in
    /// agent.toml and without a recovery endpoint that the control plane has named, the request goes to `server`, which
    /// is verified as for an enrollment.
    Recover(RecoverArgs),
    /// Run a command on this host as a session that the control plane knows of
    ///
    /// The session is registered with the running agent first; without it nothing is started. Root may run a session for any
    /// user of this host, everybody else for itself. Exits with the status of the command: 128 and the number of the signal
    /// that ended it, 127 if it was not found, 126 if it could not be started; before that with 2 if the user is not known, 3 if
    /// the agent refuses, 4 if there is no agent.
    Session(SessionArgs),
    /// Print the version of this program
    #[command(after_help = examples::VERSION)]
    Version,
    /// Write a completion script for a shell to standard output
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// Write the script for this shell
        shell: Shell,
    },
    /// Write the manual pages, in the format of man(7), to standard output or to a directory
    #[command(after_help = examples::MAN)]
    Man {
        /// Write one page per command to this directory instead of standard output
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct DirArgs {
    /// Use this directory for the agent's files [env: ENLIST_AGENT_DIR] [default: /var/lib/enlist-agent]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl DirArgs {
    /// Absolute, so that what is written about it holds from anywhere.
    pub fn path(&self, environment: &Environment) -> PathBuf {
        let named = self.dir.clone().or_else(|| environment.dir().map(PathBuf::from));
        let path = named.unwrap_or_else(|| PathBuf::from(environment.persona().dir()));
        std::path::absolute(&path).unwrap_or(path)
    }
}

/// Which control plane to call, and how to verify it. What is not given here is taken from the variable
/// ENLIST_AGENT_<KEY>, then from DIR/agent.toml.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Call the control plane at this address, https://HOST[:PORT]; repeat for several, which are tried in order
    #[arg(long, value_name = "URL")]
    pub server: Vec<String>,
    /// Verify the control plane with the CA certificates in this PEM file
    #[arg(long, value_name = "FILE", group = "trust")]
    pub ca_file: Option<String>,
    /// Verify the control plane by a certificate in its chain with this SHA-256 fingerprint
    #[arg(long, value_name = "PIN", group = "trust", value_parser = pki::pin::Pin::parse)]
    pub ca_pin: Option<pki::pin::Pin>,
    /// Verify the control plane with the operating system's CA certificates
    #[arg(long, group = "trust")]
    pub system_roots: bool,
}

impl ServerArgs {
    pub fn is_given(&self) -> bool {
        !self.server.is_empty() || self.ca_file.is_some() || self.ca_pin.is_some() || self.system_roots
    }

    /// What the flags say, under the names of agent.toml's keys.
    pub fn values(&self) -> Values {
        let text = |text: &str| Value::String(text.to_owned());
        let mut values = Values::new();
        if !self.server.is_empty() {
            values.insert(keys::SERVER, Value::Array(self.server.iter().map(|url| text(url)).collect()));
        }
        values.extend(self.ca_file.as_deref().map(|path| (keys::CA_FILE, text(path))));
        values.extend(self.ca_pin.map(|pin| (keys::CA_PIN, text(&pin.to_string()))));
        values.extend(self.system_roots.then_some((keys::SYSTEM_ROOTS, Value::Boolean(true))));
        values
    }
}

/// Everything that an enrollment can be given.
#[derive(Debug, Args)]
pub struct Contact {
    #[command(flatten)]
    pub reach: ServerArgs,
    /// Redeem this token; `-` reads it from standard input, which keeps it out of the process list
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    pub token: Option<String>,
    /// Redeem the token in this file
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub place: DirArgs,
    /// Advertise this address for WireGuard, with or without a port [default port: 51820]; repeat for IPv4 and IPv6
    #[arg(long, value_name = "ADDR")]
    pub underlay: Vec<String>,
    /// Link key, certificate and CA to the paths where this system expects them
    #[arg(long, value_name = "SYSTEM", value_parser = clap::builder::PossibleValuesParser::new(Layout::NAMES))]
    pub layout: Option<String>,
    /// Refuse an identity of any other tenant
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Show this name to operators [default: this host's name]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,
}

impl Contact {
    /// What the flags say, under the names of agent.toml's keys.
    pub fn values(&self) -> Values {
        let text = |text: &str| Value::String(text.to_owned());
        let mut values = self.reach.values();
        if !self.underlay.is_empty() {
            values.insert(keys::UNDERLAY, Value::Array(self.underlay.iter().map(|at| text(at)).collect()));
        }
        values.extend(self.layout.as_deref().map(|layout| (keys::LAYOUT, text(layout))));
        values.extend(self.tenant.as_deref().map(|tenant| (keys::TENANT, text(tenant))));
        values
    }
}

#[derive(Debug, Args)]
#[command(after_help = examples::ENROLL)]
pub struct EnrollArgs {
    #[command(flatten)]
    pub contact: Contact,
    /// Enroll again although this host has a valid identity; not needed if that identity is known to be revoked
    #[arg(long)]
    pub replace: bool,
    /// Give up after this time: 90s, 15m, 1h
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = Span::parse)]
    pub timeout: Span,
}

/// A directory without an identity is enrolled first, if there is a token.
#[derive(Debug, Args)]
#[command(after_help = examples::RUN)]
pub struct RunArgs {
    #[command(flatten)]
    pub contact: Contact,
    /// Take CA, token and the paths of the identity from the configuration file of a TaskRun worker
    #[arg(long, value_name = "FILE")]
    pub from_taskrun: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::RECOVER)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub place: DirArgs,
    /// Recover with this repair bundle, made by `enlist node repair-bundle ID --out FILE`; its mode must be 0600
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::STATUS)]
pub struct StatusArgs {
    #[command(flatten)]
    pub place: DirArgs,
}

#[derive(Debug, Args)]
#[command(after_help = examples::RECONCILE)]
pub struct ReconcileArgs {
    #[command(flatten)]
    pub place: DirArgs,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples::SESSION)]
pub struct SessionArgs {
    /// Say what it is: an interactive shell, or one command
    #[arg(long, value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(["shell", "exec"]))]
    pub kind: String,
    /// Run the command as this user of the host
    #[arg(long, value_name = "USER")]
    pub user: String,
    #[command(flatten)]
    pub place: DirArgs,
    /// Command to run, with its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub reach: ServerArgs,
    #[command(flatten)]
    pub place: DirArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every command without commands below it.
    fn leaves(command: &clap::Command) -> Vec<&clap::Command> {
        let below: Vec<&clap::Command> =
            command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        if below.is_empty() { vec![command] } else { below.into_iter().flat_map(leaves).collect() }
    }

    #[test]
    fn every_argument_has_help_and_every_command_an_example() {
        let mut program = Cli::command();
        program.build();
        let commands = leaves(&program);
        assert!(commands.len() >= 8, "the definition is read wrongly");
        for command in commands {
            let name = command.get_name();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "{name} has no description");
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.len() > 8, "{name} {}: no help", argument.get_id());
            }
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("\n  enlist-agent {name}");
            assert!(after.contains("Example") && after.contains(&example), "{name} has no example");
            let wide = after.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name}: a terminal of 80 columns would break this line");
        }
    }

    #[test]
    fn every_example_is_a_command_line_that_parses() {
        let mut program = Cli::command();
        program.build();
        for command in leaves(&program) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().filter_map(|line| line.strip_prefix("  enlist-agent ")) {
                let line = line.split(" > ").next().unwrap_or_default();
                let words = std::iter::once("enlist-agent").chain(line.split_whitespace());
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }
}
