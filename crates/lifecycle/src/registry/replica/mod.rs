//! Replicas: the processes of one control plane, and what lets another join them.

pub(super) mod announce;
pub(super) mod create_token;
pub(super) mod join;
pub(super) mod membership;
pub(super) mod remove;

use super::{Issued, Rejection, State};
use crate::names::{ReplicaId, SecretHash, Serial, SpiffeId, Timestamp, TokenId};
use serde::{Deserialize, Serialize};

/// Members of a cluster at once.
pub const MOST_REPLICAS: usize = 9;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub id: ReplicaId,
    pub state: ReplicaState,
    /// `HOST:PORT` where other replicas reach it.
    pub peer: String,
    /// What nodes and operators are told to reach it by.
    pub urls: Vec<String>,
    pub joined_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
    /// It goes even if the others are no majority without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed_by_force: bool,
    /// The serial of the replica certificate in use.
    pub serial: Option<Serial>,
    /// The one before, good until it ends or the next renewal: a replica that stopped before it had stored its new one goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Serial>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    Member,
    /// For good: its record stays, so that its id is never given again.
    Removed,
}

impl ReplicaState {
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicaState::Member => "member",
            ReplicaState::Removed => "removed",
        }
    }
}

impl Replica {
    pub fn is_member(&self) -> bool {
        self.state == ReplicaState::Member
    }

    /// Its certificates that are on record and may be good.
    pub fn serials(&self) -> impl Iterator<Item = &Serial> {
        self.serial.iter().chain(&self.previous)
    }
}

/// What is remembered of a token that lets one replica join. It lets no node in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaToken {
    pub id: TokenId,
    pub hash: SecretHash,
    pub created_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub used_at: Option<Timestamp>,
    pub used_by: Option<ReplicaId>,
}

impl ReplicaToken {
    pub fn is_expired(&self, at: Timestamp) -> bool {
        at >= self.expires_at
    }

    /// Whether a replica could join with it.
    pub fn is_live(&self, at: Timestamp) -> bool {
        self.used_at.is_none() && !self.is_expired(at)
    }
}

impl State {
    /// The replicas that were not removed.
    pub fn members(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values().filter(|replica| replica.is_member())
    }

    /// A member by its id.
    pub fn member(&self, id: ReplicaId) -> Result<&Replica, Rejection> {
        match self.replicas.get(&id) {
            None => Err(Rejection::ReplicaNotFound { replica: id }),
            Some(replica) if !replica.is_member() => Err(Rejection::ReplicaRemoved { replica: id }),
            Some(replica) => Ok(replica),
        }
    }

    pub(super) fn check_not_removed(&self, id: ReplicaId) -> Result<(), Rejection> {
        match self.replicas.get(&id).map(|replica| replica.state) {
            Some(ReplicaState::Removed) => Err(Rejection::ReplicaRemoved { replica: id }),
            Some(ReplicaState::Member) | None => Ok(()),
        }
    }

    /// Whether a member, other than the one that asks, is reached at this address.
    fn peer_is_taken(&self, peer: &str, asking: Option<ReplicaId>) -> bool {
        self.members().any(|member| Some(member.id) != asking && member.peer == peer)
    }

    /// Whether this is a certificate for this replica that may go on record now.
    fn fits_replica(&self, id: ReplicaId, certificate: &Issued) -> bool {
        let subject = self.domain.as_ref().map(|domain| SpiffeId::replica(&domain.name, id));
        Some(&certificate.subject) == subject.as_ref() && certificate.may_be_recorded(self)
    }

    /// A token for replicas by the hash of the presented string.
    pub fn replica_token_with_hash(&self, hash: &SecretHash) -> Option<&ReplicaToken> {
        self.replica_tokens.get(self.replica_token_by_hash.get(hash)?)
    }

    pub(super) fn unused_replica_tokens(&self) -> impl Iterator<Item = &ReplicaToken> {
        self.replica_tokens.values().filter(|token| token.used_at.is_none())
    }

    /// No replica joins with a token of before.
    pub(super) fn void_replica_tokens(&mut self, at: Timestamp) {
        for id in self.unused_replica_tokens().map(|token| token.id).collect::<Vec<_>>() {
            if let Some(token) = self.replica_tokens.get_mut(&id) {
                token.expires_at = token.expires_at.min(at);
            }
        }
    }
}
