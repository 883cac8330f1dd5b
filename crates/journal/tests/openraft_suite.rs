//! openraft's own suite for stores.
#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use journal::conformance::{LogStore, Machine, TypeConfig};
use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

mod fixture;

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<u64>> {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, machine) =
            journal::conformance::stores(&fixture::options(dir.path())).expect("stores open");
        Ok((dir, log, machine))
    }
}

#[test]
fn the_stores_pass_openrafts_suite() {
    Suite::test_all(Builder).expect("conforms");
}
