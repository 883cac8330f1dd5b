//! `enlist server join`: makes the data directory of one more replica.

use super::error::directory;
use crate::error::{CommandError, Exit};
use crate::fields::Fields;
use crate::output::Output;
use crate::shell;
use ::server::config::{PEER_PORT, RawConfig, is_own_machine};
use ::server::datadir::DataDir;
use ::server::join::{JoinError, JoinRequest, prepare};
use api::rest::cluster::JoinedCluster;
use api::rest::secret::Secret;
use client::OperatorApi;
use client::rest::Path;
use client::trust::Trust;
use client::unreachable::Unreachable;
use client::url::ServerUrl;
use pki::pin::Pin;
use serde::Serialize;
use std::io::Read;
use std::path::PathBuf;

/// With the pin of the CA, which is a flag of every command and needed by this one.
pub const USAGE: &str = "enlist server join [OPTIONS] --peer <URL> --ca-pin <PIN> --kek <KEK>";

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// URL of a replica of the cluster, as hosts and operators use it (port 8443, not the one between replicas)
    #[arg(long, value_name = "URL")]
    peer: String,
    /// Token of `enlist cluster token`; `-` reads it from standard input
    #[arg(long, value_name = "TOKEN", required_unless_present = "token_file", conflicts_with = "token_file")]
    token: Option<String>,
    /// File that holds the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The domain's key-encryption key: file:PATH or env:NAME
    #[arg(long, value_name = "KEK")]
    kek: String,
    /// Address to listen on; repeatable [default: [::]:8443]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Host name or IP address by which hosts reach this replica; repeatable
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// URL that nodes are given for this replica; repeatable [default: from the first --name, else the listen address]
    #[arg(long, value_name = "URL")]
    advertise: Vec<String>,
    /// Address for connections between replicas, which is also what the others are told [default: the first listen address,
    /// port 8444]
    #[arg(long, value_name = "ADDR:PORT")]
    peer_listen: Option<String>,
}

#[derive(Serialize)]
struct JoinSummary {
    replica_id: String,
    domain: String,
    cluster_id: String,
    dir: String,
    /// Whether enlist.toml needs [pkcs11].
    needs_hsm: bool,
}

const HSM: &str = "An issuer's key is in an HSM: before the first start, copy the section [pkcs11] from the enlist.toml of a replica that runs to the \
                   enlist.toml in this directory, with the file of the PIN that it names.";

const TOKEN_BYTES: u64 = 4096;

/// `pin` is that of the domain's root certificate, as `enlist cluster token` prints it.
pub async fn run(
    arguments: Arguments,
    pin: Option<String>,
    dir: DataDir,
    output: Output,
) -> Result<(), CommandError> {
    let server = ServerUrl::parse(&arguments.peer).map_err(|error| {
        CommandError::usage(format!("--peer: {error}"), "give the https:// URL of a replica")
    })?;
    let copy = "copy it from `enlist cluster token`";
    let pin = pin.ok_or_else(|| {
        CommandError::usage("--ca-pin is missing: nothing is sent to an unknown server", copy)
    })?;
    let pin = Pin::parse(&pin).map_err(|error| CommandError::usage(format!("--ca-pin: {error}"), copy))?;
    let token = token(&arguments)?;
    dir.check_new().map_err(|error| directory(&error))?;
    let config = RawConfig {
        listen: arguments.listen.clone(),
        names: arguments.name.clone(),
        advertise: arguments.advertise.clone(),
        peer_listen: arguments.peer_listen.clone(),
        kek: Some(super::init::kek(&arguments.kek)?),
        ..RawConfig::default()
    };
    let joined = join(dir.clone(), config, server, pin, token).await?;
    let summary = JoinSummary {
        replica_id: joined.replica_id,
        domain: joined.domain,
        cluster_id: joined.cluster_id,
        dir: dir.path().display().to_string(),
        needs_hsm: joined.needs_hsm,
    };
    let screen = output.screen();
    output.document(&summary, |summary| {
        let fields = Fields::new()
            .with("replica", &summary.replica_id)
            .with("domain", &summary.domain)
            .with("cluster", &summary.cluster_id)
            .with("directory", &summary.dir);
        let run = format!("enlist server run --dir {}", shell::quoted(std::path::Path::new(&summary.dir)));
        let next = if summary.needs_hsm {
            format!("\n{}\nThen run it:", screen.hang(0, 0, HSM))
        } else {
            " Run it:".to_owned()
        };
        format!("{}\nIt has joined.{next}\n{}", fields.text_on(screen), shell::paragraph(&run, screen))
    })
}

