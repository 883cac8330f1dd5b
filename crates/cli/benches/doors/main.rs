//! What an enrollment costs the server through each door, and whether refusals of the probectl door tell by their
//! time what their words do not.
//!
//! `just bench` or `cargo bench -p enlist --bench doors -- [--enrollments N] [--clients N] [--refusals N]`. Prints
//! Markdown. Every door starts with a control plane of its own. The native door is gRPC over HTTP/2, the others
//! JSON over HTTP/1.1, as their documents' clients speak; each enrollment is a new TLS connection.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run should stop where it stands")]

#[path = "../enrollment/floor.rs"]
mod floor;
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

mod operator;
mod refusals;
mod rest;

use bytes::Bytes;
use pki::agent_key::HostKey;
use plane::Plane;
use rest::Way;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wire::Error;

struct Arguments {
    enrollments: usize,
    clients: usize,
    refusals: usize,
}

fn arguments() -> Arguments {
    let mut found = Arguments { enrollments: 4000, clients: 64, refusals: 2000 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = |into: &mut usize| {
            *into = words.next().and_then(|n| n.parse().ok()).unwrap_or(*into);
        };
        match word.as_str() {
            "--enrollments" => number(&mut found.enrollments),
            "--clients" => number(&mut found.clients),
            "--refusals" => number(&mut found.refusals),
            // What `cargo bench` itself adds.
            _ => {}
        }
    }
    found
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let floor = floor::measure()?.sum();
    println!("## Enrollments through each door, {} clients, a new TLS connection each\n", arguments.clients);
    println!(
        "| door | enrollments | server CPU µs each | × floor | × native | RSS MB |\n|---|---|---|---|---|---|"
    );
    let mut native = None;
    for way in Way::ALL {
        let (each, rss) =
            runtime.block_on(enrollments(way, &arguments)).map_err(|error| error.to_string())?;
        let base = *native.get_or_insert(each);
        let name = way.name();
        println!(
            "| {name} | {} | {each:.0} | {:.2} | {:.2} | {rss} |",
            arguments.enrollments,
            each / floor,
            each / base
        );
    }
    println!("\n## Refusals of the probectl door, one connection, causes in turn (µs until the answer)\n");
    runtime.block_on(refusals::measure(arguments.refusals)).map_err(|error| error.to_string())?;
    Ok(())
}

/// CPU time of the server per enrollment in µs, and its memory at the end in MB.
async fn enrollments(way: Way, arguments: &Arguments) -> Result<(f64, u64), Error> {
    let plane = Plane::start(None).map_err(|error| error.to_string())?;
    let tokens = tokens::mint(&plane, arguments.enrollments).await?;
    let csr = HostKey::generate()?.csr_pem()?;
    let bodies = tokens.into_iter().enumerate().map(|(n, token)| way.request(n, token, &csr));
    let requests: Arc<Vec<Bytes>> = Arc::new(bodies.collect());
    let bundle = std::fs::read(plane.data().join("ca/bundle.pem"))?;
    let tls = Arc::new(way.tls(&bundle)?);
    let address = plane.url.trim_start_matches("https://").to_owned();
    let next = Arc::new(AtomicUsize::new(0));
    let before = plane.cpu();
    let workers: Vec<_> = (0..arguments.clients)
        .map(|_| {
            let (requests, tls, address, next) =
                (requests.clone(), tls.clone(), address.clone(), next.clone());
            tokio::spawn(async move {
                while let Some(body) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    way.enroll(&address, tls.clone(), body.clone()).await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    let spent = plane.cpu().saturating_sub(before);
    Ok((spent.as_secs_f64() * 1e6 / arguments.enrollments as f64, plane.rss_kb() / 1024))
}
