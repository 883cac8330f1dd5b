//! Logs of a control plane: to standard error, level by ENLIST_LOG, as JSON lines if ENLIST_LOG_FORMAT says so.

use crate::failure::Failure;
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
pub fn start(level: &str) -> Result<(), Failure> {
    begin(level, std::io::stderr, colourful())
}

/// To the end of a file that only its owner can read. Standard error remains for whoever asks with ENLIST_LOG.
pub fn start_in(file: &Path, level: &str) -> Result<(), Failure> {
    let failed = |error| Failure::file(file, &error);
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    begin(level, Mutex::new(opened.map_err(failed)?), false)
}

/// Whether somebody wants to read along.
pub fn is_asked_for() -> bool {
    asked().is_some()
}

fn asked() -> Option<String> {
    std::env::var("ENLIST_LOG").ok().filter(|asked| !asked.is_empty())
}

fn begin<W>(level: &str, writer: W, colour: bool) -> Result<(), Failure>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The replication engine warns of what it takes in its stride; whoever wants to hear asks for it by name.
    let filter = format!("openraft=error,{}", asked().as_deref().unwrap_or(level));
    let filter: Targets = filter.parse().map_err(|error| {
        let hint = "use error, warn, info, debug or trace, or a directive such as server=debug";
        Failure::usage(format!("ENLIST_LOG: {error}"), hint)
    })?;
    let logs = tracing_subscriber::registry().with(filter);
    let started = match std::env::var("ENLIST_LOG_FORMAT").as_deref() {
        Ok("json") => logs.with(layer().with_writer(writer).json()).try_init(),
        Ok("text" | "") | Err(_) => logs.with(layer().with_writer(writer).with_ansi(colour)).try_init(),
        Ok(_) => {
            return Err(Failure::usage("ENLIST_LOG_FORMAT is neither text nor json", "use text or json"));
        }
    };
    started.map_err(|error| Failure::fault("logs", error.to_string()))
}

fn colourful() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
