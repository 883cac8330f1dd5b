//! What several replicas cost beside one: durable audited commands per second and their CPU in the same run; then, with many nodes,
//! how soon a new replica has caught up, how soon a killed one serves again, and how much memory each holds.
//!
//! `cargo bench -p enlist --bench cluster -- [--commands N] [--nodes N]`. Prints Markdown. All replicas share the machine with the load
//! program, so three of them divide its cores; the ratio and the CPU say more than the rate.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should stop where it stands")]

#[path = "../enrollment/launch.rs"]
mod launch;
mod replica;
#[path = "../enrollment/usage.rs"]
mod usage;

use replica::Replicas;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Machines in one request, and requests under way at each replica.
const BATCH: usize = 1000;
const REQUESTS: usize = 2;
/// Connections on which tokens are created one after the other.
const CLIENTS: usize = 96;

struct Arguments {
    commands: usize,
    nodes: usize,
}

fn arguments() -> Arguments {
    let mut found = Arguments { commands: 10_000, nodes: 100_000 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = |default| words.next().and_then(|n| n.parse().ok()).unwrap_or(default);
        match word.as_str() {
            "--commands" => found.commands = number(10_000),
            "--nodes" => found.nodes = number(100_000),
            // What `cargo bench` itself adds.
            _ => {}
        }
    }
    found
}

fn main() -> Result<(), Error> {
    let arguments = arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        println!("## Durable audited commands\n");
        println!(
            "| replicas | command | commands | per second | CPU of all replicas, µs each | × one replica |"
        );
        println!("|---|---|---|---|---|---|");
        let alone = Replicas::start(1).await?;
        let base = rates(&alone, &arguments, None).await?;
        drop(alone);
        let three = Replicas::start(3).await?;
        rates(&three, &arguments, Some(&base)).await?;
        fleet(three, arguments.nodes, arguments.commands).await
    })
}

/// CPU of each kind of command, in µs.
struct Costs {
    token: f64,
    registration: f64,
}

async fn rates(replicas: &Replicas, arguments: &Arguments, base: Option<&Costs>) -> Result<Costs, Error> {
    let count = replicas.all.len();
    let before = (Instant::now(), replicas.cpu());
    create_tokens(replicas, arguments.commands).await?;
    let token = row(
        count,
        "token created, one per request",
        arguments.commands,
        before,
        replicas.cpu(),
        base.map(|base| base.token),
    );
    let before = (Instant::now(), replicas.cpu());
    register(replicas, 0, arguments.commands).await?;
    let registration = row(
        count,
        "machine registered, 1,000 per request",
        arguments.commands,
        before,
        replicas.cpu(),
        base.map(|base| base.registration),
    );
    Ok(Costs { token, registration })
}

fn row(
    replicas: usize,
    command: &str,
    commands: usize,
    before: (Instant, Duration),
    cpu: Duration,
    base: Option<f64>,
) -> f64 {
    let wall = before.0.elapsed().as_secs_f64();
    let each = (cpu.saturating_sub(before.1)).as_secs_f64() * 1e6 / commands as f64;
    let ratio = base.map_or_else(|| "1.0".to_owned(), |base| format!("{:.1}", each / base));
    println!("| {replicas} | {command} | {commands} | {:.0} | {each:.0} | {ratio} |", commands as f64 / wall);
    each
}

