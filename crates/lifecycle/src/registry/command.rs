//! What can be asked of the registry, by whom, and what it answers.

use super::{IssueRepairBundle, Keeping, Recover, Rejection};
use crate::names::{
    AlertId, BootstrapName, Fingerprint, IssuerId, KeyId, Label, NodeId, OperatorName, ReplicaId, RequestId,
    SecretHash, Serial, Source, Span, TokenId, VclusterId,
};
use crate::registry::{
    AcceptClock, AcceptRollback, ActivateIssuer, AddOperator, AnnounceReplica, AnswerRoll, AuditGap,
    BeginIssuance, Checkpoint, ClaimOverlay, Confirm, Confirmation, CorroborateClock, CreateOperatorKey,
    CreateTenant, CreateToken, CreateVcluster, DeniedSighting, Describe, EndIssuance, Enroll, Forwarded,
    Import, ImportRootList, InitializeDomain, IssueBootstrap, JoinReplica, NewIssuer, NewStepCa, PendingRoll,
    PrepareRoll, PublishIssuer, RaiseAlert, Refusals, Register, RegisterHardware, Renew, RenewOperator,
    RepairClock, ReportSessions, Rewrap, ServerCertificate, SetConfig, SetPolicy, Sighting, Silence,
    SkipForwarding,
};
use serde::{Deserialize, Serialize};

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
    /// One replica, in what is its own alone: the issuer in its memory.
    Replica { id: ReplicaId },
    /// A node by an SVID of another trust domain that this one accepts. It is on no record: the replica has verified it and
    /// mapped it to the node.
    Svid { id: NodeId, spiffe_id: String, serial: Serial },
}

/// As the audit trail names actors. A stranger's enrollment is the enrollment service's doing.
impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Actor::Local { user } => write!(f, "local:{user}"),
            Actor::Operator { name, .. } => write!(f, "user:{name}"),
            Actor::Key { id } => write!(f, "key:{id}"),
            Actor::Node { id, .. } | Actor::Svid { id, .. } => write!(f, "node:{id}"),
            Actor::Stranger => f.write_str("stranger"),
            Actor::Reconciler => f.write_str("system:reconciler"),
            Actor::Replica { id } => write!(f, "replica:{id}"),
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
    /// The first command of every log, under its stored name.
    #[serde(rename = "found")]
    InitializeDomain(Box<InitializeDomain>),
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
        /// With the keys that the operator made. Not of before, when only those went that carry its name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keys_made: bool,
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
        /// Whether its open sessions are ended by it. Without, they stand in its way.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    Revoke {
        node: NodeId,
        reason: String,
    },
    Reinstate {
        node: NodeId,
        /// Whether a machine that is known by its hardware is reinstated only by whoever may register it. Commands of older versions do
        /// not ask for that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        as_registered: bool,
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
        /// Whether the quiet day that ends a suspicion begins now. In commands of older versions it began when the alert
        /// was last raised.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dated: bool,
    },
    PrepareRoll(PrepareRoll),
    CertifyRoll(Box<NewIssuer>),
    ActivateIssuer(ActivateIssuer),
    RetireIssuer {
        issuer: IssuerId,
        /// Others that retire with it: all of them, or none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<IssuerId>,
    },
    RevokeIssuer {
        issuer: IssuerId,
        reason: String,
        #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
        confirm: Confirmation,
        /// Asks, whatever the issuer's state, if a node or an operator uses a certificate of it. Commands of before asked about an
        /// active one only.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks_for_holders: bool,
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
    /// Ends the recovery tokens of a node that is well; its host is given a new one.
    RevokeRecoveryTokens {
        node: NodeId,
    },
    /// A denied certificate came back.
    RecordDeniedCertificate(DeniedSighting),
    /// Start on a directory that is older than its anchor.
    AcceptRollback(AcceptRollback),
    AcceptClock(AcceptClock),
    RepairClock(RepairClock),
    /// Tidying that forgets nothing: as long as the time may turn out to be wrong.
    Expire,
    RegisterHardware(Box<RegisterHardware>),
    CreateVcluster(CreateVcluster),
    /// One in which no node is.
    RemoveVcluster {
        vcluster: VclusterId,
    },
    SetConfig(SetConfig),
    /// Puts a node that is in no vCluster into one.
    Assign {
        node: NodeId,
        vcluster: VclusterId,
    },
    Unassign {
        node: NodeId,
    },
    /// From one vCluster into another, in one step.
    Move {
        node: NodeId,
        vcluster: VclusterId,
    },
    /// The CA in a replica's memory becomes an anchor for node certificates.
    PublishIssuer(Box<PublishIssuer>),
    /// How far the trail is with somebody else's store.
    RecordForwarded(Forwarded),
    /// Lines that it does not get.
    SkipForwarding(SkipForwarding),
    /// Sessions that a host has opened or closed.
    ReportSessions(Box<ReportSessions>),
    /// The next issuers' keys, and the requests for their certificates.
    BeginRoll(PendingRoll),
    /// Their certificates have come back.
    AnswerRoll(Box<AnswerRoll>),
    AbandonRoll,
    RetireRoot {
        root: Fingerprint,
        /// Even if nodes depend on it.
        force: bool,
        #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
        confirm: Confirmation,
        /// The audit line counts operators too. Those of commands of before did not, and stay what they were.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        counts_operators: bool,
    },
    ImportRootList(Box<ImportRootList>),
    /// Mints a token that lets one replica join. The value is drawn at the edge and shown once; only its hash comes here.
    CreateReplicaToken {
        token: TokenId,
        hash: SecretHash,
        ttl: Span,
    },
    JoinReplica(JoinReplica),
    AnnounceReplica(AnnounceReplica),
    RemoveReplica {
        replica: ReplicaId,
        #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
        confirm: Confirmation,
        /// Even if the replicas that are left do not answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        forced: bool,
    },
    /// A host's place in the overlay: its key, which it has proven to have, and where it is reached.
    ClaimOverlay(Box<ClaimOverlay>),
    /// Orders a host to replace its WireGuard key.
    OrderRekey {
        node: NodeId,
        /// Even if the host cannot prove the key on record, because it has lost that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    },
    /// A replica is about to ask an external issuer for a certificate.
    BeginIssuance(Box<BeginIssuance>),
    /// It came to nothing.
    EndIssuance(Box<EndIssuance>),
    /// An external issuer has revoked these.
    RecordDeliveredRevocations {
        serials: Vec<Serial>,
    },
    /// A certificate that hosts without an identity share.
    IssueBootstrap(Box<IssueBootstrap>),
    /// Denies every certificate of that name.
    RevokeBootstrap {
        name: BootstrapName,
    },
    /// Other replicas show the time that a replica's clock shows.
    CorroborateClock(CorroborateClock),
    /// How step-ca is asked from now on, and with which root.
    ChangeStepCa(Box<NewStepCa>),
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
    /// The replica is a member of the cluster.
    ReplicaJoined { replica: ReplicaId },
    /// The operator is removed, and these keys are revoked with it.
    OperatorRemoved { keys: Vec<KeyId> },
}

/// A command's answer.
pub type Answer = Result<Outcome, Rejection>;
