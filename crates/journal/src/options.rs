//! What a journal needs to be told.

use crate::framing::Framing;
use crate::log_key::LogKey;
use crate::peer::PeerConnector;
use crate::raft::FIRST_REPLICA;
use lifecycle::names::{ReplicaId, Timestamp};
use std::collections::BTreeMap;
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
    /// What the machine's clock says, believed or not: replicas compare theirs.
    pub wall: Option<Clock>,
    /// What the time is by the clock that does not jump alone: what replicas go by that look whether theirs is right.
    pub steady: Option<Clock>,
    /// A pause after each fsync of the log, to measure as if the disk were slow.
    pub slow_fsync: Option<Duration>,
    /// Bytes of log after which a snapshot is made; 16 MiB when none are named.
    pub snapshot_bytes: Option<u64>,
    /// Bytes of log that are kept at least, for replicas that lag; more is kept if the older snapshot does not hold it.
    pub keep_bytes: u64,
    /// What authenticates everything stored. None only to open what an older version wrote, to be taken in.
    pub key: Option<LogKey>,
    /// Which replica of its cluster this is.
    pub replica: ReplicaId,
    /// How it reaches the others; none for one that is to stay alone.
    pub peers: Option<PeerOptions>,
}

/// What a replica needs to know to talk to others.
#[derive(Clone)]
pub struct PeerOptions {
    /// The id of the cluster: replicas of another one are not talked to.
    pub cluster: String,
    /// Drawn at each start: two processes of one directory differ in it.
    pub incarnation: u64,
    pub connector: Arc<dyn PeerConnector>,
    /// Where others are reached while the registry does not say.
    pub seeds: BTreeMap<ReplicaId, String>,
    /// Of this program.
    pub version: String,
}

impl Options {
    pub fn new(dir: impl Into<PathBuf>, clock: Clock, key: LogKey) -> Self {
        Self { key: Some(key), ..Self::unauthenticated(dir, clock) }
    }

    /// Of a directory that an older version wrote, without authentication.
    pub fn unauthenticated(dir: impl Into<PathBuf>, clock: Clock) -> Self {
        Self {
            dir: dir.into(),
            clock,
            wall: None,
            steady: None,
            slow_fsync: None,
            snapshot_bytes: None,
            keep_bytes: 0,
            key: None,
            replica: ReplicaId(FIRST_REPLICA),
            peers: None,
        }
    }

    pub(crate) fn framing(&self) -> Framing {
        self.key.clone().map_or(Framing::Checksummed, Framing::Authenticated)
    }

    pub(crate) fn snapshot_limit(&self) -> u64 {
        self.snapshot_bytes.unwrap_or(SNAPSHOT_BYTES)
    }
}
