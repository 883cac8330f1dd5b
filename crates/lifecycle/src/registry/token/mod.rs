//! Enrollment tokens: what is remembered of a secret that was shown once.

pub(super) mod burn;
pub(super) mod create;
pub(super) mod expire;
pub(super) mod revoke;

use super::State;
use crate::names::{Labels, NodeId, ProfileName, SecretHash, TenantId, Timestamp, Title, TokenId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// The labels of the node that it makes.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Asked for even if the node is connected.
    #[serde(default)]
    pub replace: bool,
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

impl State {
    /// A token by the hash of the presented string.
    pub fn token_with_hash(&self, hash: &SecretHash) -> Option<&Token> {
        self.tokens.get(self.token_by_hash.get(hash)?).map(Arc::as_ref)
    }

    pub(super) fn set_token(&mut self, id: TokenId, next: TokenState) {
        if let Some(token) = self.tokens.get_mut(&id).map(Arc::make_mut) {
            token.state = next;
        }
    }
}
