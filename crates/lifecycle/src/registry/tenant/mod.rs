//! Tenants: sub-scopes of the domain. Every node belongs to one.

pub(super) mod create;

use crate::names::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub name: TenantId,
    pub created_by: String,
    pub created_at: Timestamp,
}
