//! The log, on standard error. Its level is set by ENLIST_LOG.

use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::Environment;

/// With `--json` nothing but the error document belongs on standard error, unless a log is asked for.
pub fn start(environment: &Environment, json: bool, usual: &str) {
    let asked = environment.get("ENLIST_LOG").and_then(|level| level.to_str());
    // A word that is no level would be taken for the name of a part, and silence all others.
    let known = |level: &&str| level.contains('=') || level.parse::<LevelFilter>().is_ok();
    let asked = asked.filter(known);
    let level = asked.unwrap_or(if json { "off" } else { usual });
    let filter = level.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    // A second start, when another program runs this one inside itself, leaves that program's log as it is.
    _ = tracing_subscriber::registry()
        .with(filter)
        .with(layer().with_writer(io::stderr).with_ansi(false))
        .try_init();
}
