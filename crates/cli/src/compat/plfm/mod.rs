//! `plfm`: the command lines of 000.

mod hosts;
mod scope;
mod tokens;

use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;
use clap::{Parser, Subcommand};
use scope::Scope;
use std::ffi::OsString;
use std::process::ExitCode;

/// plfm's commands for hosts, answered by Enlist
#[derive(Debug, Parser)]
#[command(name = "plfm", version, propagate_version = false, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    family: Family,
    /// One JSON document, or one line per item; errors as JSON too
    #[arg(long, global = true)]
    json: bool,
    /// The tenant to work in [default: your only one, else `default`]
    #[arg(long, global = true)]
    tenant: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum Family {
    /// Hosts: the machines of the cluster
    #[command(subcommand)]
    Hosts(Hosts),
}

#[derive(Debug, Subcommand)]
enum Hosts {
    /// Enrollment tokens: each lets one host in, once
    #[command(subcommand)]
    EnrollToken(tokens::Command),
    #[command(flatten)]
    Host(hosts::Command),
}

pub fn main(arguments: &[OsString]) -> ExitCode {
    crate::serve(arguments, |line: &CommandLine| line.json, perform)
}

async fn perform(line: CommandLine) -> Result<(), Failure> {
    let (operator, output) = (line.reach.operator()?, Output::new(line.json));
    let Family::Hosts(command) = line.family;
    let scope = Scope::of(&operator, line.tenant).await?;
    match command {
        Hosts::EnrollToken(command) => tokens::run(command, scope, output).await,
        Hosts::Host(command) => hosts::run(command, scope, output).await,
    }
}
