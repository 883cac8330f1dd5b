//! The host daemon: obtains, keeps and proves a node's identity.
//!
//! - [`config`]: flags, environment and agent.toml, checked before anything is done.
//! - [`compat`], [`layout`]: other documents' names for the program, and places for the identity.
//! - [`store`]: what is kept on disk, and how it survives a crash.
//! - [`memory`]: the same for hosts that keep nothing on a disk.
//! - [`hardware`]: by what this machine is known where there is no token.
//! - [`diagnostics`], [`space`]: what is written down about failures, and the free space for it.
//! - [`screen`]: text that fits the terminal.
//! - [`enroll`], [`run`], [`recover`], [`status`], [`doctor`], [`reconcile`], [`session`]: one module per command.
//!
//! Where to connect, whom to trust and how to retry on the wire is `client`'s; what a certificate must look
//! like is `pki`'s.

pub mod bootstrap;
mod ca_file;
mod chance;
pub mod cli;
pub mod clock;
pub mod code;
pub mod compat;
mod completions;
pub mod config;
pub mod diagnostics;
pub mod doctor;
pub mod enroll;
mod failed_call;
pub mod fault;
pub mod fault_code;
pub mod hardware;
mod host;
mod issued;
pub mod layout;
mod logging;
pub mod manual;
pub mod memory;
mod output;
pub mod overlay;
pub mod reconcile;
pub mod recover;
pub mod run;
pub mod screen;
pub mod service_manager;
pub mod session;
pub mod space;
pub mod spire;
mod spoken;
pub mod status;
pub mod store;
pub mod token;
pub mod token_source;
mod trust_offer;
pub mod version;

use crate::code::{ASK_AS_ROOT, AgentCode};
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

use serde::Serialize;

use cli::{Cli, Command};
use compat::Persona;
use config::{Environment, KeyStorage, Values};
use fault::Fault;
use screen::HumanText;

/// The definition of the command line, for reference pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Whether a program called so is an agent, ours or one of another document's name.
pub fn is_agent(program: &std::ffi::OsStr) -> bool {
    Persona::known(program).is_some()
}

/// Runs one command line, the program's name first.
pub fn main_with(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // What stands after two dashes is another program's.
    let own = args.iter().position(|arg| arg == "--").map_or(args.as_slice(), |at| args.split_at(at).0);
    let json = own.iter().any(|arg| arg == "--json");
    let bare_command = own.len() == args.len() && own.get(1).is_some_and(|command| command == "session");
    let persona = Persona::of(args.first().map(AsRef::as_ref));
    let terminal = !json && io::stderr().is_terminal();
    let environment = Environment::of_process().called(persona).by(args.first()).at_terminal(terminal);
    let command = persona.command(command());
    // Both other documents' agents are known to be called with one dash, too.
    let args = if persona == Persona::Enlist { args } else { compat::two_dashes(args, &command) };
    let parsed = command.try_get_matches_from(args).and_then(|found| Cli::from_arg_matches(&found));
    match parsed {
        Ok(cli) => perform(&cli, &environment),
        // Help that nobody asked for by name is not a mistake to be named.
        Err(error)
            if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            failed(&misused(&error, persona, bare_command), json)
        }
        Err(error) => {
            _ = error.print();
            ExitCode::from(if error.use_stderr() { 2 } else { 0 })
        }
    }
}

/// The library's first paragraph says what is wrong; what follows is the usage, which `--help` shows.
fn misused(error: &clap::Error, persona: Persona, bare_command: bool) -> Fault {
    let text = error.render().to_string();
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let message = paragraph.strip_prefix("error: ").unwrap_or(&paragraph);
    let hint = format!("see `{0} --help` or `{0} COMMAND --help`", persona.name());
    let of_command = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument);
    let after_dashes = (bare_command && of_command).then(|| {
        let name = persona.name();
        format!(
            "the command of the session stands after `--`: `{name} session --kind KIND --user USER -- CMD`"
        )
    });
    // Of its tips only the similar words: the others are about values that begin with a dash.
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    let tips = tips.filter(|tip| tip.contains("similar")).map(str::to_owned);
    let hint = after_dashes.into_iter().chain(tips).chain([hint]).collect::<Vec<_>>().join("; ");
    Fault::new(fault::Exit::Usage, AgentCode::Usage, message, hint)
}

