//! What went wrong, as people and scripts read it: a stable code, what happened, one line of remedy, and the
//! exit code.

use crate::screen::Screen;
use crate::table::{harmless, harmless_lines};
use api::error::ErrorDetail;
pub use client::Exit;
use lifecycle::names::is_steering;
use serde::Serialize;
use server::config::ConfigMistake;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Before the code, and before what can be done.
const ERROR: &str = "error: ";
const REMEDY: &str = "  remedy: ";

#[derive(Debug)]
pub enum CommandError {
    /// Whoever read our output has seen enough (`| head`): no reason to complain.
    OutputClosed,
    Reported(Box<ErrorReport>),
}

/// The same fields as in an error of the operator API.
#[derive(Debug, Serialize)]
pub struct ErrorReport {
    #[serde(skip)]
    exit: u8,
    code: String,
    message: String,
    hint: String,
    /// Null for what never reached a control plane.
    request_id: Option<String>,
    retryable: bool,
    /// How many nodes would be affected by what has to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    affected: Option<u64>,
    /// How many sessions stand in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_sessions: Option<u16>,
    /// Every mistake of a configuration, so that all can be corrected in one go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<ConfigMistake>,
}

impl CommandError {
    pub fn new(exit: Exit, code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        CommandError::Reported(Box::new(ErrorReport {
            exit: exit as u8,
            code: code.to_owned(),
            message: message.into(),
            hint: hint.into(),
            request_id: None,
            retryable: false,
            affected: None,
            active_sessions: None,
            mistakes: Vec::new(),
        }))
    }

    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message, hint)
    }

    /// For what should not happen; the message says it all.
    pub fn fault(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Fault, code, message, "")
    }

    pub fn file(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("{}: {error}", path.display());
        Self::new(Exit::Fault, "file", message, "check that the path exists and that this user may use it")
    }

    /// Never over a file that is there: it may be another key, or a certificate that is still needed.
    pub fn exists(path: &Path, hint: &str) -> Self {
        Self::new(Exit::Usage, "file_exists", format!("{} exists already", path.display()), hint)
    }

    /// No control plane there; it may come yet.
    pub fn unreachable(message: impl Into<String>, hint: &str) -> Self {
        let mut failure = Self::new(Exit::Unreachable, "endpoint_unreachable", message, hint);
        if let CommandError::Reported(report) = &mut failure {
            report.retryable = true;
        }
        failure
    }

    pub fn config(mistakes: Vec<ConfigMistake>) -> Self {
        let message = match mistakes.as_slice() {
            [only] => only.to_string(),
            many => format!("{} mistakes in the configuration", many.len()),
        };
        let hint = "correct the settings that are named; `enlist server check` reports every mistake";
        let mut failure = Self::new(Exit::Usage, "config_invalid", message, hint);
        if let CommandError::Reported(report) = &mut failure {
            report.mistakes = mistakes;
        }
        failure
    }

    /// An error of clap in the shape that all errors have.
    pub fn command_line(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let text = text.split("\n\nFor more information").next().unwrap_or(text);
        let (message, rest) = text.split_once("\n\nUsage:").unwrap_or((text, ""));
        let hint = match rest.trim() {
            "" => "try --help".to_owned(),
            // One that is written in several lines is one command all the same.
            usage => format!("{}, or try --help", usage.replace("\n           ", " ")),
        };
        Self::usage(message.trim_end(), hint)
    }

    /// What happened, for where a failure is only shown.
    pub fn message(&self) -> Option<&str> {
        match self {
            CommandError::Reported(report) => Some(&report.message),
            CommandError::OutputClosed => None,
        }
    }

    /// With its code and its remedy, for where several are shown.
    pub fn details(&self) -> Option<&ErrorReport> {
        match self {
            CommandError::Reported(report) => Some(report),
            CommandError::OutputClosed => None,
        }
    }

    /// Whether the control plane said no.
    pub fn is_refusal(&self) -> bool {
        self.details().is_some_and(|report| report.exit == Exit::Refused as u8)
    }

    /// Says how many nodes it is about.
    pub fn affecting(mut self, nodes: usize) -> Self {
        if let CommandError::Reported(report) = &mut self {
            report.affected = u64::try_from(nodes).ok();
        }
        self
    }

    /// The same with another remedy.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let CommandError::Reported(report) = &mut self {
            report.hint = hint.into();
        }
        self
    }

    /// Says what was done before it happened.
    pub fn after(mut self, done: &str) -> Self {
        if let CommandError::Reported(report) = &mut self {
            report.message = format!("{}; {done}", report.message);
        }
        self
    }

    /// Names the variable that led here.
    pub fn led_by(mut self, variable: &str) -> Self {
        if let CommandError::Reported(report) = &mut self {
            report.message = format!("{variable}: {}", report.message);
        }
        self
    }

    /// Names the saved context that led here.
    pub fn in_context(mut self, name: &str) -> Self {
        if let CommandError::Reported(report) = &mut self {
            report.message = format!("context {name}: {}", report.message);
            let also = format!("`enlist context show {name}` prints what the context says");
            report.hint = match report.hint.as_str() {
                "" => also,
                hint => format!("{hint}; {also}"),
            };
        }
        self
    }

    /// Names the flag of the command whose value the control plane did not accept, unless that has a remedy of its own.
    pub fn naming_flags(mut self, command: &clap::Command) -> Self {
        if let CommandError::Reported(report) = &mut self
            && report.code == api::code::BAD_REQUEST.word
            && report.hint == api::code::BAD_REQUEST.hint
            && let Some(word) = report.message.split([' ', ':']).next()
        {
            // A global flag is no part of the request.
            let named = |argument: &&clap::Arg| {
                !argument.is_global_set() && argument.get_long() == Some(word.replace('_', "-").as_str())
            };
            if let Some(flag) = command.get_arguments().find(named).and_then(clap::Arg::get_long) {
                report.hint = format!("correct the value of --{flag}: the message says what was expected");
            }
        }
        self
    }

    /// Tells standard error, and gives the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        let CommandError::Reported(report) = self else { return ExitCode::SUCCESS };
        let mut stderr = anstream::stderr().lock();
        // If standard error is closed as well, the exit code remains.
        let _ = if json { report.json(&mut stderr) } else { report.human(&mut stderr, Screen::of_stderr()) };
        ExitCode::from(report.exit)
    }
}

