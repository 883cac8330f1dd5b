//! Policy: replicated values that can change an outcome.

use lifecycle::registry::Policy;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One value: as listed, as asked for, and as answered.
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
