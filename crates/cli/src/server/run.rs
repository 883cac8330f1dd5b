//! `enlist server run`.

use super::serving::{self, StopSignals};
use crate::error::CommandError;
use crate::logs;
use ::server::anchor::AnchorPlace;
use ::server::datadir::DataDir;
use ::server::run::{Overrides, start};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::Write;
use std::net::SocketAddr;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Serve metrics on this address, without TLS
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Serve /healthz and /readyz on this address, without TLS
    #[arg(long, value_name = "ADDR:PORT")]
    health: Option<SocketAddr>,
    /// Listen on this address instead of those in enlist.toml; repeatable; port 0 picks a free port
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// Start although the system clock is far from the time of the last log entry: trust the clock
    #[arg(long)]
    accept_clock: bool,
    /// Keep the anchor of the audit trail in this file, or at this https:// URL, instead of the one in enlist.toml, which whoever can
    /// write the data directory can change
    #[arg(long, value_name = "FILE|URL")]
    anchor: Option<String>,
    /// Start although the data directory is older than its anchor, or the anchor is lost: record that in the audit trail, and
    /// void every enrollment token, recovery token and repair bundle of before
    #[arg(long)]
    accept_rollback: bool,
    /// Serve gRPC server reflection, so that tools such as grpcurl can list services and messages; it needs a credential
    #[arg(long)]
    reflection: bool,
    /// Stop in good order when the program that started this one ends, however it ends
    #[arg(long, hide = true)]
    stop_with_parent: bool,
}

/// A URL, or a path that may be relative to here.
fn anchor_place(text: &str) -> Result<AnchorPlace, CommandError> {
    let text = match text.contains("://") {
        true => Some(text.to_owned()),
        false => std::path::absolute(text).ok().map(|path| path.display().to_string()),
    };
    text.as_deref().and_then(AnchorPlace::parse).ok_or_else(|| {
        CommandError::usage(
            "--anchor is neither a file nor a URL",
            "give the path of a file outside of the data directory, or an https:// URL without user name (http:// to this machine \
             alone)",
        )
    })
}

pub async fn run(arguments: Arguments, dir: DataDir) -> Result<(), CommandError> {
    logs::start("info")?;
    let mut signals = StopSignals::listen()?;
    let Arguments {
        metrics,
        health,
        listen,
        accept_clock,
        anchor,
        accept_rollback,
        reflection,
        stop_with_parent,
    } = arguments;
    if stop_with_parent {
        set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| {
            CommandError::fault(
                "replica_not_started",
                format!("the kernel refuses a signal at the parent's end: {error}"),
            )
        })?;
    }
    let anchor = anchor.map(|text| anchor_place(&text)).transpose()?;
    let overrides = Overrides {
        listen,
        metrics,
        health,
        accept_clock,
        anchor,
        accept_rollback,
        reflection,
        socket_only: false,
    };
    let place = dir.path().to_owned();
    let server = tokio::select! {
        started = start(dir, overrides) => started?,
        // Nothing was promised to anyone yet.
        () = signals.next() => return Ok(()),
    };
    if let Some(url) = server.advertised().iter().find(|url| url.starts_with("https://localhost")) {
        tracing::warn!(
            url,
            "nodes are given a localhost URL for the control plane; set names or advertise in enlist.toml"
        );
    }
    // The operator socket is served, and nobody has to wait for an HSM to stop or to configure this service.
    serving::manager().ready();
    let served = async {
        server.serving().await;
        announce(&server.url());
        std::future::pending::<()>().await;
    };
    let cause = tokio::select! {
        () = signals.next() => None,
        cause = server.failed() => Some(cause),
        () = served => None,
    };
    let stopped = serving::stop(server, &mut signals).await;
    match cause {
        None => stopped,
        // A service manager starts it again; whatever was acknowledged is in the log.
        Some(cause) => Err(serving::replication_stopped(&cause, &place)),
    }
}

/// A closed standard output is no reason not to serve.
fn announce(url: &str) {
    let mut stdout = std::io::stdout();
    if let Err(error) = writeln!(stdout, "ready {url}").and_then(|()| stdout.flush()) {
        tracing::warn!(%error, "the ready line could not be written");
    }
    tracing::info!(url, "ready");
}