impl ErrorReport {
    pub fn code(&self) -> &str {
        &self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    fn json(&self, to: &mut impl Write) -> std::io::Result<()> {
        /// In the order in which the operator API writes it.
        #[derive(Serialize)]
        struct ErrorDocument<'a> {
            error: &'a ErrorReport,
        }
        // Whoever reads it at a terminal sees the text, and not what a hostile server would make of the screen.
        let document = serde_json::to_string(&ErrorDocument { error: self })?;
        let shown = document.chars().map(|c| if is_steering(c) { escaped(c) } else { c.to_string() });
        writeln!(to, "{}", shown.collect::<String>())
    }

    fn human(&self, to: &mut impl Write, screen: Screen) -> std::io::Result<()> {
        let red = anstyle::AnsiColor::Red.on_default().bold();
        let (code, message) = (harmless(&self.code), harmless_lines(&self.message));
        let message = screen.hang(ERROR.len(), ERROR.len(), &format!("{code}: {message}"));
        writeln!(to, "{red}error{red:#}: {message}")?;
        if self.mistakes.len() > 1 {
            for mistake in &self.mistakes {
                writeln!(to, "  {}", screen.hang(2, 4, &harmless_lines(&mistake.to_string())))?;
            }
        }
        if let Some(request_id) = &self.request_id {
            writeln!(to, "  request: {}", harmless(request_id))?;
        }
        if self.hint.is_empty() {
            Ok(())
        } else {
            let hint = harmless_lines(&self.hint);
            writeln!(to, "{REMEDY}{}", screen.hang(REMEDY.len(), REMEDY.len(), &hint))
        }
    }
}

/// All that steer are in Unicode's first plane, so that one escape says them. Outside of strings JSON has none of them.
fn escaped(c: char) -> String {
    format!("\\u{:04x}", u32::from(c))
}

impl From<client::Error> for CommandError {
    fn from(error: client::Error) -> Self {
        let ErrorDetail { code, message, mut hint, request_id, retryable, affected, active_sessions } =
            error.detail();
        if hint.is_empty() && error.exit_code() == Exit::Usage as u8 {
            hint = "correct the flag or environment variable that gives this value; see --help".to_owned();
        }
        CommandError::Reported(Box::new(ErrorReport {
            exit: error.exit_code(),
            code,
            message,
            hint,
            request_id: Some(request_id).filter(|id| !id.is_empty()),
            retryable,
            affected,
            active_sessions,
            mistakes: Vec::new(),
        }))
    }
}

