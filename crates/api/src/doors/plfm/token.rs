//! Enrollment tokens, with the fields that the document stores.

use crate::rest::secret::Secret;
use lifecycle::names::Timestamp;
use lifecycle::registry::{State, Token, TokenState};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateHostToken {
    /// Lifetime; the policy's `token.default_ttl` when absent.
    #[schema(example = "1h")]
    pub expires_in: Option<String>,
}

/// A new token: the only time that its value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MintedHostToken {
    pub token_id: String,
    pub token: Secret,
    pub cluster_id: String,
    pub created_by: String,
    pub created_at: String,
    pub expires_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostTokenItem {
    pub token_id: String,
    /// `sha256:` and 64 hex digits.
    pub token_hash: String,
    pub cluster_id: String,
    pub created_by: String,
    pub created_at: String,
    pub expires_at: String,
    /// `unused`, `used`, `revoked` or `expired`.
    pub state: String,
    /// Whether it was spent, by an enrollment or by a refusal that spends the token.
    pub used: bool,
    #[schema(required)]
    pub used_at: Option<String>,
    #[schema(required)]
    pub used_by_host_id: Option<String>,
}

impl HostTokenItem {
    pub fn of(state: &State, token: &Token, at: Timestamp) -> Self {
        let used = match &token.state {
            TokenState::Used { at, node } => Some((at, node)),
            TokenState::Unused | TokenState::Revoked { .. } | TokenState::Expired => None,
        };
        Self {
            token_id: token.id.to_string(),
            token_hash: format!("sha256:{}", token.hash.hex()),
            cluster_id: state.domain.as_ref().map(|domain| domain.cluster.to_string()).unwrap_or_default(),
            created_by: token.created_by.clone(),
            created_at: token.created_at.to_string(),
            expires_at: token.expires_at.to_string(),
            state: token.word(at).to_owned(),
            used: used.is_some(),
            used_at: used.map(|(at, _)| at.to_string()),
            used_by_host_id: used.and_then(|(_, node)| node.as_ref()).map(ToString::to_string),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostTokenList {
    pub tokens: Vec<HostTokenItem>,
    /// Pass it as `cursor` for the next page; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HostTokenQuery {
    /// Also those that are used, revoked or expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
