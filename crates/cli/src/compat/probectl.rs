//! `probectl-control`: the command lines of 002, whose flags may have one dash or two.

mod agent_ca;
mod enroll_token;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Enroll agents with the commands of probectl, on an Enlist control plane
#[derive(Debug, Parser)]
#[command(name = "probectl-control", version, propagate_version = false, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    family: Family,
    /// Print results and errors as JSON
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum Family {
    /// Create and export the certificate authority of the agents
    #[command(subcommand)]
    AgentCa(agent_ca::Command),
    /// Create a join token for one agent; its value is shown only once
    EnrollToken(enroll_token::Arguments),
}

pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = ::agent::compat::two_dashes(arguments, &CommandLine::command());
    crate::serve(&arguments, |line: &CommandLine| line.json, perform)
}

async fn perform(line: CommandLine) -> Result<(), CommandError> {
    let output = Output::new(line.json);
    match line.family {
        Family::AgentCa(command) => agent_ca::run(command, line.reach, output).await,
        Family::EnrollToken(arguments) => enroll_token::run(arguments, &line.reach, output).await,
    }
}
