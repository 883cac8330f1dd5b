//! What the control plane writes into its own trail, the key that signs its checkpoints, and how far the trail was forwarded.

pub(super) mod checkpoint;
pub(super) mod forwarded;
pub(super) mod forwarding_gap;
pub(super) mod gap;
pub(super) mod refusals;
pub(super) mod rollback;

use super::State;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSigner {
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

/// Where the trail is forwarded to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditSink {
    Loki,
}

impl std::fmt::Display for AuditSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AuditSink::Loki => f.write_str("loki"),
        }
    }
}

impl State {
    /// The last line of the trail that needs not be forwarded to a sink any more; 0 before the first.
    pub fn forwarded(&self, sink: AuditSink) -> u64 {
        self.forwarded.get(&sink).copied().unwrap_or(0)
    }
}
