//! Tenants: sub-scopes of the domain.

use lifecycle::registry::Tenant;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateTenant)]
pub struct CreateTenantRequest {
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantItem {
    pub name: String,
    pub created_by: String,
    pub created_at: String,
}

impl TenantItem {
    pub fn of(tenant: &Tenant) -> Self {
        Self {
            name: tenant.name.to_string(),
            created_by: tenant.created_by.clone(),
            created_at: tenant.created_at.to_string(),
        }
    }
}