fn perform(cli: &Cli, environment: &Environment) -> ExitCode {
    logging::start(environment, cli.json, matches!(cli.command, Command::Run(_)));
    warn_of_visible_token(&cli.command, environment);
    match &cli.command {
        Command::Enroll(args) => match on_runtime(enroll::run(args, environment, io::stdin())) {
            Ok(report) => done(&report.called(environment.persona(), environment.program()), cli.json),
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Run(args) => match on_runtime(run::run(args, environment, io::stdin())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Recover(args) => match on_runtime(recover::run(args, environment)) {
            Ok(report) => done(&report, cli.json),
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Status(args) => match shown(&args.place.path(environment), environment) {
            Ok(status) => {
                output::document(&status, cli.json);
                ExitCode::from(u8::from(!status.ready))
            }
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Doctor(args) => match on_runtime(doctor::examine(args, environment)) {
            Ok(diagnosis) => {
                output::document(&diagnosis, cli.json);
                ExitCode::from(u8::from(!diagnosis.ok))
            }
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Reconcile(args) => match reconcile::command(args, environment) {
            Ok(report) => {
                output::document(&report, cli.json);
                ExitCode::from(u8::from(!report.ok))
            }
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Session(args) => match on_runtime(session::run(args, environment, cli.json)) {
            Ok(status) => ExitCode::from(status),
            Err(fault) => failed(&fault, cli.json),
        },
        Command::Version => {
            done(&version::ProgramVersion::of("enlist-agent", env!("CARGO_PKG_VERSION")), cli.json)
        }
        Command::Completions { shell } => {
            output::raw(completions::script(*shell).as_bytes());
            ExitCode::SUCCESS
        }
        Command::Man { out: None } => {
            let pages = if output::is_terminal() { manual::installing().into() } else { manual::whole() };
            output::raw(&pages);
            ExitCode::SUCCESS
        }
        Command::Man { out: Some(dir) } => match manual::write(dir) {
            Ok(written) => done(&written, cli.json),
            Err(fault) => failed(&fault, cli.json),
        },
    }
}

/// Every user of the host can read the arguments of a process.
fn warn_of_visible_token(command: &Command, environment: &Environment) {
    let contact = match command {
        Command::Enroll(args) => &args.contact,
        Command::Run(args) => &args.contact,
        _ => return,
    };
    if environment.is_at_terminal() && contact.token.as_deref().is_some_and(|token| token != "-") {
        output::notice(
            "warning: the token is visible in the process list; use `--token -` or `--token-file FILE` instead",
        );
    }
}

/// What the running daemon reports, or else what is on disk.
fn shown(dir: &Path, environment: &Environment) -> Result<status::Status, Fault> {
    let config = config::load(dir, Values::new(), environment);
    match run::socket::ask(dir, config.as_ref().ok()) {
        Some(status) => Ok(status),
        None if let Ok(config) = &config
            && config.storage == KeyStorage::Memory =>
        {
            match run::socket::denied(dir, Some(config)) {
                Some(socket) => {
                    Err(Fault::host(AgentCode::DirUnusable, code::not_asked(&socket), ASK_AS_ROOT))
                }
                None => Ok(status::Status::of_ended_memory(dir)),
            }
        }
        None => {
            let mut status = status::Status::read(dir, clock::now())?;
            status.obtains_by(config.as_ref().ok().and_then(config::AgentConfig::obtains_by));
            Ok(status)
        }
    }
}

fn on_runtime<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Fault::host(
            AgentCode::RuntimeFailed,
            error.to_string(),
            "check that the process may open files and start threads",
        )
    })?;
    let ended = runtime.block_on(work);
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_background();
    ended
}

fn done(report: &(impl Serialize + HumanText), json: bool) -> ExitCode {
    output::document(report, json);
    ExitCode::SUCCESS
}

fn failed(fault: &Fault, json: bool) -> ExitCode {
    output::error(fault, json);
    ExitCode::from(fault.exit as u8)
}
