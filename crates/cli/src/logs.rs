//! Logs of a control plane: to standard error, level by ENLIST_LOG, as JSON lines if ENLIST_LOG_FORMAT says so.

use crate::error::CommandError;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// To standard error. `level` holds unless ENLIST_LOG says otherwise.
pub fn start(level: &str) -> Result<(), CommandError> {
    begin(level, std::io::stderr, colourful())
}

/// To the end of a file that only its owner can read. With ENLIST_LOG set, logs go to standard error instead.
pub fn start_in(file: &Path, level: &str) -> Result<(), CommandError> {
    let failed = |error| CommandError::file(file, &error);
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    begin(level, Mutex::new(opened.map_err(failed)?), false)
}

/// Whether ENLIST_LOG asks for logs on standard error.
pub fn is_asked_for() -> bool {
    requested_filter().is_some()
}

fn requested_filter() -> Option<String> {
    std::env::var("ENLIST_LOG").ok().filter(|asked| !asked.is_empty())
}

fn begin<W>(level: &str, writer: W, colour: bool) -> Result<(), CommandError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // openraft warns of what it recovers from by itself, and calls it an error several times a second that another replica cannot
    // be reached, which `enlist cluster status` shows; `ENLIST_LOG=openraft=warn` has some of it.
    let filter = format!(
        "openraft=error,openraft::replication=off,openraft::core::raft_core=off,{}",
        requested_filter().as_deref().unwrap_or(level)
    );
    let filter: Targets = filter.parse().map_err(|error| {
        let hint = "use error, warn, info, debug or trace, or a directive such as server=debug";
        CommandError::usage(format!("ENLIST_LOG: {error}"), hint)
    })?;
    let logs = tracing_subscriber::registry().with(filter);
    let started = match std::env::var("ENLIST_LOG_FORMAT").as_deref() {
        Ok("json") => logs.with(layer().with_writer(writer).json()).try_init(),
        Ok("text" | "") | Err(_) => {
            // The part of the program that logs a line is of use to whoever searches it, and asks for a log.
            let lines = layer().with_writer(writer).with_ansi(colour).with_target(is_asked_for());
            logs.with(lines).try_init()
        }
        Ok(_) => {
            return Err(CommandError::usage(
                "ENLIST_LOG_FORMAT is neither text nor json",
                "use text or json",
            ));
        }
    };
    started.map_err(|error| CommandError::fault("logs", error.to_string()))
}

fn colourful() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