/// On many connections, spread over all replicas.
async fn create_tokens(replicas: &Replicas, count: usize) -> Result<(), Error> {
    let share = count.div_ceil(CLIENTS);
    let mut tasks = Vec::new();
    for client in 0..CLIENTS {
        let mut operator = replicas.in_turn(client).operator().await?;
        tasks.push(tokio::spawn(async move {
            for _ in 0..share {
                operator.ask("POST", "/v1/tokens", &json!({})).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    finish(tasks).await
}

/// Machines `from..from + count`, in batches spread over all replicas.
async fn register(replicas: &Replicas, from: usize, count: usize) -> Result<(), Error> {
    let workers = replicas.all.len() * REQUESTS;
    let batches: Vec<usize> = (from..from + count).step_by(BATCH).collect();
    let mut tasks = Vec::new();
    for worker in 0..workers {
        let mut operator = replicas.in_turn(worker).operator().await?;
        let own: Vec<usize> = batches.iter().copied().skip(worker).step_by(workers).collect();
        tasks.push(tokio::spawn(async move {
            for first in own {
                let machines: Vec<Value> = (first..(first + BATCH).min(from + count)).map(machine).collect();
                let answer = operator.ask("POST", "/v1/nodes/batch", &json!({ "nodes": machines })).await?;
                if answer.get("failed").and_then(Value::as_u64) != Some(0) {
                    return Err(format!("some were not registered: {answer}").into());
                }
            }
            Ok::<_, Error>(())
        }));
    }
    finish(tasks).await
}

fn machine(number: usize) -> Value {
    let bytes = (number as u64).to_be_bytes();
    let tail: Vec<String> = bytes.iter().skip(3).map(|byte| format!("{byte:02x}")).collect();
    json!({ "node_id": format!("machine-{number}"), "mac": format!("02:{}", tail.join(":")) })
}

async fn finish(tasks: Vec<tokio::task::JoinHandle<Result<(), Error>>>) -> Result<(), Error> {
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// With a whole fleet on record.
async fn fleet(mut replicas: Replicas, nodes: usize, registered: usize) -> Result<(), Error> {
    if nodes <= registered {
        return Ok(());
    }
    let before = (Instant::now(), replicas.cpu());
    register(&replicas, registered, nodes - registered).await?;
    println!("\n## {nodes} nodes on record, three replicas\n");
    println!(
        "{} more were registered at {:.0} per second; ",
        nodes - registered,
        (nodes - registered) as f64 / before.0.elapsed().as_secs_f64()
    );
    let began = Instant::now();
    replicas.join().await?;
    let joined = began.elapsed();
    replicas.until_caught_up().await?;
    println!("\n| | |\n|---|---|");
    println!("| a new replica has joined and serves | {:.1} s |", joined.as_secs_f64());
    println!(
        "| it has caught up: every entry, every line of the audit trail | {:.1} s |",
        began.elapsed().as_secs_f64()
    );
    let last = replicas.all.last_mut().ok_or("no replica")?;
    let took = last.restart().await?;
    println!("| a killed replica serves again | {:.1} s |", took.as_secs_f64());
    let memory: Vec<String> =
        replicas.all.iter().map(|replica| format!("{} MB", replica.memory_kb() / 1024)).collect();
    println!("| resident memory of each | {} |", memory.join(", "));
    Ok(())
}

/// For those who wait for a condition.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(600);
    while Instant::now() < deadline {
        if condition().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("{what}: not within ten minutes").into())
}

impl Replicas {
    /// Until the newest has applied what the others have, and copied their trail.
    async fn until_caught_up(&self) -> Result<(), Error> {
        let mut newest = self.all.last().ok_or("no replica")?.operator().await?;
        until("the newest replica catches up", async || {
            let status = newest.ask("GET", "/v1/cluster", &Value::Null).await?;
            let items = status.get("replicas").and_then(Value::as_array).cloned().unwrap_or_default();
            let level = |item: &Value| {
                item.get("lag").and_then(Value::as_u64) == Some(0)
                    && item.get("health").and_then(Value::as_str) == Some("ok")
            };
            if items.len() != self.all.len() || !items.iter().all(level) {
                return Ok(false);
            }
            // While lines of the audit trail are missing there, it says so.
            let health = newest.ask("GET", "/readyz", &Value::Null).await?;
            Ok(health.get("reasons").and_then(Value::as_array).is_some_and(Vec::is_empty))
        })
        .await
    }
}
