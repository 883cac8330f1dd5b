//! Logs of a control plane: to standard error, level by ENLIST_LOG, as JSON lines if ENLIST_LOG_FORMAT says so.

use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// `level` holds unless ENLIST_LOG says otherwise.
pub fn start(level: &str) -> Result<(), Failure> {
    let asked = std::env::var("ENLIST_LOG").ok().filter(|asked| !asked.is_empty());
    // The replication engine warns of what it takes in its stride; whoever wants to hear asks for it by name.
    let filter = format!("openraft=error,{}", asked.as_deref().unwrap_or(level));
    let filter: Targets = filter.parse().map_err(|error| {
        let hint = "use error, warn, info, debug or trace, or a directive such as server=debug";
        Failure::usage(format!("ENLIST_LOG: {error}"), hint)
    })?;
    let logs = tracing_subscriber::registry().with(filter);
    let started = match std::env::var("ENLIST_LOG_FORMAT").as_deref() {
        Ok("json") => logs.with(layer().with_writer(std::io::stderr).json()).try_init(),
        Ok("text" | "") | Err(_) => {
            logs.with(layer().with_writer(std::io::stderr).with_ansi(colourful())).try_init()
        }
        Ok(_) => {
            return Err(Failure::usage("ENLIST_LOG_FORMAT is neither text nor json", "use text or json"));
        }
    };
    started.map_err(|error| Failure::fault("logs", error.to_string()))
}

fn colourful() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
