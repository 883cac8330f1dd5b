//! What was changed without the log key is refused, and what an older version wrote is taken in once.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

mod fixture;

use fixture::*;
use journal::{Journal, LogKey, OpenError, Options};
use rusqlite::Connection;
use std::path::Path;

async fn filled(dir: &Path) {
    let journal = founded(options(dir)).await;
    for n in 0..10 {
        tokens(&journal, n..n + 1).await;
    }
    journal.shutdown().await.expect("shuts down");
}

fn edit(dir: &Path, sql: &str) {
    let log = Connection::open(dir.join("log.db")).expect("opens");
    log.execute_batch(sql).expect(sql);
    assert!(log.changes() > 0, "{sql}");
}

async fn refused(options: Options, words: &[&str]) {
    let error: OpenError = Journal::open(options).await.err().expect("refuses");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_cannot_be_cut_moved_or_taken_from_elsewhere() {
    let other = tempfile::tempdir().expect("a directory");
    let theirs = founded(Options { key: Some(LogKey::new(&[8; 32])), ..options(other.path()) }).await;
    tokens(&theirs, 0..9).await;
    theirs.shutdown().await.expect("shuts down");
    let attach = format!("ATTACH '{}' AS other;", other.path().join("log.db").display());
    let take = format!(
        "{attach} UPDATE entries SET row = (SELECT row FROM other.entries o WHERE o.idx = 2) WHERE idx = 2"
    );
    for (sql, words) in [
        // The tail, with everything that names its index but the head.
        ("DELETE FROM meta WHERE key = 'committed'; DELETE FROM entries WHERE idx > 6", &["ends at index 6"][..]),
        ("DELETE FROM meta WHERE key != 'vote'; DELETE FROM entries WHERE idx > 6", &["is missing"]),
        ("DELETE FROM entries; DELETE FROM meta", &["initialise"]),
        ("UPDATE entries SET row = (SELECT row FROM entries e WHERE e.idx = 5) WHERE idx = 6", &["index 6", "code"]),
        // One from the middle, and those behind it moved up.
        ("DELETE FROM entries WHERE idx = 6; UPDATE entries SET idx = -idx WHERE idx > 6;
          UPDATE entries SET idx = -idx - 1 WHERE idx < 0", &["index 6", "code"]),
        ("UPDATE meta SET row = (SELECT row FROM meta m WHERE m.key = 'committed') WHERE key = 'last_purged'
          OR key = 'audit_seq'", &["audit_seq", "code"]),
        (&take, &["index 2", "code"]),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        filled(dir.path()).await;
        edit(dir.path(), sql);
        refused(options(dir.path()), words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_another_key_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    filled(dir.path()).await;
    refused(Options { key: Some(LogKey::new(&[8; 32])), ..options(dir.path()) }, &["log.db", "code"]).await;
    refused(Options::unauthenticated(dir.path(), clock()), &["log.db", "authenticated"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_falls_short_of_the_last_checkpoint_is_refused() {
    let (dir, old) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    filled(dir.path()).await;
    for name in ["log.db", "audit.db", "checkpoint"] {
        std::fs::copy(dir.path().join(name), old.path().join(name)).expect("copies");
    }
    let journal = Journal::open(options(dir.path())).await.expect("opens");
    tokens(&journal, 20..22).await;
    journal.keep_checkpoint(&journal.view(), false).await.expect("keeps");
    journal.shutdown().await.expect("shuts down");
    for name in ["log.db", "audit.db"] {
        std::fs::copy(old.path().join(name), dir.path().join(name)).expect("copies");
    }
    refused(options(dir.path()), &["log.db", "checkpoint", "older copy"]).await;
    std::fs::remove_file(dir.path().join("checkpoint")).expect("removes");
    refused(options(dir.path()), &["checkpoint", "missing"]).await;
    // The whole older copy is for an anchor elsewhere to notice.
    std::fs::copy(old.path().join("checkpoint"), dir.path().join("checkpoint")).expect("copies");
    Journal::open(options(dir.path())).await.expect("opens").shutdown().await.expect("shuts down");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_version_wrote_is_taken_in_with_everything_it_says() {
    let (dir, next) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let older = || Options::unauthenticated(dir.path(), clock());
    let journal = founded(older()).await;
    tokens(&journal, 0..5).await;
    journal.shutdown().await.expect("shuts down");
    let journal = Journal::open(older()).await.expect("opens");
    let before = journal.view();
    let name = |state: &mut lifecycle::registry::State| state.revision += 1000;
    journal::take_in(journal, next.path(), key(), name).await.expect("is taken in");
    std::fs::copy(dir.path().join("audit.db"), next.path().join("audit.db")).expect("copies");
    for _ in 0..2 {
        let journal = Journal::open(options(next.path())).await.expect("opens");
        assert_eq!(journal.view().audit, before.audit);
        assert_eq!(journal.view().state.revision, before.state.revision + 1000);
        assert_eq!(journal.view().state.tokens, before.state.tokens);
        assert!(journal.audit().verify(&all_good).ok);
        journal.shutdown().await.expect("shuts down");
    }
    let journal = Journal::open(options(next.path())).await.expect("opens");
    tokens(&journal, 5..9).await;
    journal.shutdown().await.expect("shuts down");
    Journal::open(options(next.path())).await.expect("opens").shutdown().await.expect("shuts down");
}
