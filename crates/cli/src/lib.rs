//! The operator's tool and the control plane in one program.
//!
//! One command, one call, one rendering: a family of commands is a file with its flags, what it asks of the
//! operator API, and how the answer looks. Nothing is decided here.
//!
//! - [`command_line`]: every command and global flag; help, completions, man pages and docs/cli.md come from it.
//! - `reach`: where the control plane is and how we authenticate, from flags, environment and saved contexts.
//! - `context`: the saved contexts.
//! - `output`, `screen`, `table`, `fields`: what goes to standard output, for people or as JSON.
//! - `shell`: command lines to paste into a shell.
//! - `progress`: how far long work has come, at a terminal.
//! - `error`: what goes to standard error, and the exit code.
//! - `document_file`: a configuration document as it is read from a file.
//! - `examples`: command lines below the help of every command.
//! - `compat`: the same program called by another document's name, and that document's command lines.

mod alert;
mod audit;
mod ca;
mod cluster;
pub mod command_line;
mod compat;
mod completions;
mod confirm;
mod context;
mod dev;
mod document_file;
mod error;
mod examples;
mod explain;
mod fields;
mod logs;
mod manual;
mod node;
mod operator;
mod output;
mod overlay;
mod policy;
mod private_file;
mod progress;
mod reach;
mod screen;
mod server;
mod shell;
mod table;
mod tenant;
mod token;
mod vcluster;
mod version;

use ::agent::clock;
use ::server::key_memory;
use clap::Parser;
use clap::error::ErrorKind;
use command_line::{CommandLine, Family};
use error::{CommandError, Exit};
use output::Output;
use std::ffi::OsString;
use std::process::ExitCode;

/// The whole program.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    pki::pkcs11::become_session_if_asked(&arguments);
    if let Some(name) = arguments.first().and_then(|program| compat::Name::of(program)) {
        return name.main(arguments);
    }
    // The agent is linked into this program, for `enlist dev` and for links under its name.
    if arguments.first().is_some_and(|program| ::agent::is_agent(program)) {
        return ::agent::main_with(arguments);
    }
    serve(&arguments, |line: &CommandLine| line.json, dispatch)
}

/// Reads one command line and performs it, whichever program's it is.
fn serve<L: Parser>(
    arguments: &[OsString],
    json: impl FnOnce(&L) -> bool,
    dispatch: impl AsyncFnOnce(L) -> Result<(), CommandError>,
) -> ExitCode {
    let mut definition = examples::added_to(L::command());
    let parsed = definition.try_get_matches_from_mut(arguments);
    let read = parsed.and_then(|found| {
        let line = L::from_arg_matches(&found).map_err(|error| error.format(&mut definition))?;
        Ok((line, command_line::called(&definition, &found)))
    });
    match read {
        Ok((line, called)) => {
            // Every command may hold a key: of a root, an issuer, an operator.
            key_memory::forbid_dumps();
            let json = json(&line);
            perform(dispatch(line))
                .map_or_else(|failure| failure.naming_flags(&called).report(json), |()| ExitCode::SUCCESS)
        }
        Err(error) if !error.use_stderr() => {
            // Help or version was asked for; a closed standard output is no error.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            incomplete(&error)
        }
        Err(error) => {
            CommandError::command_line(&error).report(arguments.iter().any(|argument| argument == "--json"))
        }
    }
}

/// Half a command is a question: the help answers it, but nothing was done.
fn incomplete(help: &clap::Error) -> ExitCode {
    let _ = help.print();
    ExitCode::from(Exit::Usage as u8)
}

fn perform(work: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CommandError::fault("runtime", format!("the runtime could not be started: {error}"))
    })?;
    let done = runtime.block_on(work);
    // Tasks that still run have been asked to stop, or hold nothing that must be written.
    runtime.shutdown_background();
    done
}

async fn dispatch(line: CommandLine) -> Result<(), CommandError> {
    let (mut reach, output) = (line.reach, Output::new(line.json));
    reach.notices = !line.json;
    match line.family {
        Family::Dev(arguments) => dev::run(arguments, reach, output).await,
        Family::Server(command) => server::run(command, reach, output).await,
        Family::Token(command) => token::run(command, &reach, output).await,
        Family::Node(command) => node::run(command, &reach, output).await,
        Family::Vcluster(command) => vcluster::run(command, &reach, output).await,
        Family::Overlay(command) => overlay::run(command, &reach, output).await,
        Family::Alert(command) => alert::run(command, &reach, output).await,
        Family::Tenant(command) => tenant::run(command, &reach, output).await,
        Family::Policy(command) => policy::run(command, &reach, output).await,
        Family::Ca(command) => ca::run(command, &reach, output).await,
        Family::Cluster(command) => cluster::run(command, &reach, output).await,
        Family::Audit(command) => audit::run(command, &reach, output).await,
        Family::Operator(command) => operator::run(command, &reach, output).await,
        Family::Context(command) => context::run(command, &reach, output),
        Family::Compat(command) => compat::run(command, &reach, output),
        Family::Explain(arguments) => explain::run(&arguments, output),
        Family::Version => version::run(output),
        Family::Completions(arguments) => completions::run(&arguments, output),
        Family::Man(arguments) => manual::run(&arguments, output),
    }
}
