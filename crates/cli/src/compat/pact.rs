//! `pact`: the command lines of 001.

mod nodes;

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Enroll and assign nodes with the commands of pact, on an Enlist control plane
#[derive(Debug, Parser)]
#[command(name = "pact", version, propagate_version = false, max_term_width = 100)]
pub struct CommandLine {
    #[command(subcommand)]
    family: Family,
    /// Print results and errors as JSON, one item per line
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Debug, Subcommand)]
enum Family {
    /// Enroll, decommission, assign, unassign, move, list and inspect nodes
    #[command(subcommand)]
    Node(nodes::Command),
}

pub fn main(arguments: &[OsString]) -> ExitCode {
    crate::serve(arguments, |line: &CommandLine| line.json, perform)
}

async fn perform(line: CommandLine) -> Result<(), CommandError> {
    let Family::Node(command) = line.family;
    nodes::run(command, &line.reach.operator()?, Output::new(line.json)).await
}
