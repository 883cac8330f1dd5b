//! Killed at any moment, nothing acknowledged is lost and the chain holds.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

mod fixture;

use fixture::*;
use journal::{Journal, Options};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const DIR: &str = "JOURNAL_KILL_DIR";
const ROUNDS: u64 = 5;
/// The tokens of a round are numbered from here.
const ROUND: u64 = 1_000_000;

fn small(dir: &Path) -> Options {
    Options { snapshot_bytes: Some(60_000), ..options(dir) }
}

/// The child: opens, proposes from several tasks for ever, and prints each acknowledged number.
async fn child(dir: PathBuf) {
    let round: u64 = std::env::var("JOURNAL_KILL_ROUND").expect("a round").parse().expect("a number");
    let journal = if dir.join("log.db").exists() {
        Journal::open(small(&dir)).await.expect("opens")
    } else {
        founded(small(&dir)).await
    };
    assert_eq!(journal.audit_gap(), None, "being killed leaves no gap");
    let proposer = |lane: u64| {
        let journal = &journal;
        async move {
            for n in 0.. {
                let number = round * ROUND + n * 8 + lane;
                journal.propose(create_token(number)).await.expect("commits").answer.expect("grants");
                writeln!(std::io::stdout(), "ack {number}").expect("prints");
            }
        }
    };
    futures::future::join_all((0..8).map(proposer)).await;
}

/// Runs a child, kills it after some acknowledgements, and gives all it printed.
fn run_and_kill(dir: &Path, round: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "everything_acknowledged_survives_being_killed", "--nocapture"])
        .env(DIR, dir)
        .env("JOURNAL_KILL_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let deadline = Instant::now() + PATIENCE;
    let mut output = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut acknowledged = Vec::new();
    let mut take =
        |line: String| acknowledged.extend(line.strip_prefix("ack ").and_then(|n| n.parse::<u64>().ok()));
    let mut taken = 0;
    while taken < 100 + 150 * round && Instant::now() < deadline {
        match output.next() {
            Some(Ok(line)) => take(line),
            _ => break,
        }
        taken += 1;
    }
    child.kill().expect("is killed");
    output.map_while(Result::ok).for_each(take);
    child.wait().expect("ends");
    acknowledged
}

#[test]
fn everything_acknowledged_survives_being_killed() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Some(dir) = std::env::var_os(DIR) {
        return runtime.block_on(child(dir.into()));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let more = run_and_kill(dir.path(), round);
        assert!(more.len() > 50, "round {round} acknowledged {}", more.len());
        acknowledged.extend(more);
    }
    runtime.block_on(async {
        let journal = Journal::open(small(dir.path())).await.expect("opens");
        let state = &journal.view().state;
        for number in &acknowledged {
            let hash = lifecycle::names::SecretHash::new(digest(10, *number));
            assert!(state.token_with_hash(&hash).is_some(), "token {number} was acknowledged");
        }
        assert_eq!(journal.audit_gap(), None);
        let verification = journal.audit().verify(&all_good);
        assert!(verification.ok, "{verification:?}");
        assert_eq!(verification.last_seq, journal.view().audit.seq);
        journal.shutdown().await.expect("shuts down");
    });
}
