//! What an enrollment costs the server, against what cryptography alone costs on the same machine in the same run.
//!
//! `just bench` or `cargo bench -p enlist --bench enrollment -- [--enrollments N] [--clients 1,64,512]`. Prints
//! Markdown. CPU time is what counts: machines are shared, and wall clock says more about the neighbours.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should stop where it stands")]

mod floor;
mod framing;
mod hsm;
mod launch;
mod load;
mod plane;
mod shim;
mod stages;
mod tokens;
mod usage;
mod wire;

use std::time::Duration;

struct Arguments {
    enrollments: usize,
    clients: Vec<usize>,
}

fn arguments() -> Arguments {
    let mut found = Arguments { enrollments: 4000, clients: vec![1, 64, 512] };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--enrollments" => found.enrollments = words.next().and_then(|n| n.parse().ok()).unwrap_or(4000),
            "--clients" => {
                let list = words.next().unwrap_or_default();
                found.clients = list.split(',').filter_map(|n| n.parse().ok()).collect();
            }
            // What `cargo bench` itself adds.
            _ => {}
        }
    }
    found
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let floor = floor::measure()?;
    println!("## Floor: CPU of the cryptography alone, one thread, best of five (µs)\n");
    println!(
        "| handshake (server side, X25519MLKEM768) | CSR read and checked | leaf signed | sum |\n|---|---|---|---|"
    );
    println!("| {:.0} | {:.0} | {:.0} | {:.0} |\n", floor.handshake, floor.csr, floor.sign, floor.sum());

    let stages = runtime.block_on(stages::measure())?;
    println!("## Journal: CPU per command, 512 proposers in one process (µs)\n");
    println!("| commit and apply | audit line composed and stored |\n|---|---|");
    println!("| {:.0} | {:.0} |\n", stages.commit, stages.audit);

    println!("## Enrollments through the native door, a new TLS connection each\n");
    println!(
        "| fsync | clients | enrollments | durable/s | server CPU µs each | × floor | rest µs | RSS MB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let shim = shim::slow_fsync();
    for slow in [None, Some(Duration::from_millis(2))] {
        if slow.is_some() && shim.is_none() {
            println!("| +2 ms | (skipped: no C compiler for the shim) | | | | | | |");
            continue;
        }
        for &clients in &arguments.clients {
            // One client at a time is slow by nature: fewer rounds say as much.
            let rounds = if clients == 1 { arguments.enrollments.min(1000) } else { arguments.enrollments };
            let preload = slow.and(shim.as_deref());
            let run = runtime.block_on(load::run(rounds, clients, preload))?;
            let each = run.cpu.as_secs_f64() * 1e6 / rounds as f64;
            let rest = each - floor.sum() - stages.commit - stages.audit;
            println!(
                "| {} | {clients} | {rounds} | {:.0} | {each:.0} | {:.2} | {rest:.0} | {} |",
                if slow.is_some() { "+2 ms" } else { "as it is" },
                rounds as f64 / run.wall.as_secs_f64(),
                each / floor.sum(),
                run.rss_kb / 1024,
            );
        }
    }
    println!(
        "\n`rest` is what is neither cryptography nor journal: accept, HTTP/2, gRPC, scheduling, memory."
    );
    let clients = arguments.clients.iter().copied().filter(|clients| *clients > 1).min().unwrap_or(64);
    runtime.block_on(hsm::compare(arguments.enrollments, clients))
}
