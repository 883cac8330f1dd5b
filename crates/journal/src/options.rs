//! What a journal needs to be told.

use crate::framing::Framing;
use crate::log_key::LogKey;
use lifecycle::names::Timestamp;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where the time comes from: whoever opens the journal brings the clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The log that may gather since the last snapshot before the next one is made.
const SNAPSHOT_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Clone)]
pub struct Options {
    /// The data directory: `log.db`, `audit.db` and `snapshots/` are in it.
    pub dir: PathBuf,
    pub clock: Clock,
    /// A pause after each fsync of the log, to measure as if the disk were slow.
    pub slow_fsync: Option<Duration>,
    /// Bytes of log after which a snapshot is made; 16 MiB when none are named.
    pub snapshot_bytes: Option<u64>,
    /// What authenticates everything stored. None only to open what an older version wrote, to be taken in.
    pub key: Option<LogKey>,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>, clock: Clock, key: LogKey) -> Self {
        Self { dir: dir.into(), clock, slow_fsync: None, snapshot_bytes: None, key: Some(key) }
    }

    /// Of a directory that an older version wrote, without authentication.
    pub fn unauthenticated(dir: impl Into<PathBuf>, clock: Clock) -> Self {
        Self { dir: dir.into(), clock, slow_fsync: None, snapshot_bytes: None, key: None }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.key.clone().map_or(Framing::Checksummed, Framing::Authenticated)
    }

    pub(crate) fn snapshot_limit(&self) -> u64 {
        self.snapshot_bytes.unwrap_or(SNAPSHOT_BYTES)
    }
}
