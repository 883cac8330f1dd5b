//! A repair bundle: what an operator carries to a host that has nothing left to recover with.

use crate::rest::secret::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = IssueRepairBundle)]
pub struct IssueRepairBundleRequest {
    /// Lifetime, 10s to the policy's `recovery.ttl`; a day when absent.
    #[schema(example = "24h")]
    pub expires: Option<String>,
}

/// Holds a secret that is shown this once, and no private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairBundle {
    /// Of this form: 1.
    pub version: u32,
    pub node_id: String,
    /// The trust domain.
    pub domain: String,
    pub recovery_token: Secret,
    pub recovery_profile_id: String,
    pub recovery_url: String,
    /// The CA that the host trusts there.
    pub recovery_ca_pem: String,
    pub issued_by: String,
    pub issued_at: String,
    pub expires_at: String,
    /// The line of the audit trail that says that it was issued.
    pub audit_seq: u64,
    pub audit_hash: String,
}

impl RepairBundle {
    pub const VERSION: u32 = 1;
}
