//! What can be asked of the registry, by whom, and what it answers.

use super::{
    AlertKind, IssueRepairBundle, Issued, IssuerKind, Keeping, KeyKind, Recover, Rejection, Report, Role,
    Tenants,
};
use crate::names::{
    AlertId, ClusterId, Fingerprint, IdempotencyHash, IssuerId, KeyHash, KeyId, Label, Labels, NodeId,
    OperatorName, ProfileName, RequestId, SecretHash, Serial, Source, Span, TenantId, Timestamp, Title,
    TokenId, TrustDomain, WireguardKey,
};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Who asks. Established at the edge, checked again when the command is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Someone on the operator socket: root, the service's own user or its group.
    Local { user: String },
    /// An operator with a certificate of the domain.
    Operator { name: OperatorName, serial: Serial },
    /// An operator's automation with an API key.
    Key { id: KeyId },
    /// A node with a certificate of the domain.
    Node { id: NodeId, serial: Serial },
    /// Whoever redeems a credential: the credential is in the command.
    Stranger,
    /// The control plane's own housekeeping.
    Reconciler,
}

/// As the audit trail names actors. A stranger's enrollment is the enrollment service's doing.
impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Actor::Local { user } => write!(f, "local:{user}"),
            Actor::Operator { name, .. } => write!(f, "user:{name}"),
            Actor::Key { id } => write!(f, "key:{id}"),
            Actor::Node { id, .. } => write!(f, "node:{id}"),
            Actor::Stranger => f.write_str("stranger"),
            Actor::Reconciler => f.write_str("system:reconciler"),
        }
    }
}

/// A command on its way: who asked, from where, under which ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Drawn by the replica, never taken from the caller; applying the same id twice applies it once.
    pub id: RequestId,
    pub actor: Actor,
    pub source: Source,
    /// The caller's own request id, recorded only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Label>,
    pub command: Command,
}

/// The stored form of everything that can be asked. Fields are only added; variants are never reordered
/// or renamed, because entries of old logs must decode for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Found(Box<Found>),
    CreateToken(CreateToken),
    RevokeToken {
        token: TokenId,
    },
    Enroll(Box<Enroll>),
    Confirm(Confirm),
    CreateTenant(CreateTenant),
    AddOperator(AddOperator),
    RemoveOperator {
        name: OperatorName,
    },
    CreateOperatorKey(CreateOperatorKey),
    RevokeOperatorKey {
        key: KeyId,
    },
    SetPolicy(SetPolicy),
    RecordServerCertificate(ServerCertificate),
    RecordRefusals(Refusals),
    RecordCheckpoint(Checkpoint),
    RecordAuditGap(AuditGap),
    Tidy,
    Renew(Box<Renew>),
    /// An authenticated request of a node: the first under this serial, or the first after silence.
    Contact {
        node: NodeId,
    },
    Observe(Vec<Sighting>),
    MarkInactive(Silence),
    Drain {
        node: NodeId,
        /// How long the host may take.
        within: Option<Span>,
    },
    Undrain {
        node: NodeId,
    },
    Quarantine {
        node: NodeId,
        reason: String,
    },
    Release {
        node: NodeId,
    },
    Decommission {
        node: NodeId,
    },
    Revoke {
        node: NodeId,
        reason: String,
    },
    Reinstate {
        node: NodeId,
    },
    /// Orders a renewal now.
    Rotate {
        node: NodeId,
    },
    RaiseAlert(RaiseAlert),
    ClearAlert {
        alert: AlertId,
    },
    AcknowledgeAlert {
        alert: AlertId,
    },
    PrepareRoll(PrepareRoll),
    CertifyRoll(Box<FoundIssuer>),
    ActivateIssuer(ActivateIssuer),
    RetireIssuer {
        issuer: IssuerId,
    },
    RevokeIssuer {
        issuer: IssuerId,
        reason: String,
    },
    Rewrap(Rewrap),
    Register(Register),
    Describe(Describe),
    Import(Box<Import>),
    /// What a node says of its recovery token on its live stream.
    MintRecovery {
        node: NodeId,
        keeping: Keeping,
    },
    Recover(Box<Recover>),
    IssueRepairBundle(IssueRepairBundle),
    /// A repaired node has been well for long enough.
    EndRepair {
        node: NodeId,
    },
    RenewOperator(Box<RenewOperator>),
    /// The first request with a certificate that a renewal issued.
    UseRenewedCertificate {
        name: OperatorName,
    },
}

