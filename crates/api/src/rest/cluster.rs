//! The cluster: the replicas of one control plane, and how another joins them. Replica ids are decimal strings.

use super::secret::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a token for a replica begins; 43 characters of base64url follow.
pub const REPLICA_TOKEN_PREFIX: &str = "join_";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateReplicaToken)]
pub struct CreateReplicaTokenRequest {
    /// Lifetime; the policy's `token.default_ttl` when absent.
    #[schema(example = "1h")]
    pub expires: Option<String>,
}

/// A new token that lets one replica join, and no node: the only time that its value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MintedReplicaToken {
    pub token_id: String,
    pub token: Secret,
    pub expires_at: String,
    /// `sha256:` and the digest of the domain's root certificate.
    pub ca_pin: String,
    /// Where the new replica reaches this one.
    pub peer_url: String,
    /// What to run on the machine of the new replica.
    pub join_command: Secret,
}

/// The cluster as one replica sees it, with or without a majority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The replica that answers.
    pub replica_id: String,
    pub cluster_id: String,
    pub domain: String,
    /// Rises when the domain is restored from a backup or recovered from the loss of a majority.
    pub epoch: u64,
    pub term: u64,
    /// The replica that leads; null while there is none.
    #[schema(required)]
    pub leader: Option<String>,
    /// Whether the replica that answers is in contact with a majority.
    pub quorum: bool,
    /// What every replica can apply.
    pub feature_level: u32,
    /// How old the state may be that this replica answers with.
    pub state_age_ms: u64,
    /// What is wrong with the replica that answers as one of several, in the words of `/readyz`.
    #[serde(default)]
    pub reasons: Vec<String>,
    pub replicas: Vec<ReplicaItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaItem {
    pub replica_id: String,
    pub role: ReplicaRole,
    pub voter: bool,
    /// Where nodes and operators reach it; null if it advertises nothing.
    #[schema(required)]
    pub url: Option<String>,
    /// `HOST:PORT` where other replicas reach it.
    pub peer: String,
    pub health: ReplicaHealth,
    /// How many entries of the log it has yet to store; null if that is not known.
    #[schema(required)]
    pub lag: Option<u64>,
    /// The last entry of the log that it has applied.
    #[schema(required)]
    pub applied: Option<u64>,
    /// The last line of its audit trail, and the hash of that line.
    #[schema(required)]
    pub audit_seq: Option<u64>,
    #[schema(required)]
    pub audit_head: Option<String>,
    /// How far its clock is ahead of the one of the replica that answers; negative if it is behind.
    #[schema(required)]
    pub clock_offset_ms: Option<i64>,
    #[schema(required)]
    pub version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaRole {
    Leader,
    Follower,
    /// Is sent the log and has no vote.
    Learner,
}

impl ReplicaRole {
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicaRole::Leader => "leader",
            ReplicaRole::Follower => "follower",
            ReplicaRole::Learner => "learner",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaHealth {
    Ok,
    Lagging,
    Unreachable,
    ClockSkew,
}

impl ReplicaHealth {
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicaHealth::Ok => "ok",
            ReplicaHealth::Lagging => "lagging",
            ReplicaHealth::Unreachable => "unreachable",
            ReplicaHealth::ClockSkew => "clock_skew",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RemoveReplica)]
pub struct RemoveReplicaRequest {
    /// Even if the replicas that are left have no majority.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The replica's id again, where `confirmation_needed` asks for it: with `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// What a machine sends that is to become a replica. The token is its only credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = JoinCluster)]
pub struct JoinClusterRequest {
    pub token: Secret,
    /// A PKCS#10 request, PEM. Only its key is used. The key stays with the caller.
    pub csr_pem: String,
    /// Which key-encryption key the caller has: the domain's own is needed to open what is sealed.
    pub kek_id: String,
    /// `HOST:PORT` where other replicas reach it.
    pub peer: String,
    /// What nodes and operators are told to reach it by.
    pub urls: Vec<String>,
    /// The version of its program.
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinedCluster {
    pub replica_id: String,
    pub domain: String,
    pub cluster_id: String,
    pub epoch: u64,
    /// The replica's certificate and the intermediates above it.
    pub cert_pem: String,
    /// What to trust to reach the other replicas.
    pub ca_pem: String,
    /// The key that authenticates the log, in hex, sealed under the key-encryption key.
    pub log_key_sealed: String,
    pub kek_id: String,
    /// The members of the cluster, the new one included.
    pub replicas: Vec<ReplicaAddress>,
    /// Whether an issuer's key is in an HSM, so that the new replica needs `[pkcs11]` in its enlist.toml.
    #[serde(default)]
    pub needs_hsm: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaAddress {
    pub replica_id: String,
    pub peer: String,
}
