//! How long a revoked node stays connected, and what connected nodes cost the server.
//!
//! `just bench` or `cargo bench -p enlist --bench revocation -- [--streams N] [--revoked N] [--agents N]`, after
//! `cargo build --release --workspace` for the agents. Prints Markdown. Nothing is asserted about time, but a
//! revoked node that stays connected fails the run, and so does any other that is cut off.

#[path = "../enrollment/framing.rs"]
mod framing;
#[path = "../enrollment/launch.rs"]
mod launch;
#[path = "../enrollment/plane.rs"]
mod plane;
#[path = "../enrollment/tokens.rs"]
mod tokens;
#[path = "../enrollment/usage.rs"]
mod usage;
#[path = "../enrollment/wire.rs"]
mod wire;

mod agents;
mod operator;
mod streams;

use agents::Agents;
use operator::Operator;
use plane::Plane;
use std::time::{Duration, Instant};
use streams::Streams;
use wire::Error;

/// A connection that is open for longer after its node was revoked is a failure.
pub const CUT_LIMIT: Duration = Duration::from_secs(30);
/// Heartbeats on every stream; fewer than a host may send at once.
const ROUNDS: usize = 30;
const QUIET: Duration = Duration::from_secs(5);
/// Bytes of the documents, about.
const DOCUMENTS: [usize; 3] = [1024, 16 * 1024, 256 * 1024 - 64];
/// Of the agents, one in this many is revoked.
const AGENT_SHARE: usize = 4;

struct Arguments {
    streams: usize,
    revoked: usize,
    agents: usize,
}

fn arguments() -> Arguments {
    let mut found = Arguments { streams: 1000, revoked: 200, agents: 20 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "--streams" => &mut found.streams,
            "--revoked" => &mut found.revoked,
            "--agents" => &mut found.agents,
            // What `cargo bench` itself adds.
            _ => continue,
        };
        if let Some(number) = words.next().and_then(|word| word.parse().ok()) {
            *place = number;
        }
    }
    found.revoked = found.revoked.min(found.streams);
    found
}

fn main() -> Result<(), Error> {
    open_many_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&arguments()))
}

async fn run(arguments: &Arguments) -> Result<(), Error> {
    let plane = Plane::start(None).map_err(|error| error.to_string())?;
    let agents = Agents::start(&plane, tokens::mint(&plane, arguments.agents).await?)?;
    agents.wait_connected().await?;
    let hosts = streams::enroll(&plane, arguments.streams).await?;
    let bare = plane.rss_kb();
    let mut streams = Streams::open(&plane, hosts).await?;
    let full = plane.rss_kb();

    let (cpu, began) = (plane.cpu(), Instant::now());
    tokio::time::sleep(QUIET).await;
    let quiet = (plane.cpu() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    let (cpu, began) = (plane.cpu(), Instant::now());
    for _ in 0..ROUNDS {
        streams.beat().await?;
    }
    let busy = (plane.cpu() - cpu).as_secs_f64() - quiet * began.elapsed().as_secs_f64();
    let thousands = (ROUNDS * arguments.streams) as f64 / 1000.0;
    println!("## {} live streams and {} agents\n", arguments.streams, arguments.agents);
    println!(
        "| server memory per stream | CPU per 1,000 heartbeats | CPU when all are quiet |\n|---|---|---|"
    );
    println!(
        "| {:.1} kB | {:.1} ms | {:.2} % of a core |\n",
        full.saturating_sub(bare) as f64 / arguments.streams as f64,
        busy * 1000.0 / thousands,
        quiet * 100.0
    );

    // Only now: who connects and asks nothing is not kept for long.
    let mut operator = Operator::connect(&plane).await?;
    configure(&plane, &mut operator, &mut streams, arguments.streams).await?;
    let (answered, closed) = revoke(arguments, &mut operator, &mut streams, &agents).await?;
    agents.wait_revoked(arguments.agents / AGENT_SHARE).await?;
    // Whoever is left is heard and answered.
    streams.beat().await?;
    println!("## {} of them revoked, one after the other\n", arguments.revoked);
    println!("| from the command to | p50 | p99 | max |\n|---|---|---|---|");
    println!("| its answer | {} |", spread(answered));
    println!("| the node's socket closed | {} |", spread(closed));
    println!("\n{} agents were revoked as well and say so.", arguments.agents / AGENT_SHARE);
    Ok(())
}

/// A document for all of them, twice of each size: when it was there, and what it cost.
async fn configure(
    plane: &Plane,
    operator: &mut Operator,
    streams: &mut Streams,
    count: usize,
) -> Result<(), Error> {
    println!("## A new document for all {count} streams\n");
    println!("| document | from the command to its arrival: p50 | p99 | max | server CPU | server memory |");
    println!("|---|---|---|---|---|---|");
    for (round, size) in DOCUMENTS.into_iter().chain(DOCUMENTS).enumerate() {
        let filling = "x".repeat(size.saturating_sub(16));
        let document = format!("{{\"round\":{round},\"x\":\"{filling}\"}}");
        let (cpu, began, bytes) = (plane.cpu(), Instant::now(), document.len());
        operator.configure(document).await?;
        let arrived = streams.configured(bytes).await?;
        let times = arrived.into_iter().map(|at| at.duration_since(began)).collect();
        let spent = plane.cpu() - cpu;
        println!("| {bytes} bytes | {} | {spent:?} | {} kB |", spread(times), plane.rss_kb());
    }
    println!();
    Ok(())
}

/// Times to the answer and to the end of the connection.
async fn revoke(
    arguments: &Arguments,
    operator: &mut Operator,
    streams: &mut Streams,
    agents: &Agents,
) -> Result<(Vec<Duration>, Vec<Duration>), Error> {
    let (mut answered, mut closed) = (Vec::new(), Vec::new());
    let mut doomed_agents = agents.node_ids()?.into_iter().take(arguments.agents / AGENT_SHARE);
    let every = (arguments.revoked * AGENT_SHARE / arguments.agents.max(1)).max(1);
    for number in 0..arguments.revoked {
        if number % every == 0
            && let Some(node) = doomed_agents.next()
        {
            operator.revoke(&node).await?;
        }
        // Spread over all of them.
        let at = number * arguments.streams / arguments.revoked;
        let node = streams.doom(at)?;
        let began = Instant::now();
        let (answer, end) = tokio::join!(operator.revoke(&node), streams.closed(at));
        answered.push(answer?.duration_since(began));
        closed.push(end?.duration_since(began));
    }
    for node in doomed_agents {
        operator.revoke(&node).await?;
    }
    Ok((answered, closed))
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = |share: usize| {
        let time = times.get((times.len() * share / 100).min(last)).copied().unwrap_or_default();
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    };
    format!("{} | {} | {}", at(50), at(99), at(100))
}

/// As many as this process may have; what it starts may then have them too.
fn open_many_files() -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
