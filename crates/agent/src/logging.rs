//! The log, on standard error. Its level is set by ENLIST_LOG.

use std::fmt;
use std::io;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::Environment;
use crate::screen::{Columns, harmless};

/// With `--json` nothing but the error document belongs on standard error, unless a log is asked for. A person who
/// waits for a command to end reads sentences.
pub fn start(environment: &Environment, json: bool, daemon: bool) {
    let usual = if daemon { "info" } else { "warn" };
    let level = asked(environment).unwrap_or(if json { "off" } else { usual });
    let filter: Targets = level.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    // The tunnel has a line for every packet that it cannot send; what is worth one is told by the overlay's own part.
    let filter = if level.contains('=') { filter } else { filter.with_target("gotatun", LevelFilter::OFF) };
    let registry = tracing_subscriber::registry().with(filter);
    // The part of the program that logs a line is of use to whoever searches it, and asks for a log.
    let lines = layer().with_writer(io::stderr).with_ansi(false).with_target(asked(environment).is_some());
    // A second start, when another program runs this one inside itself, leaves that program's log as it is.
    _ = if !daemon && is_plain(environment) {
        registry.with(lines.event_format(Sentences)).try_init()
    } else {
        registry.with(lines).try_init()
    };
}

/// Whether a person reads standard error who has asked for no log.
pub fn is_plain(environment: &Environment) -> bool {
    environment.is_at_terminal() && asked(environment).is_none()
}

fn asked(environment: &Environment) -> Option<&str> {
    let asked = environment.get("ENLIST_LOG").and_then(|level| level.to_str());
    // A word that is no level would be taken for the name of a part, and silence all others.
    asked.filter(|level| level.contains('=') || level.parse::<LevelFilter>().is_ok())
}

/// What is logged, without time, place and names of fields.
struct Sentences;

impl<S, N> FormatEvent<S, N> for Sentences
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = LoggedFields::default();
        event.record(&mut said);
        let lead = if *event.metadata().level() == Level::ERROR { "error: " } else { "warning: " };
        writeln!(to, "{}", Columns::stderr().hang(lead, 2, &harmless(&said.sentence())))
    }
}

#[derive(Default)]
struct LoggedFields {
    message: String,
    /// Why, where that is not part of the message.
    error: Option<String>,
}

impl LoggedFields {
    fn sentence(self) -> String {
        match self.error {
            Some(error) => format!("{}: {error}", self.message),
            None => self.message,
        }
    }
}

impl Visit for LoggedFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" | "reason" => self.error = Some(format!("{value:?}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_asked_for_stays_a_log() {
        let with = |level: &str| Environment::of([("ENLIST_LOG", level)]).at_terminal(true);
        assert!(is_plain(&with("")) && is_plain(&with("no-level")));
        assert!(!is_plain(&with("warn")) && !is_plain(&with("agent=debug")));
        assert!(!is_plain(&with("").at_terminal(false)));
    }
}