/// The ceremony: asks a replica of the cluster, and makes the directory.
pub async fn join(
    dir: DataDir,
    config: RawConfig,
    peer: ServerUrl,
    pin: Pin,
    token: Secret,
) -> Result<JoinedCluster, CommandError> {
    // A URL that was given may be that of a load balancer; one that comes of the listen address is this replica's alone.
    let is_given = !config.advertise.is_empty();
    let prepared = prepare(JoinRequest { dir, config })?;
    if !is_own_machine(&peer.host())
        && let Some(name) = prepared.misleading_name()
    {
        let message =
            format!("the other replicas and the hosts would be told {name}, which is their own machine");
        return Err(CommandError::usage(
            message,
            "give the host name of this machine with --name, or addresses that others reach with --listen and --peer-listen",
        ));
    }
    let message = prepared.message(token, env!("CARGO_PKG_VERSION"))?;
    let is_peers = |url: &String| ServerUrl::parse(url).is_ok_and(|url| url == peer);
    if !is_given && message.urls.iter().any(is_peers) {
        let message = format!("the new replica would have the URL of the one that it joins: {peer}");
        return Err(CommandError::usage(
            message,
            "give an address of its own with --listen, or a host name of its own with --name",
        ));
    }
    let asked = OperatorApi::over_tls(peer.clone(), &Trust::pin(pin), None)?;
    let answer: Result<JoinedCluster, client::Error> =
        asked.post(&Path::new("/v1/cluster/join"), &message).await;
    let joined = answer.map_err(|error| not_joined(error, &peer))?;
    prepared.finish(&joined).await?;
    Ok(joined)
}

/// At the port between replicas whoever shows no replica's certificate is turned away.
fn not_joined(error: client::Error, peer: &ServerUrl) -> CommandError {
    let client::Error::Unreachable { cause, .. } = &error else { return error.into() };
    let is_peer_port = peer.port() == PEER_PORT || matches!(cause, Unreachable::Garbage(_));
    let failed = CommandError::from(error);
    if !is_peer_port {
        return failed;
    }
    failed.with_hint(format!(
        "give --peer the URL that hosts and operators use, as `enlist cluster token` prints it: the address between replicas (port {PEER_PORT}) is another"
    ))
}

fn token(arguments: &Arguments) -> Result<Secret, CommandError> {
    let unreadable = |error: std::io::Error| {
        CommandError::usage(
            format!("the token cannot be read: {error}"),
            "give --token -, --token-file or --token",
        )
    };
    let text = match (&arguments.token, &arguments.token_file) {
        (_, Some(file)) => {
            let mut text = String::new();
            std::fs::File::open(file)
                .and_then(|file| file.take(TOKEN_BYTES).read_to_string(&mut text))
                .map_err(unreadable)?;
            text
        }
        (Some(dash), None) if dash == "-" => {
            let mut text = String::new();
            std::io::stdin().lock().take(TOKEN_BYTES).read_to_string(&mut text).map_err(unreadable)?;
            text
        }
        (Some(token), None) => token.clone(),
        (None, None) => String::new(),
    };
    if text.trim().is_empty() {
        let create = "create one for a replica with `enlist cluster token`, and copy the whole of it";
        return Err(CommandError::usage("the token is empty", create));
    }
    Ok(Secret::new(text.trim()))
}

impl From<JoinError> for CommandError {
    fn from(error: JoinError) -> Self {
        let message = error.to_string();
        match error {
            JoinError::Config(mistakes) => CommandError::config(mistakes.0)
                .with_hint("correct the flags that give these settings; see `enlist server join --help`"),
            JoinError::Dir(error) => directory(&error),
            JoinError::Kek(_) => CommandError::new(
                Exit::Fault,
                "kek_unavailable",
                message,
                "copy the domain's key-encryption key to this machine, and name it by --kek file:PATH or env:NAME",
            ),
            JoinError::Key(_) | JoinError::Answer(_) | JoinError::Open(_) => CommandError::new(
                Exit::Fault,
                "join_failed",
                message,
                "remove the replica that was recorded (`enlist cluster status`, `enlist cluster remove ID`), then join with a new \
                 token",
            ),
        }
    }
}
