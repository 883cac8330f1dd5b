//! What the journal costs per command: commit and apply, and the audit line.

use crate::floor::thread_cpu;
use journal::Journal;
use journal::audit::{Store, chain};
use lifecycle::registry::{Event, State, apply};
use std::sync::Arc;

#[path = "../../../journal/tests/fixture/mod.rs"]
mod fixture;

pub struct Stages {
    pub commit: f64,
    pub audit: f64,
}

const COMMANDS: u64 = 10_000;
const PROPOSERS: u64 = 512;

pub async fn measure() -> Result<Stages, Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let journal = Arc::new(fixture::founded(fixture::options(dir.path())).await);
    fixture::tokens(&journal, 0..COMMANDS).await;
    let envelopes: Vec<_> = (0..COMMANDS).map(fixture::enroll).collect();
    let shares: Vec<Vec<_>> =
        envelopes.chunks(COMMANDS.div_ceil(PROPOSERS) as usize).map(<[_]>::to_vec).collect();
    let before = process_cpu();
    let tasks: Vec<_> =
        shares.into_iter().map(|share| tokio::spawn(propose(journal.clone(), share))).collect();
    for task in tasks {
        task.await??;
    }
    let whole = (process_cpu() - before) / COMMANDS as f64;
    journal.shutdown().await?;
    let audit = audit(dir.path())?;
    Ok(Stages { commit: whole - audit, audit })
}

async fn propose(journal: Arc<Journal>, share: Vec<lifecycle::registry::Envelope>) -> Result<(), String> {
    for envelope in share {
        let committed = journal.propose(envelope).await.map_err(|e| e.to_string())?;
        committed.answer.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The same lines once more, into a store of their own, on this thread.
fn audit(dir: &std::path::Path) -> Result<f64, Box<dyn std::error::Error>> {
    let mut state = State::default();
    let at = fixture::now();
    apply(&mut state, &fixture::found(), at);
    let mut events: Vec<(lifecycle::registry::Envelope, Vec<Event>)> = Vec::new();
    for n in 0..2000 {
        apply(&mut state, &fixture::create_token(n), at);
        let envelope = fixture::enroll(n);
        let applied = apply(&mut state, &envelope, at);
        events.push((envelope, applied.events));
    }
    let mut store = Store::open(&dir.join("bench-audit.db"), 0, 0)?;
    let (mut line, mut head, mut seq) = (Vec::new(), chain::origin(), 0);
    let start = thread_cpu();
    for batch in events.chunks(256) {
        for (envelope, events) in batch {
            for event in events {
                seq += 1;
                head = chain::compose(&mut line, seq, &chain::moment(at), event, envelope, &head)?;
                store.put(seq, std::str::from_utf8(&line)?)?;
            }
        }
        store.commit(seq, seq)?;
    }
    Ok((thread_cpu() - start) / seq as f64)
}

/// CPU time of this process, in µs.
fn process_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
