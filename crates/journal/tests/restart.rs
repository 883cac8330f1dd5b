//! What was acknowledged is there after a restart.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

mod fixture;

use fixture::*;
use journal::{Journal, OpenError, ProposeError};
use lifecycle::registry::{Outcome, Rejection, check_invariants};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = founded(options(dir.path())).await;
    tokens(&journal, 0..20).await;
    for n in 0..20 {
        let answer = journal.propose(enroll(n)).await.expect("commits").answer;
        assert!(matches!(answer, Ok(Outcome::Enrolled { replayed: false, .. })), "{answer:?}");
    }
    let before = journal.view();
    journal.shutdown().await.expect("shuts down");
    journal.shutdown().await.expect("again is no harm");
    drop(journal);

    let journal = Journal::open(options(dir.path())).await.expect("opens");
    let after = journal.view();
    assert_eq!(after.state, before.state);
    assert_eq!(after.audit, before.audit);
    assert_eq!(after.state.nodes.len(), 20);
    assert_eq!(journal.audit_gap(), None);
    assert_eq!(check_invariants(&before.state, &after.state), Ok(()));
    let verification = journal.audit().verify(&all_good);
    assert!(verification.ok, "{verification:?}");
    assert_eq!((verification.first_seq, verification.last_seq), (1, after.audit.seq));
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_and_a_purge_lose_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let small = || journal::Options { snapshot_bytes: Some(20_000), ..options(dir.path()) };
    let journal = founded(small()).await;
    let snapshots = || -> Vec<_> {
        let entries = std::fs::read_dir(dir.path().join("snapshots")).expect("reads");
        entries.map(|entry| entry.expect("reads").file_name()).collect()
    };
    for round in 0..4 {
        tokens(&journal, round * 100..(round + 1) * 100).await;
        let wanted = (round as usize + 1).min(2);
        eventually("a snapshot is made", || snapshots().len() >= wanted).await;
    }
    let log = rusqlite::Connection::open(dir.path().join("log.db")).expect("opens");
    let first = || log.query_row("SELECT min(idx) FROM entries", [], |row| row.get::<_, u64>(0));
    eventually("the log is purged", || first().is_ok_and(|first| first > 0)).await;
    drop(log);
    let before = journal.view();
    journal.shutdown().await.expect("shuts down");
    assert_eq!(snapshots().len(), 2, "the newest two are kept");

    let journal = Journal::open(small()).await.expect("opens");
    assert_eq!(journal.view().state, before.state);
    assert_eq!(journal.view().audit, before.audit);
    assert_eq!(journal.audit_gap(), None);
    tokens(&journal, 400..410).await;
    assert!(journal.audit().verify(&all_good).ok);
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_proposals_group_and_each_gets_its_own_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = Arc::new(founded(options(dir.path())).await);
    tokens(&journal, 0..300).await;
    let before = journal.view().applied_index;
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let journal = Arc::clone(&journal);
            tokio::spawn(
                async move { (n, journal.propose(enroll(n)).await.map(|committed| committed.answer)) },
            )
        })
        .collect();
    for task in tasks {
        let (n, answer) = task.await.expect("ends");
        match answer {
            Ok(Ok(Outcome::Enrolled { node: made, .. })) => assert_eq!(made, node(n)),
            other => panic!("node {n}: {other:?}"),
        }
    }
    let entries = journal.view().applied_index - before;
    assert!(entries < 150, "300 commands took {entries} entries");
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_envelope_twice_answers_the_same_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = founded(options(dir.path())).await;
    tokens(&journal, 0..1).await;
    let envelope = enroll(0);
    let first = journal.propose(envelope.clone()).await.expect("commits");
    let between = first.view;
    let second = journal.propose(envelope).await.expect("commits");
    assert_eq!(first.answer, second.answer);
    assert_eq!(second.view.state.revision, between.state.revision);
    assert_eq!(second.view.audit, between.audit);
    let again = journal.propose(found()).await.expect("commits");
    assert_eq!(again.answer, Err(Rejection::AlreadyInitialized));
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_sees_what_was_acknowledged_and_watchers_wake() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = founded(options(dir.path())).await;
    let mut changes = journal.changes();
    let before = *changes.borrow_and_update();
    tokens(&journal, 0..1).await;
    let woken = tokio::time::timeout(PATIENCE, changes.wait_for(|index| *index > before)).await;
    woken.expect("in time").expect("wakes");
    let view = journal.barrier().await.expect("reads");
    assert_eq!(view.state.tokens.len(), 1);
    let leadership = journal.leadership().await.expect("the only replica leads");
    assert!(journal.still_leads(&leadership));
    journal.shutdown().await.expect("shuts down");
    assert_eq!(journal.propose(create_token(1)).await.err(), Some(ProposeError::ShuttingDown));
    assert!(journal.barrier().await.is_err());
    assert!(journal.leadership().await.is_none());
}

/// A clock that went back must not take time with it.
#[tokio::test(flavor = "multi_thread")]
async fn time_never_runs_backwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = founded(options(dir.path())).await;
    let at = journal.view().state.at;
    journal.shutdown().await.expect("shuts down");
    let probe = journal::probe(dir.path(), Some(&key())).expect("reads");
    assert_eq!(probe.last_at, Some(at));

    let hour = lifecycle::names::Span::from_hours(1);
    let slow = journal::Options { clock: Arc::new(move || now().minus(hour)), ..options(dir.path()) };
    let journal = Journal::open(slow).await.expect("opens");
    tokens(&journal, 0..1).await;
    assert!(journal.view().state.at >= at);
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_belongs_to_one_process_and_one_log() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(matches!(Journal::open(options(dir.path())).await.err(), Some(OpenError::Missing { .. })));
    let journal = founded(options(dir.path())).await;
    assert!(matches!(Journal::open(options(dir.path())).await.err(), Some(OpenError::InUse { .. })));
    assert!(matches!(journal::probe(dir.path(), Some(&key())).err(), Some(OpenError::InUse { .. })));
    journal.shutdown().await.expect("shuts down");
    assert!(matches!(Journal::create(options(dir.path())).await.err(), Some(OpenError::Exists { .. })));
}

#[tokio::test]
async fn it_works_on_a_runtime_with_one_thread() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = founded(options(dir.path())).await;
    tokens(&journal, 0..3).await;
    journal.shutdown().await.expect("shuts down");
}
