//! A damaged log is refused with words, and nothing in the directory changes.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on may panic")]

mod fixture;

use fixture::*;
use journal::{Journal, OpenError, Options};
use rusqlite::Connection;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file of a directory with the hash of its content.
fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("reads") {
        let path = entry.expect("reads").path();
        if path.is_dir() {
            files.extend(content(&path));
        } else {
            files.insert(path.clone(), Sha256::digest(std::fs::read(&path).expect("reads")).to_vec());
        }
    }
    files
}

async fn filled(dir: &Path) {
    let journal = founded(options(dir)).await;
    for n in 0..10 {
        tokens(&journal, n..n + 1).await;
    }
    journal.shutdown().await.expect("shuts down");
}

fn edit(dir: &Path, sql: &str) {
    let changed = Connection::open(dir.join("log.db")).and_then(|log| log.execute(sql, []));
    assert!(changed.expect("edits") > 0, "{sql}");
}

/// Opening is refused with these words, and leaves every file as it was.
async fn refused(dir: &Path, words: &[&str]) -> OpenError {
    let before = content(dir);
    let error = Journal::open(options(dir)).await.err().expect("refuses");
    assert_eq!(content(dir), before, "nothing changes");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_in_an_entry_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    let log = Connection::open(dir.path().join("log.db")).expect("opens");
    let mut row: Vec<u8> =
        log.query_row("SELECT row FROM entries WHERE idx = 5", [], |row| row.get(0)).expect("reads");
    row[60] ^= 4;
    log.execute("UPDATE entries SET row = ? WHERE idx = 5", [row]).expect("writes");
    drop(log);
    refused(dir.path(), &["log.db", "index 5", "authentication code", "backup"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_the_log_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    edit(dir.path(), "DELETE FROM entries WHERE idx = 6");
    refused(dir.path(), &["log.db", "index 6", "backup"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_ends_too_early_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    edit(dir.path(), "DELETE FROM entries WHERE idx > 6");
    refused(dir.path(), &["log.db", "ends at index 6", "committed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_a_newer_version_is_refused_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    edit(dir.path(), "UPDATE entries SET row = CAST(x'09' || substr(row, 2) AS BLOB) WHERE idx = 4");
    let error = refused(dir.path(), &["log.db", "index 4", "newer"]).await;
    assert!(matches!(error, OpenError::Newer { version: 9, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_without_authentication_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    let row = journal::conformance::seal(&"no entry at all").expect("encodes");
    let log = Connection::open(dir.path().join("log.db")).expect("opens");
    log.execute("UPDATE entries SET row = ? WHERE idx = 3", [row]).expect("writes");
    drop(log);
    refused(dir.path(), &["log.db", "index 3", "not authenticated"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_sqlite_cannot_read_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    let file = dir.path().join("log.db");
    let mut bytes = std::fs::read(&file).expect("reads");
    bytes[4096..].fill(0x5a);
    std::fs::write(&file, bytes).expect("writes");
    refused(dir.path(), &["log.db", "damaged", "backup"]).await;
    std::fs::write(&file, vec![0x5a; 8192]).expect("writes");
    refused(dir.path(), &["log.db", "damaged", "backup"]).await;
}

/// After a crash there is a write-ahead log beside the file, and it counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_ahead_log_is_read_without_being_touched() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = founded(options(dir.path())).await;
    tokens(&journal, 0..5).await;
    let left = tempfile::tempdir().expect("a directory");
    for name in ["log.db", "log.db-wal", "audit.db", "audit.db-wal", "checkpoint"] {
        std::fs::copy(dir.path().join(name), left.path().join(name)).expect("copies");
    }
    let (view, last) = (journal.view(), journal.view().applied_index);
    journal.shutdown().await.expect("shuts down");

    let before = content(left.path());
    let probe = journal::probe(left.path(), Some(&key())).expect("reads");
    assert_eq!(content(left.path()), before, "nothing changes");
    assert_eq!(probe.last_index, last);
    assert_eq!(probe.last_at, Some(view.state.at));

    let journal = Journal::open(options(left.path())).await.expect("opens");
    assert_eq!(journal.view().state, view.state);
    assert_eq!(journal.audit_gap(), None, "a crash is no gap");
    journal.shutdown().await.expect("shuts down");
    let log = Connection::open(left.path().join("log.db")).expect("opens");
    log.execute("UPDATE entries SET row = x'01' WHERE idx = 3", []).expect("writes");
    std::mem::forget(log);
    refused(left.path(), &["log.db", "index 3"]).await;
}

async fn with_snapshots(dir: &Path) -> journal::AuditHead {
    let small = Options { snapshot_bytes: Some(10_000), ..options(dir) };
    let journal = founded(small).await;
    for round in 0..3u64 {
        tokens(&journal, round * 50..(round + 1) * 50).await;
        let wanted = (round as usize + 1).min(2);
        eventually("a snapshot is made", || snapshots(dir).len() >= wanted).await;
    }
    journal.shutdown().await.expect("shuts down");
    // A snapshot that was being made may still be put on the shelf.
    let (mut last, mut same) = (Vec::new(), 0);
    eventually("the snapshots settle", || {
        let now = snapshots(dir);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same >= 60
    })
    .await;
    journal.view().audit
}

/// The snapshots, the oldest first.
fn snapshots(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("snapshots")).expect("reads");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("reads").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "snap"));
    paths.sort();
    paths
}

fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_snapshot_and_the_log_make_up_for_a_damaged_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let head = with_snapshots(dir.path()).await;
    let newest = snapshots(dir.path()).pop().expect("a snapshot");
    damage(&newest);
    // With the ordinary limit, so that no new snapshot is made while this one is looked for.
    let journal = Journal::open(options(dir.path())).await.expect("opens");
    assert_eq!(journal.view().audit, head);
    assert!(journal.audit().verify(&all_good).ok);
    assert!(newest.with_extension("damaged").exists(), "it is set aside");
    journal.shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_good_snapshot_a_purged_log_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    with_snapshots(dir.path()).await;
    for path in snapshots(dir.path()) {
        damage(&path);
    }
    refused(dir.path(), &[".snap", "authentication code", "backup"]).await;
    std::fs::remove_dir_all(dir.path().join("snapshots")).expect("removes");
    refused(dir.path(), &["snapshot", "backup"]).await;
}
