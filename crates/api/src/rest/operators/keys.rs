//! API keys: an operator's automation.

use crate::rest::one_or_more::OneOrMore;
use crate::rest::scope::TenantScope;
use crate::rest::secret::Secret;
use lifecycle::names::Timestamp;
use lifecycle::registry::OperatorKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateOperatorKey)]
pub struct CreateOperatorKeyRequest {
    /// Who or what will use it.
    pub name: String,
    /// `viewer`, `operator` or `platform-admin`.
    pub role: String,
    /// All tenants when absent.
    pub tenant: Option<TenantScope>,
    /// Narrows the role `operator` to assigning, moving and reading nodes of these vClusters; not narrowed when absent.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub vcluster: OneOrMore,
    #[schema(example = "90d")]
    pub expires: Option<String>,
}

/// A new API key: the only time that its value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    pub key_id: String,
    /// Goes into `Authorization: Bearer`.
    pub key: Secret,
    pub name: String,
    pub role: String,
    /// Null for all tenants.
    #[schema(required)]
    pub tenant: Option<TenantScope>,
    /// What the role is narrowed to; empty when it is not.
    #[serde(default)]
    #[schema(required)]
    pub vclusters: Vec<String>,
    pub expires_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyItem {
    pub key_id: String,
    pub name: String,
    pub role: String,
    /// Null for all tenants.
    #[schema(required)]
    pub tenant: Option<TenantScope>,
    /// What the role is narrowed to; empty when it is not.
    #[serde(default)]
    #[schema(required)]
    pub vclusters: Vec<String>,
    /// `good`, `expired` or `revoked`.
    pub state: String,
    pub created_by: String,
    pub created_at: String,
    pub expires_at: String,
    #[schema(required)]
    pub revoked_at: Option<String>,
}

impl KeyItem {
    pub fn of(key: &OperatorKey, at: Timestamp) -> Self {
        let state = match key.revoked_at {
            Some(_) => "revoked",
            None if key.is_good(at) => "good",
            None => "expired",
        };
        Self {
            key_id: key.id.to_string(),
            name: key.name.to_string(),
            role: key.role.as_str().to_owned(),
            tenant: TenantScope::of(&key.tenants),
            vclusters: super::vcluster_names(&key.vclusters),
            state: state.to_owned(),
            created_by: key.created_by.clone(),
            created_at: key.created_at.to_string(),
            expires_at: key.expires_at.to_string(),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
        }
    }
}
