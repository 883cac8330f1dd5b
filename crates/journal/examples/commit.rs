//! How many enrollments a second become durable, and what one costs.
//!
//! `cargo run --release -p journal --example commit -- [--slow-fsync-ms 2] [--commands 20000]`
//!
//! Each line: proposers at a time, durable commands per second, CPU time of the whole process per command
//! (proposing, commit, apply and audit together).
#![expect(clippy::expect_used, reason = "a measurement that cannot go on may panic")]

#[path = "../tests/fixture/mod.rs"]
mod fixture;

use journal::Journal;
use lifecycle::registry::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() {
    let slow = argument("--slow-fsync-ms").map(Duration::from_millis);
    let most = argument("--commands").unwrap_or(20_000);
    println!(
        "{:>9} {:>9} {:>12} {:>12} {:>10}",
        "proposers", "commands", "commands/s", "CPU µs each", "entries"
    );
    for proposers in [1, 64, 512] {
        let commands = if proposers == 1 { most / 10 } else { most };
        run(proposers, commands, slow).await;
    }
}

async fn run(proposers: u64, commands: u64, slow: Option<Duration>) {
    let dir = tempfile::tempdir_in(".").expect("a directory");
    let mut options = fixture::options(dir.path());
    options.slow_fsync = slow;
    let journal = Arc::new(fixture::founded(options).await);
    fixture::tokens(&journal, 0..commands).await;
    let mut envelopes: Vec<_> = (0..commands).map(|n| Some(fixture::enroll(n))).collect();
    let share = envelopes.len().div_ceil(proposers as usize);
    let shares: Vec<Vec<_>> =
        envelopes.chunks_mut(share).map(|part| part.iter_mut().filter_map(Option::take).collect()).collect();

    let entries = journal.view().applied_index;
    let granted = Arc::new(AtomicU64::new(0));
    let (cpu, began) = (cpu_time(), Instant::now());
    let tasks: Vec<_> = shares
        .into_iter()
        .map(|share| {
            let (journal, granted) = (Arc::clone(&journal), Arc::clone(&granted));
            tokio::spawn(async move { propose_all(&journal, share, &granted).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("ends");
    }
    let (elapsed, cpu) = (began.elapsed(), cpu_time() - cpu);
    assert_eq!(granted.load(Ordering::Relaxed), commands, "every enrollment is granted");
    println!(
        "{proposers:>9} {commands:>9} {:>12.0} {:>12.1} {:>10}",
        commands as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / commands as f64,
        journal.view().applied_index - entries,
    );
    journal.shutdown().await.expect("shuts down");
}

async fn propose_all(journal: &Journal, share: Vec<lifecycle::registry::Envelope>, granted: &AtomicU64) {
    for envelope in share {
        let answer = journal.propose(envelope).await.map(|committed| committed.answer);
        if matches!(answer, Ok(Ok(Outcome::Enrolled { .. }))) {
            granted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn argument(name: &str) -> Option<u64> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)?.parse().ok()
}

/// User and system time of this process, from the kernel's own count in clock ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