/// A secret given where its id belongs stays here: it is not sent, and so reaches nobody's log.
pub fn not_the_secret(id: &str, prefix: &str) -> Result<(), CommandError> {
    if id.starts_with(prefix) {
        let hint = "give the id that was printed beside the secret; the list command shows the ids";
        return Err(CommandError::usage("the value given is the secret itself, not its id", hint));
    }
    Ok(())
}

#[cfg(test)]
impl CommandError {
    pub fn code(&self) -> &str {
        match self {
            CommandError::Reported(report) => &report.code,
            CommandError::OutputClosed => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(failure: CommandError) -> ErrorReport {
        match failure {
            CommandError::Reported(report) => *report,
            CommandError::OutputClosed => panic!("nothing report"),
        }
    }

    #[test]
    fn an_error_is_a_code_what_happened_and_a_remedy() {
        let report = report(CommandError::new(Exit::Refused, "token_used", "it was used", "make another"));
        let mut text = Vec::new();
        report.human(&mut anstream::StripStream::new(&mut text), Screen::none()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "error: token_used: it was used\n  remedy: make another\n");
        let mut json = Vec::new();
        report.json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let expected = serde_json::json!({"error": {
            "code": "token_used", "message": "it was used", "hint": "make another",
            "request_id": null, "retryable": false,
        }});
        assert_eq!(json, expected);
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_in_json_and_replaced_in_text() {
        let report = report(CommandError::new(Exit::Refused, "x", "a\u{202e}b\u{9b}c\u{1b}d\ne", ""));
        let (mut json, mut text) = (Vec::new(), Vec::new());
        report.json(&mut json).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert!(json.contains(r"a\u202eb\u009bc\u001bd\ne"), "{json}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["error"]["message"], "a\u{202e}b\u{9b}c\u{1b}d\ne");
        report.human(&mut text, Screen::none()).unwrap();
        assert!(!String::from_utf8(text).unwrap().contains(['\u{202e}', '\u{9b}']));
    }

    #[test]
    fn a_terminal_shows_an_error_within_its_width() {
        let report = report(CommandError::new(
            Exit::Refused,
            "node_not_found",
            "there is no node web1",
            "check the id with `enlist node list`; nodes of other tenants are not visible",
        ));
        let mut text = Vec::new();
        let screen = Screen::terminal(40, lifecycle::names::Timestamp::from_secs(1));
        report.human(&mut anstream::StripStream::new(&mut text), screen).unwrap();
        let expected = "error: node_not_found: there is no node\n       web1\n  remedy: check the id with\n          `enlist node list`; nodes of\n          other tenants are not visible\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_wrong_command_line_has_the_shape_of_every_error() {
        let error = crate::command_line::definition().try_get_matches_from(["enlist", "token", "make"]);
        let report = report(CommandError::command_line(&error.unwrap_err()));
        assert_eq!((report.exit, report.code.as_str()), (2, "usage"));
        assert!(report.message.starts_with("unrecognized subcommand 'make'"), "{}", report.message);
        assert!(report.hint.contains("enlist token"), "{}", report.hint);
    }

    #[test]
    fn a_field_that_is_a_flag_is_named_as_the_flag() {
        let (code, generic) = (api::code::BAD_REQUEST.word, api::code::BAD_REQUEST.hint);
        let named = |message: &str, hint: &str| {
            let command = clap::Command::new("create").arg(clap::Arg::new("id").long("node-id"));
            report(CommandError::new(Exit::Refused, code, message, hint).naming_flags(&command)).hint
        };
        let hint = |message| named(message, generic);
        assert_eq!(
            hint("node_id: 1 to 63 characters"),
            "correct the value of --node-id: the message says what was expected"
        );
        assert_eq!(hint("body: no JSON"), generic);
        assert_eq!(named("node_id: taken", "choose another"), "choose another");
    }

    #[test]
    fn what_the_other_side_says_cannot_move_the_cursor() {
        let report = report(CommandError::new(Exit::Refused, "x", "a\u{1b}[2Jb\nc", ""));
        let mut text = Vec::new();
        report.human(&mut anstream::StripStream::new(&mut text), Screen::none()).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "error: x: a\u{fffd}[2Jb\nc\n");
    }
}
