//! Enrollment tokens: what is remembered of a secret that was shown once.

pub(super) mod create;

use crate::names::{NodeId, ProfileName, SecretHash, TenantId, Timestamp, Title, TokenId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub id: TokenId,
    pub hash: SecretHash,
    pub tenant: TenantId,
    pub node: Option<NodeId>,
    pub profile: Option<ProfileName>,
    pub created_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub state: TokenState,
    /// What the node that it makes shall be called.
    #[serde(default)]
    pub name: Option<Title>,
}

/// Unused tokens expire by time; `Expired` says that the trail has its line about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    Unused,
    /// Spent: on a node, or burned by a refusal that ends its life.
    Used {
        at: Timestamp,
        node: Option<NodeId>,
    },
    Revoked {
        at: Timestamp,
    },
    Expired,
}

impl Token {
    pub fn is_expired(&self, at: Timestamp) -> bool {
        at >= self.expires_at
    }

    /// The word for its state at a moment.
    pub fn word(&self, at: Timestamp) -> &'static str {
        match &self.state {
            TokenState::Used { .. } => "used",
            TokenState::Revoked { .. } => "revoked",
            TokenState::Expired => "expired",
            TokenState::Unused if self.is_expired(at) => "expired",
            TokenState::Unused => "unused",
        }
    }
}
