//! Those who run the fleet, and their automation.

pub(super) mod add;
pub(super) mod key;
pub(super) mod remove;
pub(super) mod renew;

use super::{Role, Tenants, Vclusters};
use crate::names::{KeyId, OperatorName, SecretHash, Serial, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub added_by: String,
    pub added_at: Timestamp,
    /// The serial of the certificate in use, if any.
    pub serial: Option<Serial>,
    /// Issued by a renewal and never used. Until it is, the certificate in use stays good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Serial>,
    /// Certificates that renewals have replaced, denied, until they have expired and are tidied away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Serial>,
    /// What its role is narrowed to.
    #[serde(default, skip_serializing_if = "Vclusters::is_all")]
    pub vclusters: Vclusters,
}

impl Operator {
    /// Whether this serial speaks for the operator.
    pub fn holds(&self, serial: &Serial) -> bool {
        self.serial.as_ref() == Some(serial) || self.renewed.as_ref() == Some(serial)
    }

    /// Every serial of the operator that is on record.
    pub fn serials(&self) -> impl Iterator<Item = &Serial> {
        self.serial.iter().chain(&self.renewed).chain(&self.replaced)
    }
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
    /// What its role is narrowed to.
    #[serde(default, skip_serializing_if = "Vclusters::is_all")]
    pub vclusters: Vclusters,
}

impl OperatorKey {
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && at < self.expires_at
    }
}
