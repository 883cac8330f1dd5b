//! The domain: one control plane, one trust domain, one registry.

pub(super) mod accept_clock;
pub(super) mod corroborate_clock;
pub(super) mod initialize;
pub(super) mod repair_clock;

use super::NodeSigner;
use crate::names::{ClusterId, Timestamp, TrustDomain};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    pub name: TrustDomain,
    pub cluster: ClusterId,
    pub founded_at: Timestamp,
    #[serde(default, skip_serializing_if = "NodeSigner::is_domain_issuer")]
    pub node_signer: NodeSigner,
}
