//! Joining: a token becomes a replica with a certificate, in one step.

use super::{MOST_REPLICAS, Replica, ReplicaState, ReplicaToken};
use crate::names::{NodeId, ReplicaId, SecretHash, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Issued, Outcome, Rejection, State};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReplica {
    pub hash: SecretHash,
    /// The id that the certificate is for: the one after the highest that was ever given.
    pub replica: ReplicaId,
    /// `HOST:PORT` where other replicas reach it.
    pub peer: String,
    pub urls: Vec<String>,
    /// What the replica that was asked made ready.
    pub certificate: Issued,
}

/// Is the token good? Asked before the CSR is looked at, and again when the command is applied.
pub fn check_replica_token<'a>(state: &'a State, hash: &SecretHash) -> Result<&'a ReplicaToken, Rejection> {
    let token = state.replica_token_with_hash(hash).ok_or(Rejection::TokenInvalid)?;
    if token.used_at.is_some() {
        return Err(Rejection::TokenUsed);
    }
    if token.is_expired(state.at) {
        return Err(Rejection::TokenExpired);
    }
    Ok(token)
}

/// May a replica that is reached at this address join with this token? Asked before signing, and again when applied. The
/// token stays good after a refusal.
pub fn check_join<'a>(
    state: &'a State,
    hash: &SecretHash,
    peer: &str,
) -> Result<&'a ReplicaToken, Rejection> {
    let token = check_replica_token(state, hash)?;
    if state.peer_is_taken(peer, None) {
        return Err(Rejection::PeerAddressInUse { peer: peer.to_owned() });
    }
    if state.members().count() >= MOST_REPLICAS {
        return Err(Rejection::TooManyReplicas { max: MOST_REPLICAS });
    }
    Ok(token)
}

pub(in crate::registry) fn decide(state: &State, join: &JoinReplica) -> Decision {
    let token = match check_join(state, &join.hash, &join.peer) {
        Ok(token) => token,
        Err(rejection) => return rejection.into(),
    };
    // The replica that was asked announces itself before it lets another join: the new one has to reach it.
    let next = state.last_replica.checked_add(1).map(ReplicaId);
    let prepared = Some(join.replica) == next && state.fits_replica(join.replica, &join.certificate);
    if state.replicas.is_empty() || !prepared {
        return Rejection::PreparedStale.into();
    }
    let replica = Replica {
        id: join.replica,
        state: ReplicaState::Member,
        peer: join.peer.clone(),
        urls: join.urls.clone(),
        joined_at: state.at,
        removed_at: None,
        removed_by_force: false,
        serial: Some(join.certificate.serial.clone()),
        previous: None,
    };
    let joined = ReplicaJoined { replica, token: token.id, certificate: join.certificate.clone() };
    let events = vec![Event::ReplicaJoined(Box::new(joined))];
    Decision { events, answer: Ok(Outcome::ReplicaJoined { replica: join.replica }) }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaJoined {
    pub replica: Replica,
    /// The token that it spent.
    pub token: TokenId,
    pub certificate: Issued,
}

impl Happened for ReplicaJoined {
    const NAME: &'static str = "cluster.joined";

    fn fields(&self) -> AuditFields {
        vec![
            ("replica_id", AuditField::text(self.replica.id)),
            ("peer", AuditField::text(&self.replica.peer)),
            ("urls", AuditField::texts(&self.replica.urls)),
            ("token_id", AuditField::text(self.token)),
            ("cert_serial", AuditField::text(&self.certificate.serial)),
            ("mtls_cert_fingerprint", AuditField::text(self.certificate.fingerprint.labelled())),
            ("not_after", AuditField::text(self.certificate.not_after)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let (id, at) = (self.replica.id, state.at);
        if let Some(token) = state.replica_tokens.get_mut(&self.token) {
            (token.used_at, token.used_by) = (Some(at), Some(id));
        }
        state.last_replica = state.last_replica.max(id.0);
        state.record_replica_certificate(id, &self.certificate);
        state.replicas.insert(id, self.replica.clone());
    }
}
