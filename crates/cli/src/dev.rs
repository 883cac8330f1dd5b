//! `enlist dev`: a control plane of one or several replicas and a node of it, on this machine, in seconds.

mod addresses;
mod agent;
mod cluster;
mod cluster_summary;
mod directory;
mod processes;
mod summary;

use crate::error::{CommandError, Exit};
use crate::logs;
use crate::output::Output;
use crate::reach::Reach;
use crate::server::serving::{self, StopSignals};
use ::server::run::{Overrides, RunError, Server, start};
use api::rest::nodes::NodeItem;
use api::rest::tokens::{CreateTokenRequest, MintedToken};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use client::OperatorApi;
use client::rest::Path;
use directory::DevDirectory;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path as FilePath;
use std::time::Duration;

/// The default address, used if its port is free.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8443);

/// A control plane that cannot write its log says so within a second.
const FAILURE_SHOWS: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Address to listen on, of the first of several replicas [default: that of --dir; in a new one 127.0.0.1:8443, or any free
    /// port]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Start so many replicas, each in a process of its own [default: 1, or as many as --dir has]
    #[arg(long, value_name = "N", value_parser = replica_count())]
    replicas: Option<u8>,
    /// Start the control plane only, without the demo node
    #[arg(long)]
    no_agent: bool,
    /// Exit as soon as everything is up, and remove a temporary directory
    #[arg(long)]
    once: bool,
}

fn replica_count() -> impl TypedValueParser<Value = u8> {
    PossibleValuesParser::new(["1", "3", "5"]).try_map(|count| count.parse::<u8>())
}

pub async fn run(arguments: Arguments, reach: Reach, output: Output) -> Result<(), CommandError> {
    reach.only_dir()?;
    // What is printed here must not be interrupted by the log, unless the user asks for both.
    let read_along = logs::is_asked_for();
    if read_along {
        logs::start("info")?;
    }
    let mut signals = StopSignals::listen()?;
    let directory = DevDirectory::prepare(reach.dir.as_deref(), arguments.replicas, arguments.listen).await?;
    if !read_along {
        logs::start_in(&directory.log(), "info").inspect_err(|_| directory.remove_if_temporary())?;
    }
    let done = match directory.replicas {
        1 => serve(&arguments, &directory, output, &mut signals).await,
        _ => cluster::serve(&arguments, &directory, output, &mut signals).await,
    };
    if arguments.once || done.is_err() {
        directory.remove_if_temporary();
    }
    done
}

async fn serve(
    arguments: &Arguments,
    directory: &DevDirectory,
    output: Output,
    signals: &mut StopSignals,
) -> Result<(), CommandError> {
    let server = listen(arguments.listen, directory).await?;
    let shown = tokio::select! {
        shown = show(arguments, directory, &server, output) => shown,
        cause = server.failed() => Err(serving::replication_stopped(&cause, directory.dir.path())),
        () = signals.next() => {
            let stopped = serving::stop(server, signals).await;
            // Nothing has been printed yet.
            directory.remove_if_temporary();
            return stopped;
        }
    };
    // What the demo node says is then only what follows from it.
    let shown = match shown {
        Err(failure) => match tokio::time::timeout(FAILURE_SHOWS, server.failed()).await {
            Ok(cause) => Err(serving::replication_stopped(&cause, directory.dir.path())),
            Err(_) => Err(failure),
        },
        shown => shown,
    };
    if shown.is_err() || arguments.once {
        let stopped = serving::stop(server, signals).await;
        return shown.and(stopped);
    }
    let cause = tokio::select! {
        () = signals.next() => None,
        cause = server.failed() => Some(cause),
    };
    let stopped = serving::stop(server, signals).await;
    if let Some(cause) = cause {
        return Err(serving::replication_stopped(&cause, directory.dir.path()));
    }
    stopped?;
    summary::print_stopped(directory, &directory.own_program()?, output)
}

/// Where it was asked for, now or when the directory was made: nodes look for it there.
async fn listen(asked: Option<SocketAddr>, directory: &DevDirectory) -> Result<Server, CommandError> {
    let overrides = Overrides { listen: asked.into_iter().collect(), ..Overrides::default() };
    start(directory.dir.clone(), overrides).await.map_err(|error| match error {
        RunError::Listen { address, ref error } if asked.is_none() && error.kind() == ErrorKind::AddrInUse => {
            let message = format!(
                "{address}, where the agents of {} look for this control plane, is in use by another process",
                directory.path()
            );
            let hint = format!(
                "stop that process; or go on at another address with `--listen {}`, and give these agents the URL that is printed \
                 then (--server, or `server` in their agent.toml)",
                SocketAddr::new(address.ip(), 0)
            );
            CommandError::new(Exit::Fault, "cannot_listen", message, hint)
        }
        error => error.into(),
    })
}

async fn show(
    arguments: &Arguments,
    directory: &DevDirectory,
    server: &Server,
    output: Output,
) -> Result<(), CommandError> {
    let operator = OperatorApi::over_socket(directory.dir.operator_socket());
    let (program, enlist, log) = (directory.agent_program()?, directory.own_program()?, directory.log());
    let demo = match arguments.no_agent {
        true => None,
        false => Some(demo_node(directory, &program, &server.url(), &operator).await?),
    };
    let token: MintedToken = operator.post(&Path::new("/v1/tokens"), &CreateTokenRequest::default()).await?;
    let root_key = directory.root_key_file(&token.ca_pin);
    summary::print(
        &summary::DevSession {
            directory,
            enlist: &enlist,
            agent: &program,
            server,
            token: &token,
            demo: demo.as_ref(),
            root_key,
            log: Some(log.as_path()).filter(|_| !logs::is_asked_for()),
            once: arguments.once,
        },
        output,
    )
}

/// The demo node, and how it came to be what it is.
struct Demo {
    node: NodeItem,
    story: String,
}

/// The node of an earlier run is shown as it is.
async fn demo_node(
    directory: &DevDirectory,
    program: &FilePath,
    server: &str,
    operator: &OperatorApi,
) -> Result<Demo, CommandError> {
    if let Some(node) = agent::find(operator).await? {
        let story = format!("{} is {}, from an earlier run", node.node_id, node.state);
        return Ok(Demo { node, story });
    }
    let began = tokio::time::Instant::now();
    let request = CreateTokenRequest { node: Some(agent::NODE.to_owned()), ..CreateTokenRequest::default() };
    let token: MintedToken = operator.post(&Path::new("/v1/tokens"), &request).await?;
    agent::enroll(program, server, &token, &directory.demo_agent()).await?;
    let node = agent::until_active(operator).await?;
    let took = began.elapsed().as_secs_f32();
    let story = format!("{} enrolled with a token and is {}, {took:.1} s later", node.node_id, node.state);
    Ok(Demo { node, story })
}
