//! A host asks to be let in.

use super::OverlayConfig;
use crate::rest::nodes::HardwareFacts;
use crate::rest::secret::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnrollHost {
    pub enrollment_token: Secret,
    pub underlay_endpoint: UnderlayEndpoint,
    /// As the host reports it; recorded, not verified.
    pub hardware_facts: Option<HardwareFacts>,
    /// Base64 of 32 bytes, as `wg pubkey` prints it.
    pub wireguard_public_key: String,
    /// A PEM PKCS#10 request. The names in it are ignored.
    pub mtls_csr: String,
}

/// Where the host's WireGuard can be reached; at least one of the two addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnderlayEndpoint {
    #[schema(example = "2001:db8::1")]
    pub ipv6: Option<String>,
    #[schema(example = "203.0.113.1")]
    pub ipv4: Option<String>,
    /// 51820 when absent.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnrolledHost {
    pub host_id: String,
    /// The leaf, then its intermediates.
    pub mtls_cert: String,
    /// What verifies the leaf and the control plane alike.
    pub mtls_ca_chain: String,
    pub overlay_config: OverlayConfig,
    pub cluster_config: ClusterConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterConfig {
    pub control_plane_endpoints: Vec<String>,
    /// The policy's `agent.version_policy`.
    pub agent_version_policy: String,
}
