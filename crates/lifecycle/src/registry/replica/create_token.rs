//! Creating a token that lets one replica join.

use super::ReplicaToken;
use crate::names::{NodeId, SecretHash, Span, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::policy::TOKEN_TTL_MIN;
use crate::registry::{Actor, Envelope, Event, Rejection, State};

/// Tokens that are neither used nor expired at once.
const LIVE: usize = 64;

pub(in crate::registry) fn create(
    state: &State,
    actor: &Actor,
    token: TokenId,
    hash: &SecretHash,
    ttl: Span,
) -> Decision {
    if ttl < TOKEN_TTL_MIN {
        return Rejection::TokenTtlTooShort { min: TOKEN_TTL_MIN }.into();
    }
    if ttl > state.policy.token_max_ttl {
        return Rejection::TokenTtlTooLong { max: state.policy.token_max_ttl }.into();
    }
    let taken = state.replica_tokens.contains_key(&token)
        || state.replica_token_by_hash.contains_key(hash)
        || state.token_by_hash.contains_key(hash);
    if taken {
        return Rejection::PreparedStale.into();
    }
    if state.replica_tokens.values().filter(|token| token.is_live(state.at)).count() >= LIVE {
        return Rejection::TooManyReplicaTokens { max: LIVE }.into();
    }
    Decision::granted(vec![Event::ReplicaTokenCreated(ReplicaToken {
        id: token,
        hash: *hash,
        created_by: actor.to_string(),
        created_at: state.at,
        expires_at: state.at.plus(ttl),
        used_at: None,
        used_by: None,
    })])
}

impl Happened for ReplicaToken {
    const NAME: &'static str = "cluster.token_created";

    fn fields(&self) -> AuditFields {
        vec![
            ("token_id", AuditField::text(self.id)),
            ("created_by", AuditField::text(&self.created_by)),
            ("expires_at", AuditField::text(self.expires_at)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.replica_token_by_hash.insert(self.hash, self.id);
        state.replica_tokens.insert(self.id, self.clone());
    }
}