/// Founds the domain: the first command of every log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub domain: TrustDomain,
    pub cluster: ClusterId,
    /// The ULA /48 from which overlay addresses come, its lower 80 bits zero.
    pub overlay_prefix: Ipv6Addr,
    pub default_profile: ProfileName,
    #[serde(with = "serde_bytes")]
    pub root: Vec<u8>,
    pub root_fingerprint: Fingerprint,
    pub root_not_after: Timestamp,
    pub issuer: FoundIssuer,
    /// Signs audit checkpoints; its certificate comes from the issuer.
    #[serde(with = "serde_bytes")]
    pub audit_certificate: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub audit_sealed_key: Vec<u8>,
}

/// The first issuer. Its key is here only as ciphertext.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundIssuer {
    pub id: IssuerId,
    pub kind: IssuerKind,
    pub subject: String,
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

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
}

/// The wire shape by which a request came in; it has a profile of its own where a document asks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    Native,
    Plfm,
    Pact,
    Probectl,
    Taskrun,
}

impl Door {
    pub const ALL: [Door; 5] = [Door::Native, Door::Plfm, Door::Pact, Door::Probectl, Door::Taskrun];

    pub fn as_str(self) -> &'static str {
        match self {
            Door::Native => "native",
            Door::Plfm => "plfm",
            Door::Pact => "pact",
            Door::Probectl => "probectl",
            Door::Taskrun => "taskrun",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|door| door.as_str() == text)
    }

    /// The profile that its document asks for; the native door has none.
    pub fn profile(self) -> Option<ProfileName> {
        if self == Door::Native { None } else { ProfileName::parse(self.as_str()).ok() }
    }
}

/// Redeems a token for an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enroll {
    pub token: SecretHash,
    /// Which key the request is for.
    pub key: KeyHash,
    pub key_kind: KeyKind,
    pub idempotency: Option<IdempotencyHash>,
    pub door: Door,
    /// A name the caller asks for, where its door allows asking.
    pub requested_node: Option<NodeId>,
    pub wireguard: Option<Wireguard>,
    pub underlay: Option<Underlay>,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
    /// What the replica made ready. Without it nothing can be granted.
    pub prepared: Option<Prepared>,
}

/// A certificate signed in memory, for the node and under the rules that [`super::admit`] named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: ProfileName,
    pub certificate: Issued,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wireguard {
    pub key: WireguardKey,
    pub fingerprint: Fingerprint,
}

/// Where a host's WireGuard can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Underlay {
    pub ipv6: Option<Ipv6Addr>,
    pub ipv4: Option<Ipv4Addr>,
    pub port: u16,
}

impl std::fmt::Display for Underlay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ipv6, self.ipv4) {
            (Some(v6), _) => write!(f, "[{v6}]:{}", self.port),
            (None, Some(v4)) => write!(f, "{v4}:{}", self.port),
            (None, None) => write!(f, ":{}", self.port),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    pub cpu_cores: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub arch: Option<Label>,
}

/// A node's first word with its new identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    pub node: NodeId,
    pub status: ConfirmStatus,
    #[serde(default, skip_serializing_if = "Keeping::is_nothing")]
    pub keeping: Keeping,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmStatus {
    Ok,
    /// The host could not keep what it was given.
    Failed {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTenant {
    pub tenant: TenantId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddOperator {
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub certificate: Option<Issued>,
}

/// Asks for a certificate for a new key, with the one in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewOperator {
    /// As the certificate in use says, never as the request does.
    pub name: OperatorName,
    /// What the replica made ready.
    pub certificate: Issued,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOperatorKey {
    pub key: KeyId,
    pub hash: SecretHash,
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub ttl: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPolicy {
    pub key: String,
    pub value: String,
}

/// The control plane's own certificate, on record like every other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCertificate {
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub issuer: IssuerId,
    pub not_after: Timestamp,
}

/// Refused attempts of strangers, counted at the edge so that a flood cannot grow the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub reason: String,
    /// The network they came from; none in the line that says `overflow`.
    pub network: Option<Source>,
    pub count: u64,
    pub samples: Vec<String>,
    /// Where they were attempts to recover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RefusedRecovery>,
}

/// Which node's tokens were brought; none if they were nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusedRecovery {
    pub node: Option<NodeId>,
}

/// Audit line `seq` had hash `head`: signed by the audit key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub seq: u64,
    pub head: Fingerprint,
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

/// Lines of the audit store were missing at start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditGap {
    pub from: u64,
    pub to: u64,
    /// Whether the log still held them.
    pub refilled: bool,
}

