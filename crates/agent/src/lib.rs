//! The host daemon: obtains, keeps and proves a node's identity.
//!
//! - [`config`]: flags, environment and agent.toml, checked before anything is done.
//! - [`store`]: what is kept on disk, and how it survives a crash.
//! - [`enroll`], [`status`]: one module per command.
//!
//! Where to connect, whom to trust and how to retry on the wire is `client`'s; what a certificate must look
//! like is `pki`'s.

mod chance;
pub mod cli;
mod clock;
pub mod config;
pub mod enroll;
pub mod fault;
mod host;
mod logging;
mod output;
pub mod status;
pub mod store;
pub mod token;
pub mod token_source;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use cli::{Cli, Command, EnrollArgs};
use config::Environment;
use fault::Fault;

/// The definition of the command line, for reference pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one command line, the program's name first.
pub fn main_with(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let json = args.iter().any(|arg| arg == "--json");
    match Cli::try_parse_from(args) {
        Ok(cli) => perform(&cli, &Environment::of_process()),
        Err(error) if error.use_stderr() && json => {
            let message = error.kind().to_string();
            let hint = "see `enlist-agent help`";
            let detail = error.render().to_string();
            let line = detail.lines().next().and_then(|line| line.strip_prefix("error: "));
            failed(&Fault::usage("usage", line.unwrap_or(&message), hint), json)
        }
        Err(error) => {
            _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

fn perform(cli: &Cli, environment: &Environment) -> ExitCode {
    logging::start(environment, cli.json);
    match &cli.command {
        Command::Enroll(args) => match enroll(args, environment) {
            Ok(report) => done(&report, cli.json),
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Status(args) => match status::Status::read(&args.place.path(environment), clock::now()) {
            Ok(status) => {
                output::document(&status, cli.json);
                ExitCode::from(u8::from(!status.is_usable()))
            }
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command(), "enlist-agent", &mut script);
            output::raw(&script);
            ExitCode::SUCCESS
        }
        Command::Man => {
            output::raw(&manual());
            ExitCode::SUCCESS
        }
    }
}

fn enroll(args: &EnrollArgs, environment: &Environment) -> Result<enroll::Report, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Fault::host(
            "runtime_failed",
            error.to_string(),
            "see that the process may open files and start threads",
        )
    })?;
    runtime.block_on(enroll::run(args, environment, io::stdin()))
}

/// One page per command, one after the other.
fn manual() -> Vec<u8> {
    let mut whole = command();
    whole.build();
    let mut pages = Vec::new();
    let commands = std::iter::once(&whole).chain(whole.get_subcommands());
    for command in commands.filter(|command| command.get_name() != "help") {
        // Writing to memory does not fail.
        _ = clap_mangen::Man::new(command.clone()).render(&mut pages);
    }
    pages
}

fn done(report: &enroll::Report, json: bool) -> ExitCode {
    output::document(report, json);
    ExitCode::SUCCESS
}

fn failed(fault: &Fault, json: bool) -> ExitCode {
    output::error(fault, json);
    ExitCode::from(fault.exit as u8)
}
