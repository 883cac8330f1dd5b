//! `taskrun`: the command line of 003. It has one command.

use crate::error::CommandError;
use crate::output::Output;
use crate::reach::Reach;
use crate::table::harmless;
use api::rest::tokens::{CreateTokenRequest, MintedToken};
use clap::{Parser, Subcommand};
use client::rest::Path;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Create bootstrap tokens with the commands of TaskRun, on an Enlist control plane
#[derive(Debug, Parser)]
#[command(name = "taskrun", version, propagate_version = false, max_term_width = 100)]
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
    /// Create bootstrap tokens, one for each worker
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token and print it, and nothing else, to standard output
    Generate {
        /// Lifetime of the token, such as 90s, 15m or 1h [default: policy token.default_ttl]
        #[arg(long, visible_alias = "validity", value_name = "DURATION")]
        expires: Option<String>,
        /// Tenant of the worker [default: the operator's only tenant, else `default`]
        #[arg(long)]
        tenant: Option<String>,
        /// Id of the worker that the token enrolls [default: any worker]
        #[arg(long, value_name = "WORKER_ID")]
        worker: Option<String>,
    },
}

pub fn main(arguments: &[OsString]) -> ExitCode {
    crate::serve(arguments, |line: &CommandLine| line.json, perform)
}

async fn perform(line: CommandLine) -> Result<(), CommandError> {
    let Family::Token(TokenCommand::Generate { expires, tenant, worker }) = line.family;
    let request = CreateTokenRequest {
        expires,
        tenant,
        node: worker,
        profile: None,
        door: Some("taskrun".to_owned()),
        ..CreateTokenRequest::default()
    };
    let minted: MintedToken = line.reach.operator()?.post(&Path::new("/v1/tokens"), &request).await?;
    let output = Output::new(line.json);
    output.document(&minted, |minted| format!("{}\n", minted.token.reveal()))?;
    if !line.json {
        let mut stderr = anstream::stderr().lock();
        let (id, until) = (harmless(&minted.token_id), harmless(&minted.expires_at));
        // The token has been printed; a closed standard error does not fail the command.
        let _ = writeln!(stderr, "bootstrap token {id} works once, until {until}; it is not shown again");
    }
    Ok(())
}