/// Asks for a certificate for a new key, with the one in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    pub node: NodeId,
    pub key: KeyHash,
    pub key_kind: KeyKind,
    pub agent_version: Option<Label>,
    /// What the replica made ready. Without it nothing can be granted.
    pub prepared: Option<Issued>,
    #[serde(default, skip_serializing_if = "Keeping::is_nothing")]
    pub keeping: Keeping,
}

/// A node was heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub node: NodeId,
    pub seen: Timestamp,
    /// Which start of the agent spoke, on its live stream; none for other requests.
    pub instance: Option<Label>,
    /// The trust bundle that the host says it has on disk.
    pub bundle: Option<u64>,
    pub agent_version: Option<Label>,
    /// The recovery token that the host says it has on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_kept: Option<TokenId>,
    /// What the host said of itself, when that is news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Arc<Report>>,
}

/// Nodes that have said nothing for the grace period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    pub nodes: Vec<NodeId>,
    /// Nobody could be heard before this moment.
    pub listening_since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseAlert {
    pub kind: AlertKind,
    pub node: Option<NodeId>,
    pub detail: String,
}

/// The key of the next issuer, and the request for its certificate that goes to wherever the root key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareRoll {
    pub key: KeyHash,
    pub request: String,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivateIssuer {
    pub issuer: IssuerId,
    /// Even if nodes have not got the bundle yet.
    pub force: bool,
    /// The audit key, certified by the new issuer.
    #[serde(with = "serde_bytes")]
    pub audit_certificate: Vec<u8>,
}

/// Every sealed key under another key-encryption key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrap {
    pub issuers: Vec<(IssuerId, serde_bytes::ByteBuf)>,
    #[serde(with = "serde_bytes")]
    pub audit: Vec<u8>,
    pub roll: Option<serde_bytes::ByteBuf>,
}

/// Makes a node known before it has a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Drawn by the replica. A token's pin has the last word.
    pub node: NodeId,
    pub claim: Claim,
    /// The domain's default when neither this nor the token names one.
    pub profile: Option<ProfileName>,
    /// What kind of collector it is.
    pub plane: Option<Label>,
    pub hostname: Option<Label>,
}

/// By what right a node is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// The actor's own, in this tenant.
    Tenant(TenantId),
    /// That of whoever minted the token, which from then on is for this node alone.
    Token(SecretHash),
}

/// Changes what people call a node and what they sort it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Describe {
    pub node: NodeId,
    pub name: Change<Title>,
    pub labels: Change<Labels>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change<T> {
    Keep,
    Forget,
    Set(T),
}

impl<T: Clone> Change<T> {
    /// What it leaves of what was there.
    pub fn of(&self, was: Option<T>) -> Option<T> {
        match self {
            Change::Keep => was,
            Change::Forget => None,
            Change::Set(value) => Some(value.clone()),
        }
    }
}

/// Takes in a certificate that was made elsewhere: what it says of itself, its issuer's signature checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// As its common name says.
    pub node: NodeId,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub key: KeyHash,
    pub issuer: IssuerId,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// What a granted command answers. Everything else that a caller is told is read from the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done, or already so.
    Done,
    /// The node has this certificate: a new one, or the same again after a lost reply.
    Enrolled { node: NodeId, serial: Serial, replayed: bool },
    /// The node has this certificate too: a new one, or the same again after a lost reply.
    Renewed { serial: Serial, replayed: bool },
    /// The node is known: a new one, or the one that the token is for.
    Registered { node: NodeId },
    /// The node has this certificate and no other: a new one, or the same again after a lost reply.
    Recovered { node: NodeId, serial: Serial, replayed: bool },
}

/// A command's answer.
pub type Answer = Result<Outcome, Rejection>;
