//! `plfm`: the command lines of 000.

mod hosts;
mod tenant_scope;
mod tokens;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;
use tenant_scope::PlfmTenant;

/// Manage hosts with the commands of plfm, on an Enlist control plane
#[derive(Debug, Parser)]
#[command(name = "plfm", version, propagate_version = false, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    family: Family,
    /// Print results and errors as JSON, one item per line
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    /// Tenant to work in [default: the operator's only tenant, else `default`]
    #[arg(long, global = true, display_order = 899)]
    tenant: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum Family {
    /// List, show, drain, decommission and revoke hosts
    #[command(subcommand)]
    Hosts(HostsCommand),
}

#[derive(Debug, Subcommand)]
enum HostsCommand {
    /// Create, list and revoke enrollment tokens, one for each host
    #[command(subcommand)]
    EnrollToken(tokens::Command),
    #[command(flatten)]
    Host(hosts::Command),
}

pub fn main(arguments: &[OsString]) -> ExitCode {
    crate::serve(arguments, |line: &CommandLine| line.json, perform)
}

async fn perform(line: CommandLine) -> Result<(), CommandError> {
    let (operator, output) = (line.reach.operator()?, Output::new(line.json));
    let Family::Hosts(command) = line.family;
    let scope = PlfmTenant::of(&operator, line.tenant).await?;
    match command {
        HostsCommand::EnrollToken(command) => tokens::run(command, scope, output).await,
        HostsCommand::Host(command) => hosts::run(command, scope, output).await,
    }
}
