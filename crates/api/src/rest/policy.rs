//! Policy: replicated values that can change an outcome.

use lifecycle::registry::Policy;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A value to set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SetPolicy)]
pub struct SetPolicyRequest {
    #[schema(example = "token.max_ttl")]
    pub key: String,
    #[schema(example = "12h")]
    pub value: String,
    /// The key again, where `confirmation_needed` asks for it: no host could enroll any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// One value: as listed, and as answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyItem {
    #[schema(example = "token.max_ttl")]
    pub key: String,
    #[schema(example = "12h")]
    pub value: String,
}

/// Every key with its value, never paged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    pub items: Vec<PolicyItem>,
}

impl PolicyList {
    pub fn of(policy: &Policy) -> Self {
        Self { items: policy.list().into_iter().map(|(key, value)| PolicyItem { key, value }).collect() }
    }
}
