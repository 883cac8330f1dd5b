//! Replication: the log, snapshots, and the audit store.
//!
//! A command in its envelope is proposed, grouped with others into one Raft entry, made durable in the log
//! (`DIR/log.db`), applied to the registry in memory, and written as lines into the audit trail
//! (`DIR/audit.db`); only then is it answered. Readers take a consistent [`View`] for the price of a pointer.
//!
//! - [`Journal`]: the door to all of it.
//! - `batcher`: forms entries out of proposals that arrive together.
//! - `log`: openraft's log in SQLite, written by one thread.
//! - `machine`: applies committed entries on a thread of its own, and publishes views.
//! - `snapshot`: files from which a replica starts again without the older log.
//! - `peer`: what replicas say to each other; `barrier`: reads that must be fresh; `pulse`: what shows that a quorum is there;
//!   `round_trip`: asks who is there now.
//! - [`audit`]: the hash chain, the store, and its verification.
//! - [`probe`]: looks at a directory without touching it.
//! - `schema`: the tables of a store, and that it holds nothing else.
//! - `framing`, [`LogKey`]: what is stored is authenticated; [`take_in`]: a directory that is not yet.

pub mod audit;
mod barrier;
mod batch;
mod batcher;
mod compaction;
mod election;
mod framing;
mod journal;
mod leadership;
mod lock;
mod log;
mod log_key;
mod machine;
mod open_error;
mod options;
mod peer;
mod probe;
mod pulse;
mod raft;
mod readonly;
mod regular;
mod round_trip;
mod schema;
mod snapshot;
mod stored;
mod take_in;
mod thread;
mod view;

pub use audit::{Audit, AuditStoreError, LastCheckpoint, TrailFault, Verification, checkpoint_message};
pub use batcher::{Committed, ProposeError};
pub use journal::{Journal, ReplicationProgress, ShutdownError};
pub use leadership::Leadership;
pub use log_key::LogKey;
pub use open_error::OpenError;
pub use options::{Clock, Options, PeerOptions};
pub use peer::{
    BoxedFuture, PeerAnswers, PeerConnection, PeerConnector, PeerRefusal, PeerStanding, PeerStream,
    ReplicaReport,
};
pub use probe::{DirectoryContents, probe, probe_replica};
pub use regular::{open_regular, read_small};
pub use round_trip::RoundTrip;
pub use take_in::take_in;
pub use view::{AuditHead, View};

/// The stored forms and the stores behind openraft's traits, for openraft's suite and the golden samples.
pub mod conformance;
