//! `enlist dev --replicas N`: starts the replicas, lets those join that are missing, and says when one ends.

use super::cluster_summary::{self, ClusterSession, ReplicaLine};
use super::directory::DevDirectory;
use super::processes::ReplicaProcesses;
use super::{Arguments, addresses, demo_node};
use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::progress::Progress;
use crate::server::join;
use crate::server::serving::StopSignals;
use ::server::config::RawConfig;
use api::rest::cluster::{Cluster, CreateReplicaTokenRequest, MintedReplicaToken, ReplicaHealth};
use api::rest::tokens::{CreateTokenRequest, MintedToken};
use client::OperatorApi;
use client::rest::Path;
use client::url::ServerUrl;
use pki::pin::Pin;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long the replicas may take to vote.
const VOTING: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(100);

pub async fn serve(
    arguments: &Arguments,
    directory: &DevDirectory,
    output: Output,
    signals: &mut StopSignals,
) -> Result<(), CommandError> {
    let mut processes = ReplicaProcesses::new();
    let shown = tokio::select! {
        // Who interrupts it wants to see no failure that came of that.
        biased;
        () = signals.next() => None,
        shown = show(arguments, directory, &mut processes, output) => Some(shown),
    };
    match shown {
        Some(Ok(())) if !arguments.once => {}
        Some(shown) => {
            processes.stop(signals).await;
            return shown;
        }
        None => {
            processes.stop(signals).await;
            // Nothing has been printed yet.
            if directory.is_temporary() {
                directory.remove_if_temporary();
                return Ok(());
            }
            let enlist = directory.own_program()?;
            return cluster_summary::print_stopped(directory, &enlist, &[], output);
        }
    }
    let enlist = directory.own_program()?;
    loop {
        tokio::select! {
            () = signals.next() => break,
            ended = processes.next_end() => {
                cluster_summary::print_ended(directory, &enlist, &ended, output)?;
            }
        }
    }
    processes.stop(signals).await;
    cluster_summary::print_stopped(directory, &enlist, &started_by_hand(directory).await, output)
}

async fn show(
    arguments: &Arguments,
    directory: &DevDirectory,
    processes: &mut ReplicaProcesses,
    output: Output,
) -> Result<(), CommandError> {
    let starting = Progress::new("starting the replicas", output);
    let urls = starting.during(start(directory, arguments.listen, processes)).await?;
    let operator = operator(directory, 1);
    let (agent, enlist) = (directory.agent_program()?, directory.own_program()?);
    let url = urls.first().map(String::as_str).unwrap_or_default();
    let demo = match arguments.no_agent {
        true => None,
        false => Some(demo_node(directory, &agent, url, &operator).await?),
    };
    let token: MintedToken = operator.post(&Path::new("/v1/tokens"), &CreateTokenRequest::default()).await?;
    let mut replicas = Vec::new();
    for (process, url) in processes.all.iter().zip(urls) {
        replicas.push(ReplicaLine::new(process, url, &status(directory, process.number).await?));
    }
    let session = ClusterSession {
        directory,
        enlist: &enlist,
        agent: &agent,
        replicas,
        root_key: directory.root_key_file(&token.ca_pin),
        token: &token,
        demo: demo.as_ref(),
        once: arguments.once,
    };
    cluster_summary::print(&session, output)
}

/// Starts what is there, lets the others join, and waits until all vote. The URLs are in the order of the processes.
async fn start(
    directory: &DevDirectory,
    listen: Option<SocketAddr>,
    processes: &mut ReplicaProcesses,
) -> Result<Vec<String>, CommandError> {
    let (made, missing): (Vec<u8>, Vec<u8>) =
        (1..=directory.replicas).partition(|number| directory.replica(*number).check_version().is_ok());
    // All at once: one of several is not ready without a majority.
    let mut starting = Vec::new();
    for number in made {
        starting.push(processes.start(directory, number)?);
    }
    let mut urls = Vec::new();
    for replica in starting {
        urls.push(replica.ready().await?);
    }
    for number in missing {
        join_one(directory, number, listen).await?;
        urls.push(processes.start(directory, number)?.ready().await?);
    }
    let all_vote = async {
        loop {
            let cluster = status(directory, 1).await?;
            let votes = cluster.replicas.iter().filter(|item| item.voter && item.health == ReplicaHealth::Ok);
            if votes.count() >= usize::from(directory.replicas) && cluster.leader.is_some() {
                return Ok(urls);
            }
            sleep(GLANCE).await;
        }
    };
    timeout(VOTING, all_vote).await.unwrap_or_else(|_| {
        let hint = format!("see what they log in {}", directory.replica_log(None).display());
        Err(CommandError::new(
            Exit::Fault,
            "replica_not_started",
            "the replicas did not all vote in time",
            &hint,
        ))
    })
}

async fn join_one(
    directory: &DevDirectory,
    number: u8,
    listen: Option<SocketAddr>,
) -> Result<(), CommandError> {
    let request = CreateReplicaTokenRequest { expires: None };
    let token: MintedReplicaToken =
        operator(directory, 1).post(&Path::new("/v1/cluster/tokens"), &request).await?;
    let (listen, peer) = addresses::of_replica(number, listen)?;
    let config = RawConfig {
        listen: vec![listen.to_string()],
        peer_listen: Some(peer.to_string()),
        kek: Some(directory.kek().to_string()),
        ..RawConfig::default()
    };
    let unusable =
        |error: &dyn std::fmt::Display| CommandError::fault("replica_not_started", error.to_string());
    let url = ServerUrl::parse(&token.peer_url).map_err(|error| unusable(&error))?;
    let pin = Pin::parse(&token.ca_pin).map_err(|error| unusable(&error))?;
    join(directory.replica(number), config, url, pin, token.token).await.map(drop)
}

fn operator(directory: &DevDirectory, number: u8) -> OperatorApi {
    OperatorApi::over_socket(directory.replica(number).operator_socket())
}

async fn status(directory: &DevDirectory, number: u8) -> Result<Cluster, CommandError> {
    Ok(operator(directory, number).get(&Path::new("/v1/cluster")).await?)
}

/// Replicas that still run when those of this program have ended: they were started again from another terminal.
async fn started_by_hand(directory: &DevDirectory) -> Vec<u8> {
    let mut running = Vec::new();
    for number in 1..=directory.replicas {
        if status(directory, number).await.is_ok() {
            running.push(number);
        }
    }
    running
}
