//! Registering machines by their hardware, one or many at a time.

use crate::rest::at_most::at_most;
use crate::rest::one_or_more::OneOrMore;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A machine that may enroll with its hardware identity. At least one identifier is needed; what is registered must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RegisterNode)]
pub struct RegisterNodeRequest {
    #[schema(example = "compute-001")]
    pub node_id: String,
    /// MAC addresses, one or several; several may also be joined by `;`.
    #[serde(default)]
    pub mac: OneOrMore,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// Hash of the endorsement key of its TPM: one more identifier, not attestation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm_ek_hash: Option<String>,
    /// The vCluster to which it is assigned; in maintenance mode when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<String>,
    /// The domain's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The tenant of `X-Tenant`, else the operator's only one, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Machines in one batch.
pub const BATCH_MAX: usize = 100_000;

/// Many machines, each registered by itself: some may be refused while the others are registered. At most 100,000.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RegisterNodes)]
pub struct RegisterNodesRequest {
    #[serde(deserialize_with = "at_most::<_, _, BATCH_MAX>")]
    #[schema(max_items = 100_000)]
    pub nodes: Vec<RegisterNodeRequest>,
}

/// What became of each machine of a batch, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredNodes {
    pub results: Vec<RegistrationResult>,
    pub succeeded: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegistrationResult {
    /// Its place in the request, from 1; of a file, the line, the header included.
    pub line: u64,
    /// Null for a line of a file that cannot be read.
    #[schema(required)]
    pub node_id: Option<String>,
    /// Whether it is registered with this hardware now.
    pub ok: bool,
    /// Why it was refused; `node_already_enrolled` with `ok` if it was registered with this hardware before.
    #[schema(required)]
    pub code: Option<String>,
    #[schema(required)]
    pub message: Option<String>,
    /// What was left as it is, of a node that was registered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// To which vCluster a node is assigned or moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntoVcluster {
    pub vcluster: String,
}
