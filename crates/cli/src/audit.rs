//! `enlist audit`: the trail of every change.

mod export;
mod file;
mod list;
mod verify;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use api::rest::audit::AuditLine;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List audit events, oldest first
    List(list::Arguments),
    /// Export the whole audit trail as JSON lines, ended by a signed footer
    Export {
        /// Write to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Verify that no line of the audit trail was changed, added or removed
    Verify {
        /// Verify this exported file instead, without a control plane; needs --ca-file (or --ca) or --ca-pin
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// CA certificate that the signature of the file must chain to, PEM; or use --ca-pin
        #[arg(long, value_name = "FILE", requires = "file")]
        ca_file: Option<PathBuf>,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), CommandError> {
    match command {
        Command::List(arguments) => list::run(&reach.operator()?, arguments, output).await,
        Command::Export { out: None } => export::to_output(&reach.operator()?, output).await,
        Command::Export { out: Some(path) } => export::to_file(&reach.operator()?, &path, output).await,
        Command::Verify { file: None, .. } => verify::online(&reach.operator()?, output).await,
        Command::Verify { file: Some(file), ca_file } => {
            verify::offline(&file, ca_file.as_deref(), reach, output)
        }
    }
}

/// Those fields of a line that it has and that fit into a cell, as `name=value`.
pub fn pairs<'a>(line: &AuditLine, names: impl IntoIterator<Item = &'a &'static str>) -> Vec<String> {
    let pair = |name: &&str| match line.fields.get(*name)? {
        Value::String(text) => Some(format!("{name}={text}")),
        value @ (Value::Number(_) | Value::Bool(_)) => Some(format!("{name}={value}")),
        Value::Array(items) => {
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Some(format!("{name}={}", texts.join(",")))
        }
        Value::Null | Value::Object(_) => None,
    };
    names.into_iter().filter_map(pair).collect()
}
