//! `enlist audit`: the trail of every change.

mod export;
mod file;
mod list;
mod verify;

use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;
use api::rest::audit::AuditQuery;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the lines, oldest first
    List {
        /// Only those about this node
        #[arg(long, value_name = "ID")]
        node: Option<String>,
        /// Only those of this kind, such as host.enrolled
        #[arg(long, value_name = "TYPE")]
        event: Option<String>,
    },
    /// Write the whole trail as JSON lines, with a signed footer at the end
    Export {
        /// To this file instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check that nothing was changed, added or removed
    Verify {
        /// An exported file instead of the control plane's own trail; nothing but a CA or its pin is needed
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// What the file's signature must lead to; or --ca-pin
        #[arg(long, value_name = "FILE", requires = "file")]
        ca_file: Option<PathBuf>,
    },
}

pub async fn run(command: Command, reach: &Reach, output: Output) -> Result<(), Failure> {
    match command {
        Command::List { node, event } => {
            let query = AuditQuery { node, event_type: event, ..AuditQuery::default() };
            list::run(&reach.operator()?, query, output).await
        }
        Command::Export { out: None } => export::to_output(&reach.operator()?, output).await,
        Command::Export { out: Some(path) } => export::to_file(&reach.operator()?, &path, output).await,
        Command::Verify { file: None, .. } => verify::online(&reach.operator()?, output).await,
        Command::Verify { file: Some(file), ca_file } => {
            verify::offline(&file, ca_file.as_deref(), reach, output)
        }
    }
}
