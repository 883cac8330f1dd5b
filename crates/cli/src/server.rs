//! `enlist server`: found, run and check a control plane on this machine.

mod check;
mod init;
mod notify;
mod run;
pub mod serving;
pub mod trouble;

pub use init::{Founding, found, user};

use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;
use ::server::datadir::DataDir;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Found a domain: certificate authority, sealed keys and configuration, in a new data directory
    Init(Box<init::Arguments>),
    /// Run the control plane; one line `ready https://...` on standard output, logs on standard error
    Run(run::Arguments),
    /// Check a data directory and its configuration; every mistake is reported
    Check,
}

pub async fn run(command: Command, reach: Reach, output: Output) -> Result<(), Failure> {
    let dir = DataDir::new(reach.data_dir()?);
    match command {
        Command::Init(arguments) => init::run(*arguments, dir, output).await,
        Command::Run(arguments) => run::run(arguments, dir).await,
        Command::Check => check::run(&dir, output),
    }
}
