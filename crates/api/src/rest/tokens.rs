//! Enrollment tokens.

use super::secret::Secret;
use lifecycle::names::Timestamp;
use lifecycle::registry::{Token, TokenState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateToken)]
pub struct CreateTokenRequest {
    /// Lifetime; the policy's `token.default_ttl` when absent.
    #[schema(example = "1h")]
    pub expires: Option<String>,
    /// The operator's only tenant, else `default`, when absent.
    pub tenant: Option<String>,
    /// Only this node may be enrolled with it.
    pub node: Option<String>,
    /// The profile of `door`, else that of the API that redeems it, when absent.
    pub profile: Option<String>,
    /// Mint it in the format of this system: `plfm`, `probectl` or `taskrun`.
    pub door: Option<String>,
    /// Mint it even if `node` is active and connected: whoever redeems it takes the node's place, and every certificate
    /// that the node has is denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// The labels of the node that it enrolls, at most 32; they take the place of those that the node has. Absent or empty leaves
    /// those as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A new token: the only time that its value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MintedToken {
    pub token_id: String,
    pub token: Secret,
    pub tenant: String,
    #[schema(required)]
    pub node: Option<String>,
    #[schema(required)]
    pub profile: Option<String>,
    /// The labels of the node that it enrolls; absent without any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub expires_at: String,
    /// `sha256:` and the digest of the domain's root certificate.
    pub ca_pin: String,
    pub server_url: String,
    /// What to run on the host.
    pub join_command: Secret,
    /// With `door: probectl`: hex of the SHA-256 of the certificate that the control plane presents now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cert_pin: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenItem {
    pub token_id: String,
    pub tenant: String,
    #[schema(required)]
    pub node: Option<String>,
    #[schema(required)]
    pub profile: Option<String>,
    /// The labels of the node that it enrolls.
    #[serde(default)]
    #[schema(required)]
    pub labels: BTreeMap<String, String>,
    /// `unused`, `used`, `revoked` or `expired`.
    pub state: String,
    pub created_by: String,
    pub created_at: String,
    pub expires_at: String,
    #[schema(required)]
    pub used_at: Option<String>,
    /// The node that was enrolled with it; null also when a refusal spent it.
    #[schema(required)]
    pub used_by: Option<String>,
}

impl TokenItem {
    pub fn of(token: &Token, at: Timestamp) -> Self {
        let (used_at, used_by) = match &token.state {
            TokenState::Used { at, node } => (Some(at.to_string()), node.as_ref().map(ToString::to_string)),
            TokenState::Unused | TokenState::Revoked { .. } | TokenState::Expired => (None, None),
        };
        Self {
            token_id: token.id.to_string(),
            tenant: token.tenant.to_string(),
            node: token.node.as_ref().map(ToString::to_string),
            profile: token.profile.as_ref().map(ToString::to_string),
            labels: token.labels.pairs().clone(),
            state: token.word(at).to_owned(),
            created_by: token.created_by.clone(),
            created_at: token.created_at.to_string(),
            expires_at: token.expires_at.to_string(),
            used_at,
            used_by,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TokenQuery {
    /// Also those that are used, revoked or expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
