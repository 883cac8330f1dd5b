//! `enlist server`: initialize, run and check a control plane on this machine.

mod check;
mod clock;
mod error;
pub mod init;
mod join;
mod run;
pub mod serving;
pub mod stopped;

pub use init::{InitOptions, initialize, user};
pub use join::join;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use ::server::datadir::DataDir;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Initialize a domain in a new data directory: CA, keys and configuration
    Init(Box<init::Arguments>),
    /// Make the data directory of one more replica of a cluster
    #[command(override_usage = join::USAGE)]
    Join(Box<join::Arguments>),
    /// Run the control plane
    ///
    /// Prints one line, `ready https://HOST:PORT`, to standard output once it accepts requests; logs go to standard
    /// error.
    Run(run::Arguments),
    /// Check a data directory and its configuration, and report every mistake
    Check,
    /// Show the clock of a control plane, accept it after a jump, or repair what a wrong one has done
    #[command(subcommand)]
    Clock(clock::Command),
}

pub async fn run(command: Command, mut reach: Reach, output: Output) -> Result<(), CommandError> {
    // The only one of these commands that speaks to another control plane.
    let pin = if matches!(command, Command::Join(_)) { reach.ca_pin.take() } else { None };
    let dir = || reach.data_dir().map(DataDir::new);
    match command {
        Command::Init(arguments) => init::run(*arguments, dir()?, output).await,
        Command::Join(arguments) => join::run(*arguments, pin, dir()?, output).await,
        Command::Run(arguments) => run::run(arguments, dir()?).await,
        Command::Check => check::run(&dir()?, output),
        Command::Clock(command) => clock::run(command, reach, output).await,
    }
}
