//! Many hosts that enroll, each with a connection of its own.

use crate::plane::Plane;
use crate::tokens;
use crate::wire::{self, Error};
use bytes::Bytes;
use pki::agent_key::HostKey;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub struct Run {
    pub wall: Duration,
    pub cpu: Duration,
    pub rss_kb: u64,
}

pub async fn run(
    rounds: usize,
    clients: usize,
    preload: Option<&Path>,
) -> Result<Run, Box<dyn std::error::Error>> {
    run_on(Plane::start(preload)?, rounds, clients).await
}

/// Against a control plane that runs.
pub async fn run_on(plane: Plane, rounds: usize, clients: usize) -> Result<Run, Box<dyn std::error::Error>> {
    let tokens = tokens::mint(&plane, rounds).await.map_err(|error| error.to_string())?;
    let csr = HostKey::generate()?.csr_pem()?;
    let requests: Arc<Vec<Bytes>> =
        Arc::new(tokens.into_iter().map(|token| wire::enrollment(token, &csr)).collect());
    let bundle = std::fs::read(plane.data().join("ca/bundle.pem"))?;
    let tls = Arc::new(wire::stranger(&bundle).map_err(|error| error.to_string())?);
    let address = plane.url.trim_start_matches("https://").to_owned();
    let next = Arc::new(AtomicUsize::new(0));

    let (cpu, started) = (plane.cpu(), Instant::now());
    let workers: Vec<_> = (0..clients)
        .map(|_| {
            let (requests, tls, address, next) =
                (requests.clone(), tls.clone(), address.clone(), next.clone());
            tokio::spawn(async move {
                while let Some(body) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wire::enroll(&address, tls.clone(), body.clone()).await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await?.map_err(|error| error.to_string())?;
    }
    Ok(Run { wall: started.elapsed(), cpu: plane.cpu().saturating_sub(cpu), rss_kb: plane.rss_kb() })
}
