//! Many hosts of one overlay on their live streams, against one control plane beside them on this machine.
//!
//! `cargo run --release -p enlist --example peers -- [--hosts N]`, after `cargo build --release --bin enlist`. Each host is registered by
//! its hardware, enrolls, opens its live stream and claims its place in the overlay, all of them at once; then one
//! more joins, and one is revoked by the operator's program. Each time it is measured how long it took until the last host was told,
//! what CPU time the control plane spent, and how many bytes it sent about peers.
//!
//! Prints one line of a Markdown table. Nothing is asserted about time; a host that does not come to know exactly the others
//! fails the run.

#[path = "../../benches/enrollment/framing.rs"]
mod framing;
#[path = "../../benches/enrollment/launch.rs"]
mod launch;
#[path = "../storm/transport.rs"]
mod transport;
#[path = "../../benches/enrollment/usage.rs"]
mod usage;

mod control_plane;
mod host;
mod knowledge;

use control_plane::ControlPlane;
use framing::Error;
use futures::StreamExt;
use host::Host;
use knowledge::Knowledge;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest that everything may take before the run is given up: no measure of speed, only the end of a run that hangs.
const GIVE_UP: Duration = Duration::from_secs(900);
/// Hosts that enroll at once.
const ENROLLING: usize = 64;

fn main() -> Result<(), Error> {
    let hosts = arguments()?;
    open_many_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            result = run(hosts) => result,
            () = tokio::time::sleep(GIVE_UP) => Err("the run took too long".into()),
            _ = tokio::signal::ctrl_c() => Err("stopped".into()),
        }
    })
}

fn arguments() -> Result<usize, Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(1000),
        ["--hosts", count] => Ok(count.parse()?),
        _ => Err("usage: peers [--hosts N]".into()),
    }
}

/// What one change cost.
struct Change {
    last_told: Duration,
    cpu: Duration,
    bytes: u64,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (told, cpu) = (self.last_told.as_secs_f64(), self.cpu.as_secs_f64());
        write!(f, "{told:.2} s | {cpu:.2} s | {}", megabytes(self.bytes))
    }
}

fn megabytes(bytes: u64) -> String {
    if bytes < 10_000_000 { format!("{} kB", bytes / 1000) } else { format!("{} MB", bytes / 1_000_000) }
}

async fn run(count: usize) -> Result<(), Error> {
    let plane = ControlPlane::start()?;
    plane.register(count + 1)?;
    let knowledge = Arc::new(Knowledge::new(count + 1));
    let dialer = plane.dialer()?;
    let stranger = dialer.tls(None, b"h2")?;
    let open = |number: usize| Host::open(&dialer, &stranger, number, knowledge.clone());
    let opened: Vec<Result<Host, Error>> =
        futures::stream::iter(0..=count).map(open).buffer_unordered(ENROLLING).collect().await;
    let mut hosts = opened.into_iter().collect::<Result<Vec<Host>, Error>>()?;
    hosts.sort_by_key(|host| host.number);
    let late = hosts.pop().ok_or("no hosts")?;

    let all = measured(&plane, &knowledge, async {
        hosts.iter().try_for_each(Host::claim)?;
        knowledge.all_know(0..count, 0..count).await
    });
    let all = all.await?;
    let one = measured(&plane, &knowledge, async {
        late.claim()?;
        knowledge.all_know(0..=count, 0..=count).await
    });
    let one = one.await?;
    let gone = measured(&plane, &knowledge, async {
        plane.revoke(late.number).await?;
        knowledge.none_knows(0..count, late.number).await
    });
    let gone = gone.await?;
    println!("| {count} | {all} | {one} | {gone} | {} MB |", plane.memory() / 1024);
    Ok(())
}

async fn measured(
    plane: &ControlPlane,
    knowledge: &Knowledge,
    change: impl Future<Output = Result<(), Error>>,
) -> Result<Change, Error> {
    // What came before is over when nothing comes any more.
    knowledge.quiet().await;
    let (cpu, bytes, began) = (plane.cpu(), knowledge.bytes(), Instant::now());
    change.await?;
    let last_told = knowledge.last_news().duration_since(began);
    knowledge.quiet().await;
    Ok(Change { last_told, cpu: plane.cpu() - cpu, bytes: knowledge.bytes() - bytes })
}

/// As many as this process may have; what it starts may then have them too.
fn open_many_files() -> Result<(), Error> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
