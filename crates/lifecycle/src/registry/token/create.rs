//! Tokens: created by operators, revoked before use, expired by time.

use crate::names::TokenId;
use crate::registry::apply::Decision;
use crate::registry::policy::TOKEN_TTL_MIN;
use crate::registry::{Actor, CreateToken, Event, Rejection, State, Token, TokenState};

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
    }
    if let Some(node) = create.node.as_ref().filter(|id| id.is_reserved()) {
        return Err(Rejection::NodeIdInUse { node: node.clone() });
    }
    let taken = state.tokens.contains_key(&create.token) || state.token_by_hash.contains_key(&create.hash);
    if taken { Err(Rejection::PreparedStale) } else { Ok(()) }
}

/// Revoking twice is revoking once; a used token is past revoking.
pub(in crate::registry) fn revoke(state: &State, id: TokenId) -> Decision {
    match state.tokens.get(&id).map(|token| &token.state) {
        None => Rejection::TokenNotFound { token: id }.into(),
        Some(TokenState::Used { .. }) => Rejection::TokenUsed.into(),
        Some(TokenState::Revoked { .. } | TokenState::Expired) => Decision::granted(Vec::new()),
        Some(TokenState::Unused) => Decision::granted(vec![Event::TokenRevoked { token: id }]),
    }
}
