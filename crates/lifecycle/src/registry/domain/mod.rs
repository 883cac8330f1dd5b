//! The domain: one control plane, one trust domain, one registry.

pub(super) mod initialize;

use crate::names::{ClusterId, Timestamp, TrustDomain};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    pub name: TrustDomain,
    pub cluster: ClusterId,
    pub founded_at: Timestamp,
}
