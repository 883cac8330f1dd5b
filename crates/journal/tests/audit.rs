//! What was done to the trail is named.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

mod fixture;

use fixture::*;
use journal::audit::Selection;
use journal::{Journal, OpenError, Options, checkpoint_message};
use lifecycle::names::{Fingerprint, Span, Timestamp};
use lifecycle::registry::{Actor, AuditGap, Checkpoint, Command};
use rusqlite::Connection;
use std::path::Path;

fn edit(dir: &Path, sql: &str) {
    let changed = Connection::open(dir.join("audit.db")).and_then(|store| store.execute(sql, []));
    assert!(changed.expect("edits") > 0, "{sql}");
}

fn fault(journal: &Journal) -> String {
    let verification = journal.audit().verify(&all_good);
    assert!(!verification.ok);
    verification.fault.expect("a fault").what
}

/// 30 lines: the founding and 29 tokens.
async fn thirty(dir: &Path) -> Journal {
    let journal = founded(options(dir)).await;
    tokens(&journal, 0..29).await;
    assert_eq!(journal.view().audit.seq, 30);
    journal
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_listed_in_order_and_carry_their_fields() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    let lines = journal.audit().list(0, 1000).expect("lists");
    assert_eq!(lines.len(), 30);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(line["event_type"], "domain.founded");
    assert_eq!(line["actor"], "local:root");
    assert_eq!(line["at"], line["timestamp"]);
    assert_eq!(line["prev_hash"], "0".repeat(64));
    let page = journal.audit().list(10, 5).expect("lists");
    assert_eq!(page, lines[10..15]);
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_selected_by_number_kind_and_time_from_either_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    let audit = journal.audit();
    let all = Selection { until: 30, ..Selection::default() };
    let seqs = |selection: &Selection, limit: usize| -> Vec<u64> {
        audit.select(selection, limit).expect("selects").into_iter().map(|(seq, _)| seq).collect()
    };
    assert_eq!(seqs(&all, 1000), (1..=30).collect::<Vec<u64>>());
    let newest = Selection { newest_first: true, after: 10, ..all.clone() };
    assert_eq!(seqs(&newest, 3), [30, 29, 28]);
    let founded = Selection { event_type: Some("domain.founded".to_owned()), ..all.clone() };
    assert_eq!(seqs(&founded, 1000), [1]);
    // What a kind is called elsewhere in a line, or half a name, does not count.
    for name in ["founded", "local:root", "domain.founde", "%"] {
        let none = Selection { event_type: Some(name.to_owned()), ..all.clone() };
        assert!(seqs(&none, 1000).is_empty(), "{name}");
    }
    let nobody = Selection { node: Some("nobody\"".to_owned()), ..all.clone() };
    assert!(seqs(&nobody, 1000).is_empty());

    let time = |seq: usize| {
        let line: serde_json::Value =
            serde_json::from_str(&audit.list(0, 30).expect("lists")[seq - 1]).expect("JSON");
        Timestamp::parse(line["at"].as_str().expect("a time")).expect("a time")
    };
    for seq in 1..=30 {
        let first = (1..=30).find(|other| time(*other) >= time(seq)).expect("at least itself") as u64;
        assert_eq!(audit.first_since(time(seq)).expect("finds"), first);
    }
    assert_eq!(audit.first_since(Timestamp::from_secs(0)).expect("finds"), 1);
    assert_eq!(audit.first_since(time(30).plus(Span::from_secs(1))).expect("finds"), 31);
    // A gap is stepped over.
    edit(dir.path(), "DELETE FROM lines WHERE seq BETWEEN 10 AND 20");
    assert_eq!(audit.first_since(time(1)).expect("finds"), 1);
    assert_eq!(seqs(&Selection { after: 8, ..all }, 2), [9, 21]);
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_line_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    edit(dir.path(), "UPDATE lines SET line = replace(line, 'local:root', 'local:toor') WHERE seq = 17");
    assert_eq!(fault(&journal), "line 17 was changed");
    journal.shutdown().await.expect("shuts down");
    let refused = Journal::open(options(dir.path())).await.err();
    assert!(matches!(refused, Some(OpenError::AuditDiffers { seq: 17, .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_byte_of_the_file_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    let file = dir.path().join("audit.db");
    let store = Connection::open(&file).expect("opens");
    store.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("checkpoints");
    drop(store);
    let mut bytes = std::fs::read(&file).expect("reads");
    let place = bytes.windows(8).position(|part| part == b"\"seq\":9,").expect("line 9") + 20;
    bytes[place] ^= 1;
    std::fs::write(&file, bytes).expect("writes");
    assert_eq!(fault(&journal), "line 9 was changed");
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_lines_are_named_while_running() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    edit(dir.path(), "DELETE FROM lines WHERE seq BETWEEN 18 AND 20");
    assert_eq!(fault(&journal), "lines 18 to 20 are missing");
    edit(dir.path(), "DELETE FROM lines WHERE seq >= 5");
    assert_eq!(fault(&journal), "lines 5 to 30 are missing");
    edit(dir.path(), "DELETE FROM lines WHERE seq = 1");
    assert_eq!(fault(&journal), "line 1 is missing");
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_tail_is_refilled_at_restart_and_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    let lines = journal.audit().list(0, 100).expect("lists");
    edit(dir.path(), "DELETE FROM lines WHERE seq > 25");
    assert_eq!(fault(&journal), "lines 26 to 30 are missing");
    journal.shutdown().await.expect("shuts down");

    let journal = Journal::open(options(dir.path())).await.expect("opens");
    assert_eq!(journal.audit_gap(), Some(AuditGap { from: 26, to: 30, refilled: true }));
    assert_eq!(journal.audit().list(0, 100).expect("lists"), lines);
    assert!(journal.audit().verify(&all_good).ok);
    let gap = journal.audit_gap().expect("a gap");
    let recorded = journal.propose(envelope(Actor::Reconciler, Command::RecordAuditGap(gap))).await;
    let recorded = recorded.expect("commits").answer;
    assert!(recorded.is_ok(), "{recorded:?}");
    journal.shutdown().await.expect("shuts down");

    let journal = Journal::open(options(dir.path())).await.expect("opens");
    assert_eq!(journal.audit_gap(), None, "told once");
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_store_is_named_refilled_and_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    std::fs::remove_file(dir.path().join("audit.db")).expect("removes");
    assert_eq!(fault(&journal), "the store is missing");
    journal.shutdown().await.expect("shuts down");

    let journal = Journal::open(options(dir.path())).await.expect("opens");
    assert_eq!(journal.audit_gap(), Some(AuditGap { from: 1, to: 30, refilled: true }));
    assert!(journal.audit().verify(&all_good).ok);
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_older_than_the_log_stay_missing_and_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let small = || Options { snapshot_bytes: Some(10_000), ..options(dir.path()) };
    let journal = founded(small()).await;
    let snapshots = || std::fs::read_dir(dir.path().join("snapshots")).map_or(0, Iterator::count);
    tokens(&journal, 0..29).await;
    eventually("a snapshot is made", || snapshots() > 0).await;
    // With one snapshot alone the log still reaches back to its beginning, and could write every line again.
    tokens(&journal, 29..60).await;
    eventually("another one is made", || snapshots() > 1).await;
    tokens(&journal, 60..65).await;
    let before = journal.view();
    journal.shutdown().await.expect("shuts down");
    std::fs::remove_file(dir.path().join("audit.db")).expect("removes");

    let journal = Journal::open(small()).await.expect("opens");
    let gap = journal.audit_gap().expect("a gap");
    assert!(!gap.refilled && gap.from == 1 && gap.to > 0, "{gap:?}");
    assert_eq!(journal.view().audit, before.audit, "it goes on with the head that the snapshot and log give");
    assert_eq!(fault(&journal), format!("lines 1 to {} are missing", gap.to));
    tokens(&journal, 65..66).await;
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_the_log_does_not_produce_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    journal.shutdown().await.expect("shuts down");
    edit(dir.path(), "INSERT INTO lines VALUES (31, 'invented')");
    let refused = Journal::open(options(dir.path())).await.err();
    assert!(matches!(refused, Some(OpenError::AuditDiffers { seq: 31, .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_held_against_the_chain_and_their_signature() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = thirty(dir.path()).await;
    let checkpoint = |seq, head, signature| {
        envelope(Actor::Reconciler, Command::RecordCheckpoint(Checkpoint { seq, head, signature }))
    };
    let head = journal.view().audit;
    let cluster = journal.view().state.domain.as_ref().expect("founded").cluster;
    let message = checkpoint_message(&cluster, head.seq, &head.head);
    let recorded = journal.propose(checkpoint(head.seq, head.head, message)).await.expect("commits").answer;
    assert!(recorded.is_ok(), "{recorded:?}");
    let signed =
        |seq: u64, head: &Fingerprint, signature: &[u8]| signature == checkpoint_message(&cluster, seq, head);
    let verification = journal.audit().verify(&signed);
    assert!(verification.ok, "{verification:?}");
    assert_eq!(verification.checkpoint, Some(30));
    let fault = journal.audit().verify(&|_, _, _| false).fault.expect("a fault");
    assert_eq!(fault.what, "the signature of the checkpoint in line 31 is not valid");

    let lie =
        journal.propose(checkpoint(30, Fingerprint::new([9; 32]), Vec::new())).await.expect("commits").answer;
    assert!(lie.is_ok(), "{lie:?}");
    let fault = journal.audit().verify(&all_good).fault.expect("a fault");
    assert_eq!((fault.seq, fault.what.as_str()), (32, "the checkpoint in line 32 does not match line 30"));
    journal.shutdown().await.expect("shuts down");
}
