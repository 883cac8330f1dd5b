//! openraft's types and settings, as this crate uses them.

use crate::batch::Batch;
use crate::open_error::OpenError;
use lifecycle::registry::Answer;
use openraft::{BasicNode, Config, SnapshotPolicy};
use std::sync::Arc;

openraft::declare_raft_types!(
    /// Entries are batches of commands; each is answered by one answer per command.
    pub TypeConfig:
        D = Batch,
        R = Vec<Answer>,
        NodeId = u64,
        Node = BasicNode,
        SnapshotData = crate::snapshot::Carrier,
);

pub type Raft = openraft::Raft<TypeConfig>;
pub type Entry = openraft::Entry<TypeConfig>;
pub type LogId = openraft::LogId<u64>;
pub type Vote = openraft::Vote<u64>;
pub type StoredMembership = openraft::StoredMembership<u64, BasicNode>;
pub type RaftState = openraft::RaftState<u64, BasicNode, tokio::time::Instant>;
pub type StorageError = openraft::StorageError<u64>;

/// The replica that founds a cluster.
pub const FIRST_REPLICA: u64 = 1;

/// Every threshold of openraft counts entries, and an entry may hold one command or 512: snapshots and
/// purges are ours, by bytes, and openraft's own are off. A follower stands for election when it has heard nothing for the longest
/// election time-out (the leader's lease) and its own one; whoever has lost stands again after a pause of chance (`election.rs`).
pub fn config() -> Result<Arc<Config>, OpenError> {
    let config = Config {
        cluster_name: "enlist".to_owned(),
        heartbeat_interval: 300,
        election_timeout_min: 800,
        election_timeout_max: 1300,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: 64,
        max_payload_entries: 16,
        ..Config::default()
    };
    config.validate().map(Arc::new).map_err(|error| OpenError::Start(error.to_string()))
}
