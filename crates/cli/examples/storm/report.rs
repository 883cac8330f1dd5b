//! What is printed, and how it is measured.

use crate::fleet::Tally;
use crate::usage;
use std::time::{Duration, Instant};

/// What a stretch of the run cost both sides.
pub struct Cost {
    pub wall: Duration,
    pub server: Duration,
    pub load: Duration,
}

/// A measurement that has begun.
pub struct Meter {
    process: u32,
    began: Instant,
    server: Duration,
    load: Duration,
}

impl Meter {
    pub fn begin(process: u32) -> Self {
        Self {
            process,
            began: Instant::now(),
            server: usage::cpu(process),
            load: usage::cpu(std::process::id()),
        }
    }

    pub fn end(self) -> Cost {
        Cost {
            wall: self.began.elapsed(),
            server: usage::cpu(self.process).saturating_sub(self.server),
            load: usage::cpu(std::process::id()).saturating_sub(self.load),
        }
    }
}

/// The floor, with what one of its connections holds in memory.
pub struct Floor {
    pub cost: Cost,
    pub kb_each: f64,
}

fn each(spent: Duration, count: usize) -> f64 {
    spent.as_secs_f64() * 1e6 / count as f64
}

pub fn boot(floor: &Floor, boot: &Cost, count: usize) {
    println!("| | wall | server CPU each | load program CPU each | CPU of both, × floor | wall, × floor |");
    println!("|---|---|---|---|---|---|");
    let both = |cost: &Cost| (cost.server + cost.load).as_secs_f64();
    for (name, cost) in
        [("floor: cryptography and TLS alone", &floor.cost), ("all streaming with their configuration", boot)]
    {
        println!(
            "| {name} | {:.2} s | {:.0} µs | {:.0} µs | {:.2} | {:.2} |",
            cost.wall.as_secs_f64(),
            each(cost.server, count),
            each(cost.load, count),
            both(cost) / both(&floor.cost).max(f64::EPSILON),
            cost.wall.as_secs_f64() / floor.cost.wall.as_secs_f64().max(f64::EPSILON),
        );
    }
    println!();
}

pub fn memory(floor: &Floor, before: u64, after: u64, peak: u64, count: usize) {
    let per_stream = after.saturating_sub(before) as f64 / count as f64;
    println!("| server memory before | with all streams | per stream | per connection of the floor | peak |");
    println!("|---|---|---|---|---|");
    println!(
        "| {} MB | {} MB | {per_stream:.1} kB | {:.1} kB | {} MB |\n",
        before / 1024,
        after / 1024,
        floor.kb_each,
        peak / 1024,
    );
}

pub fn reconnect(serving: Duration, back: &Cost, (before, after): (u64, u64), count: usize) {
    println!(
        "| killed; serving again after | all streaming after | server CPU each | load program CPU each | memory per stream |"
    );
    println!("|---|---|---|---|---|");
    println!(
        "| {:.2} s | {:.2} s | {:.0} µs | {:.0} µs | {:.1} kB |\n",
        serving.as_secs_f64(),
        back.wall.as_secs_f64(),
        each(back.server, count),
        each(back.load, count),
        after.saturating_sub(before) as f64 / count as f64,
    );
}

/// How the attempts to open a stream were spread, and what went wrong.
pub fn attempts(tally: &Tally) {
    let attempts = tally.attempts();
    let total: usize = attempts.values().sum();
    let spread: Vec<String> = attempts.iter().map(|(second, count)| format!("{second}: {count}")).collect();
    println!("{total} attempts to open a stream, by the second: {}.", spread.join(", "));
    for (error, count) in tally.failures() {
        println!("- {count} times: {error}");
    }
    println!();
}
