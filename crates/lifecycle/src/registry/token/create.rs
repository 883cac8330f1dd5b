//! Tokens: created by operators, revoked before use, expired by time.

use crate::names::{
    Labels, NodeId, ProfileName, SecretHash, Source, Span, TenantId, Timestamp, Title, TokenId,
};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::describe::label_field;
use crate::registry::policy::TOKEN_TTL_MIN;
use crate::registry::{Actor, Envelope, Event, NodeState, Rejection, State, Token, TokenState};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Mints a token. The value is drawn at the edge and shown once; only its hash comes here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateToken {
    pub token: TokenId,
    pub hash: SecretHash,
    pub tenant: TenantId,
    /// Only this node may be made or re-made with it.
    pub node: Option<NodeId>,
    /// The profile of the door that redeems it, when none is named.
    pub profile: Option<ProfileName>,
    /// The policy's default when none is named.
    pub ttl: Option<Span>,
    /// What the node that it makes shall be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Title>,
    /// The labels of the node that it makes; none leaves those that a node has.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The live stream that this replica has with `node`. Only the native API asks about it: the mints of other systems
    /// know no such question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<NodeConnection>,
    /// Even though the node is connected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// A node's live stream, as the replica sees it that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConnection {
    pub since: Timestamp,
    pub from: Source,
}

pub(in crate::registry) fn create(state: &State, actor: &Actor, create: &CreateToken) -> Decision {
    match check(state, create) {
        Err(rejection) => rejection.into(),
        Ok(()) => Decision::granted(vec![Event::TokenCreated(Token {
            id: create.token,
            hash: create.hash,
            tenant: create.tenant.clone(),
            node: create.node.clone(),
            profile: create.profile.clone(),
            created_by: actor.to_string(),
            created_at: state.at,
            expires_at: state.at.plus(create.ttl.unwrap_or(state.policy.token_default_ttl)),
            state: TokenState::Unused,
            name: create.name.clone(),
            labels: create.labels.clone(),
            replace: create.replace,
        })]),
    }
}

fn check(state: &State, create: &CreateToken) -> Result<(), Rejection> {
    if !state.tenants.contains_key(&create.tenant) {
        return Err(Rejection::TenantNotFound { tenant: create.tenant.clone() });
    }
    if let Some(ttl) = create.ttl {
        if ttl < TOKEN_TTL_MIN {
            return Err(Rejection::TokenTtlTooShort { min: TOKEN_TTL_MIN });
        }
        if ttl > state.policy.token_max_ttl {
            return Err(Rejection::TokenTtlTooLong { max: state.policy.token_max_ttl });
        }
    }
    if let Some(profile) = create.profile.as_ref().filter(|name| !state.policy.profiles.contains_key(*name)) {
        return Err(Rejection::ProfileNotFound { profile: profile.clone() });
    }
    if let Some(node) = create.node.as_ref().and_then(|id| state.nodes.get(id)) {
        if node.tenant != create.tenant {
            return Err(Rejection::NodeNotFound { node: node.id.clone() });
        }
        if node.state.is_gone() {
            return Err(Rejection::NodeRevoked { node: node.id.clone() });
        }
        // Whoever redeems it ends every certificate that the host there is using.
        if let Some(NodeConnection { since, from }) = create.connected.filter(|_| !create.replace)
            && node.state == NodeState::Active
        {
            return Err(Rejection::NodeConnected { node: node.id.clone(), since, from });
        }
    }
    if let Some(node) = create.node.as_ref().filter(|id| id.is_reserved()) {
        return Err(Rejection::NodeIdInUse { node: node.clone() });
    }
    let taken = state.tokens.contains_key(&create.token) || state.token_by_hash.contains_key(&create.hash);
    if taken { Err(Rejection::PreparedStale) } else { Ok(()) }
}

impl Happened for Token {
    const NAME: &'static str = "enrollment_token.created";

    fn fields(&self) -> AuditFields {
        [
            ("token_id", AuditField::text(self.id)),
            ("created_by", AuditField::text(&self.created_by)),
            ("expires_at", AuditField::text(self.expires_at)),
            ("tenant", AuditField::text(&self.tenant)),
            ("pinned_node", AuditField::maybe(self.node.as_ref())),
            ("profile", AuditField::maybe(self.profile.as_ref())),
        ]
        .into_iter()
        // Lines of old logs are made again from their commands: what came later is there only if it is said.
        .chain(self.name.as_ref().map(|name| ("name", AuditField::text(name))))
        .chain(self.replace.then_some(("replace", AuditField::Flag(true))))
        .chain((!self.labels.is_empty()).then(|| ("labels", label_field(&self.labels))))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.token_by_hash.insert(self.hash, self.id);
        state.tokens.insert(self.id, Arc::new(self.clone()));
    }
}
