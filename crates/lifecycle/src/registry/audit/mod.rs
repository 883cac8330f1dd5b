//! What the control plane writes into its own trail, and the key that signs its checkpoints.

pub(super) mod checkpoint;
pub(super) mod gap;
pub(super) mod refusals;
pub(super) mod rollback;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSigner {
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}
