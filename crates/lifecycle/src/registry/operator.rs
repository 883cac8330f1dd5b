//! Those who run the fleet, and their automation.

use super::{Role, Tenants};
use crate::names::{KeyId, OperatorName, SecretHash, Serial, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub added_by: String,
    pub added_at: Timestamp,
    /// The serial of the certificate issued to it, if any.
    pub serial: Option<Serial>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorKey {
    pub id: KeyId,
    pub hash: SecretHash,
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub created_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

impl OperatorKey {
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && at < self.expires_at
    }
}
