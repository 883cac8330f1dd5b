//! Why a command was not granted: each a fact with its fields. Wire codes and remedies are `api`'s.

use crate::names::{
    AlertId, BootstrapName, Fingerprint, IssuerId, KeyId, NodeId, OperatorName, ProfileName, ReplicaId,
    Serial, Source, Span, TenantId, Timestamp, TokenId, VclusterId,
};
use crate::registry::IssuerState;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    #[error("the token is unknown in this domain")]
    TokenInvalid,
    #[error("the token has expired")]
    TokenExpired,
    #[error("the token has already been used")]
    TokenUsed,
    #[error("the token was revoked")]
    TokenRevoked,
    #[error("there is no token {token}")]
    TokenNotFound { token: TokenId },
    #[error("a token may live at most {max}")]
    TokenTtlTooLong { max: Span },
    #[error("a token must live at least {min}")]
    TokenTtlTooShort { min: Span },
    #[error("the WireGuard key belongs to another node")]
    WireguardKeyInUse,
    #[error("node {node} was revoked or decommissioned")]
    NodeRevoked { node: NodeId },
    #[error("the node id {node} is already in use")]
    NodeIdInUse { node: NodeId },
    #[error("there is no node {node}")]
    NodeNotFound { node: NodeId },
    #[error("node {node} has already confirmed its enrollment")]
    AlreadyConfirmed { node: NodeId },
    #[error("policy does not accept this kind of credential here")]
    AttestorNotAllowed,
    #[error("there is no tenant {tenant}")]
    TenantNotFound { tenant: TenantId },
    #[error("there is already a tenant {tenant}")]
    TenantExists { tenant: TenantId },
    #[error("there is no profile {profile}")]
    ProfileNotFound { profile: ProfileName },
    #[error("keys of kind {kind} are not allowed by the profile")]
    KeyKindNotAllowed { kind: String },
    #[error("there is already an operator {name}")]
    OperatorExists { name: OperatorName },
    #[error("there is no operator {name}")]
    OperatorNotFound { name: OperatorName },
    #[error("there is no API key {key}")]
    OperatorKeyNotFound { key: KeyId },
    #[error("an API key must live between {min} and {max}")]
    OperatorKeyTtl { min: Span, max: Span },
    #[error("there is no policy key {key}")]
    PolicyKeyUnknown { key: String },
    #[error("{key} must be {expected}{}", refused_value(.value))]
    PolicyValueInvalid {
        key: String,
        expected: String,
        /// What was asked for, shortened.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        value: String,
    },
    #[error("not allowed for {actor}{}", needed(.needs.as_deref()))]
    NotAllowed {
        actor: String,
        /// What it takes, where an operator could have it.
        #[serde(default)]
        needs: Option<String>,
    },
    #[error("the credential is no longer valid")]
    Unauthenticated,
    #[error("the overlay has no free address")]
    AddressesExhausted,
    #[error("more enrollments than enroll.max_per_minute allows")]
    RateLimited,
    #[error("the domain is not initialized")]
    #[serde(rename = "not_founded")]
    NotInitialized,
    #[error("the domain is already initialized")]
    #[serde(rename = "already_founded")]
    AlreadyInitialized,
    #[error("another change was committed first")]
    PreparedStale,
    #[error("the request is too old to be applied safely")]
    RequestTooOld,
    #[error("a newer certificate of this node is in use")]
    CertificateSuperseded,
    #[error("the key already has a certificate: a renewal needs a new key")]
    KeyInUse,
    #[error("node {node} has too many unexpired certificates")]
    TooManyCertificates { node: NodeId },
    #[error("node {node} has no certificate")]
    NoCertificate { node: NodeId },
    #[error("there is no alert {alert}")]
    AlertNotFound { alert: AlertId },
    #[error("there is no issuer {issuer}")]
    IssuerNotFound { issuer: IssuerId },
    #[error("issuer {issuer} is prepared already: activate it first")]
    RollUnderway { issuer: IssuerId },
    #[error("a roll is in progress: {what}")]
    RollInProgress {
        what: String,
        /// Whether it is active, and what was before is not retired yet: such a roll cannot be abandoned.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        active: bool,
    },
    #[error("no roll has been prepared")]
    NoRoll,
    #[error("the root is still needed{}", needed_by(.nodes, *.total))]
    RootInUse {
        root: Fingerprint,
        /// Some of those that hold a certificate and have not stored its successor.
        nodes: Vec<String>,
        total: u64,
    },
    #[error("the revocation list {number} is older than the one on record, {known}")]
    ListOlder { number: u64, known: u64 },
    #[error("the revocation list cannot be used: {why}")]
    ListInvalid { why: String },
    #[error("issuer {issuer} is {}", not_prepared(*.state))]
    IssuerNotPrepared {
        issuer: IssuerId,
        /// What it is instead; nothing of one that is prepared and has expired.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<IssuerState>,
    },
    #[error("{current} of {total} nodes have the new trust bundle{}", missing_on(.missing, total.saturating_sub(*.current)))]
    NotAdopted {
        current: u64,
        total: u64,
        /// Some of those that do not have it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing: Vec<String>,
    },
    #[error("{}", in_use(&issuers_that_are(.issuer, .others), *.leaves, &not_renewed(.holders, *.own), *.drained_at, *.state))]
    IssuerInUse {
        issuer: IssuerId,
        /// Other issuers of the same request that are in use; what follows is about all of them.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        others: Box<[IssuerId]>,
        leaves: u64,
        /// The replicas, and some of the nodes and operators, that have not renewed yet.
        #[serde(default)]
        holders: Box<[String]>,
        /// Whether the control plane, of one replica that no other has joined, still presents a certificate of theirs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        own: bool,
        /// When the last superseded certificate ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drained_at: Option<Timestamp>,
        /// What it is, unless it is retiring.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<IssuerState>,
    },
    #[error("the certificate was not issued by a CA that this domain imported")]
    CertificateNotOurs,
    #[error("the certificate has expired")]
    CertificateExpired,
    #[error("serial {serial} is on record already")]
    SerialInUse { serial: Serial },
    #[error("the token is not for node {node}")]
    NotYourNode { node: NodeId },
    #[error("a newer token has replaced this one")]
    TokenSuperseded,
    #[error("node {node} is in quarantine")]
    NodeQuarantined { node: NodeId },
    #[error("the repair bundle was changed after it was issued")]
    RepairBundleMismatch,
    #[error("node {node} needs no recovery: it is active and was in contact a short while ago")]
    RecoveryNotNeeded { node: NodeId },
    #[error("operator {name} has more certificates on record than an operator has reason to ask for")]
    TooManyOperatorCertificates { name: OperatorName },
    #[error("within must be {min} to {max}")]
    DrainSpan { min: Span, max: Span },
    #[error("node {node} is active, and connected since {since} from {from}")]
    NodeConnected { node: NodeId, since: Timestamp, from: Source },
    #[error("{consequence}{}", nodes_affected(*.affected))]
    ConfirmationNeeded {
        /// The id or key that has to be repeated.
        subject: String,
        consequence: String,
        affected: u64,
    },
    #[error("the clock says {wall}, but the time is already {last}")]
    ClockBehind { wall: Timestamp, last: Timestamp },
    #[error("no node is registered with this hardware")]
    NodeNotEnrolled,
    #[error("node {node} is active already")]
    AlreadyActive { node: NodeId },
    #[error("node {node} is registered already{}", if *.same { " with this hardware" } else { "" })]
    NodeAlreadyEnrolled {
        node: NodeId,
        /// Whether it is registered with the same hardware, so that nothing was left undone.
        same: bool,
    },
    #[error("the hardware is registered as another node{}", .node.as_ref().map(|node| format!(": {node}")).unwrap_or_default())]
    HardwareIdentityConflict {
        /// None where the caller may not know.
        node: Option<NodeId>,
    },
    #[error(
        "the tenant has as many machines that are known by their hardware as its platform-admins may register: {max}"
    )]
    HardwareQuota { max: u32 },
    #[error("there is no vCluster {vcluster}")]
    VclusterNotFound { vcluster: VclusterId },
    #[error("there is already a vCluster {vcluster}")]
    VclusterExists { vcluster: VclusterId },
    #[error("vCluster {vcluster} has nodes in it: {nodes}")]
    VclusterInUse { vcluster: VclusterId, nodes: u64 },
    #[error("node {node} is in vCluster {vcluster}")]
    AlreadyAssigned { node: NodeId, vcluster: VclusterId },
    #[error("node {node} is in no vCluster")]
    NotAssigned { node: NodeId },
    #[error("a document has at most {max} bytes")]
    DocumentTooLarge { max: usize },
    #[error("only the role operator can be narrowed to vClusters")]
    NarrowedRole,
    #[error("the issuers of this domain are not ephemeral")]
    NoEphemeralIssuers,
    #[error("the issuer cannot be taken: {why}")]
    IssuerInvalid { why: String },
    #[error("{max} ephemeral issuers have certificates that have not expired")]
    TooManyIssuers { max: usize },
    #[error("{}", open_sessions(.node, *.sessions))]
    ActiveSessions { node: NodeId, sessions: u64 },
    #[error("there is no replica {replica}")]
    ReplicaNotFound { replica: ReplicaId },
    #[error("replica {replica} was removed from the cluster")]
    ReplicaRemoved { replica: ReplicaId },
    #[error("another replica of the cluster is reached at {peer}")]
    PeerAddressInUse { peer: String },
    #[error("a cluster has at most {max} replicas")]
    TooManyReplicas { max: usize },
    #[error("{max} tokens for replicas are neither used nor expired")]
    TooManyReplicaTokens { max: usize },
    #[error("{max} certificates are being asked of the issuer of nodes")]
    TooManyIssuances { max: usize },
    #[error("without this replica the cluster would have no majority")]
    WouldLoseMajority,
    #[error("the underlay endpoint cannot be used: {why}")]
    EndpointInvalid { why: String },
    #[error("node {node} has another WireGuard key on record, and no order to replace it")]
    RekeyNotOrdered { node: NodeId },
    #[error(
        "node {node} claims another WireGuard key without a proof of the one on record; if the host has lost that: `enlist node rotate --overlay {node} --replace`"
    )]
    FormerKeyUnproven { node: NodeId },
    #[error("node {node} has no WireGuard key on record")]
    NoOverlay { node: NodeId },
    #[error("node {node} is not registered")]
    NodeNotRegistered { node: NodeId },
    #[error("policy does not let a host that comes by an SVID have a certificate of this domain")]
    SvidRenewalOff,
    #[error("there is no bootstrap identity {name}")]
    BootstrapNotFound { name: BootstrapName },
    #[error("a bootstrap identity must live between {min} and {max}")]
    BootstrapTtl { min: Span, max: Span },
    #[error("{max} certificates of bootstrap identities have not expired")]
    TooManyBootstraps { max: usize },
    #[error("policy bootstrap.read is {read}, which does not allow this")]
    BootstrapReadNotAllowed { read: String },
    #[error("node {node} would have more than 32 labels: remove some")]
    TooManyLabels { node: NodeId },
}

/// As it was given, so that what a shell made of it can be seen.
fn refused_value(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(", not {value:?}") }
}

/// Where no node is affected, nothing is said of nodes.
fn nodes_affected(nodes: u64) -> String {
    if nodes == 0 { String::new() } else { format!("; nodes affected: {nodes}") }
}

fn not_prepared(state: Option<IssuerState>) -> String {
    state.map_or("not prepared".to_owned(), |state| format!("{}, not prepared", state.as_str()))
}

fn open_sessions(node: &NodeId, sessions: u64) -> String {
    match sessions {
        1 => format!("1 session is open on node {node}"),
        many => format!("{many} sessions are open on node {node}"),
    }
}

fn needed(needs: Option<&str>) -> String {
    needs.map(|needs| format!(": this requires {needs}")).unwrap_or_default()
}

/// Who has not stored the next root, or that there is none.
fn needed_by(nodes: &[String], total: u64) -> String {
    if nodes.is_empty() {
        return ": the issuers that sign are below it".to_owned();
    }
    let nodes = first_of(nodes, total);
    format!(" by nodes that hold a valid certificate and have not stored the new root: {nodes}")
}

/// Who has not stored the newest trust bundle.
fn missing_on(nodes: &[String], total: u64) -> String {
    if nodes.is_empty() { String::new() } else { format!("; it is missing on {}", first_of(nodes, total)) }
}

/// Names, and how many there are beside them.
fn first_of(names: &[String], total: u64) -> String {
    let more = total.saturating_sub(names.len() as u64);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", names.join(", "))
}

fn issuers_that_are(issuer: &IssuerId, others: &[IssuerId]) -> String {
    match others.split_last() {
        None => format!("issuer {issuer} is"),
        Some((last, others)) => {
            let others: String = others.iter().map(|other| format!(", {other}")).collect();
            format!("issuers {issuer}{others} and {last} are")
        }
    }
}

fn not_renewed(holders: &[String], own: bool) -> Vec<&str> {
    let own = own.then_some("the control plane itself");
    holders.iter().map(String::as_str).chain(own).collect()
}

/// Who has to renew, and what only takes time.
fn in_use(
    which: &str,
    leaves: u64,
    holders: &[&str],
    drained_at: Option<Timestamp>,
    state: Option<IssuerState>,
) -> String {
    if let Some(state) = state {
        return format!("{which} {}, not retiring", state.as_str());
    }
    let waiting = match (holders, drained_at) {
        ([], None) => String::new(),
        ([], Some(at)) => {
            format!("; all their holders have renewed, and the last superseded certificate ends at {at}")
        }
        (holders, None) => format!("; these have not renewed yet: {}", holders.join(", ")),
        (holders, Some(at)) => format!(
            "; these have not renewed yet: {}; the last superseded certificate ends at {at}",
            holders.join(", ")
        ),
    };
    let whose = if which.starts_with("issuers ") { "their" } else { "its" };
    let are = if leaves == 1 { "is" } else { "are" };
    format!("{which} in use: {leaves} of {whose} certificates {are} valid{waiting}")
}

impl Rejection {
    /// The stable word for it: error codes on the wire, reasons in the audit trail.
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::TokenInvalid => "token_invalid",
            Rejection::TokenExpired => "token_expired",
            Rejection::TokenUsed => "token_used",
            Rejection::TokenRevoked => "token_revoked",
            Rejection::TokenNotFound { .. } => "token_not_found",
            Rejection::TokenTtlTooLong { .. } => "token_ttl_too_long",
            Rejection::TokenTtlTooShort { .. } => "token_ttl_too_short",
            Rejection::WireguardKeyInUse => "wireguard_key_in_use",
            Rejection::NodeRevoked { .. } => "node_revoked",
            Rejection::NodeIdInUse { .. } => "node_id_in_use",
            Rejection::NodeNotFound { .. } => "node_not_found",
            Rejection::AlreadyConfirmed { .. } => "already_confirmed",
            Rejection::AttestorNotAllowed => "attestor_not_allowed",
            Rejection::TenantNotFound { .. } => "tenant_not_found",
            Rejection::TenantExists { .. } => "tenant_exists",
            Rejection::ProfileNotFound { .. } => "profile_not_found",
            Rejection::KeyKindNotAllowed { .. } => "key_kind_not_allowed",
            Rejection::OperatorExists { .. } => "operator_exists",
            Rejection::OperatorNotFound { .. } => "operator_not_found",
            Rejection::OperatorKeyNotFound { .. } => "operator_key_not_found",
            Rejection::OperatorKeyTtl { .. } => "operator_key_ttl_invalid",
            Rejection::PolicyKeyUnknown { .. } => "policy_key_unknown",
            Rejection::PolicyValueInvalid { .. } => "policy_value_invalid",
            Rejection::NotAllowed { .. } => "forbidden",
            Rejection::Unauthenticated => "unauthenticated",
            Rejection::AddressesExhausted => "addresses_exhausted",
            Rejection::RateLimited => "rate_limited",
            Rejection::NotInitialized => "not_founded",
            Rejection::AlreadyInitialized => "already_founded",
            Rejection::PreparedStale => "try_again",
            Rejection::RequestTooOld => "request_too_old",
            Rejection::CertificateSuperseded => "certificate_superseded",
            Rejection::KeyInUse => "key_in_use",
            Rejection::DrainSpan { .. } | Rejection::TooManyLabels { .. } => "bad_request",
            Rejection::TooManyCertificates { .. } | Rejection::TooManyOperatorCertificates { .. } => {
                "too_many_certificates"
            }
            Rejection::NoCertificate { .. } => "no_certificate",
            Rejection::AlertNotFound { .. } => "alert_not_found",
            Rejection::IssuerNotFound { .. } => "issuer_not_found",
            Rejection::RollUnderway { .. } | Rejection::RollInProgress { .. } => "roll_in_progress",
            Rejection::RootInUse { .. } => "root_in_use",
            Rejection::ListOlder { .. } => "list_older",
            Rejection::ListInvalid { .. } => "list_invalid",
            Rejection::NoRoll => "no_roll",
            Rejection::IssuerNotPrepared { .. } => "issuer_not_prepared",
            Rejection::NotAdopted { .. } => "not_adopted",
            Rejection::IssuerInUse { .. } => "issuer_in_use",
            Rejection::CertificateNotOurs => "certificate_not_ours",
            Rejection::CertificateExpired => "certificate_expired",
            Rejection::SerialInUse { .. } => "serial_in_use",
            Rejection::NotYourNode { .. } => "not_your_node",
            Rejection::TokenSuperseded => "token_superseded",
            Rejection::NodeQuarantined { .. } => "node_quarantined",
            Rejection::RepairBundleMismatch => "repair_bundle_mismatch",
            Rejection::RecoveryNotNeeded { .. } => "recovery_not_needed",
            Rejection::NodeConnected { .. } => "node_connected",
            Rejection::ConfirmationNeeded { .. } => "confirmation_needed",
            Rejection::ClockBehind { .. } => "clock_behind",
            Rejection::NodeNotEnrolled => "node_not_enrolled",
            Rejection::AlreadyActive { .. } => "already_active",
            Rejection::NodeAlreadyEnrolled { .. } => "node_already_enrolled",
            Rejection::HardwareIdentityConflict { .. } => "hardware_identity_conflict",
            Rejection::HardwareQuota { .. } => "hardware_quota",
            Rejection::VclusterNotFound { .. } => "vcluster_not_found",
            Rejection::VclusterExists { .. } => "vcluster_exists",
            Rejection::VclusterInUse { .. } => "vcluster_in_use",
            Rejection::AlreadyAssigned { .. } => "already_assigned",
            Rejection::NotAssigned { .. } => "not_assigned",
            Rejection::DocumentTooLarge { .. } => "too_large",
            Rejection::NarrowedRole => "bad_request",
            Rejection::NoEphemeralIssuers => "no_ephemeral_issuers",
            Rejection::IssuerInvalid { .. } => "issuer_invalid",
            Rejection::TooManyIssuers { .. } => "too_many_issuers",
            Rejection::ActiveSessions { .. } => "active_sessions",
            Rejection::ReplicaNotFound { .. } => "replica_not_found",
            Rejection::ReplicaRemoved { .. } => "replica_removed",
            Rejection::PeerAddressInUse { .. } => "peer_address_in_use",
            Rejection::TooManyReplicas { .. } => "too_many_replicas",
            Rejection::TooManyReplicaTokens { .. } => "too_many_tokens",
            Rejection::TooManyIssuances { .. } => "overloaded",
            Rejection::WouldLoseMajority => "would_lose_majority",
            Rejection::EndpointInvalid { .. } => "endpoint_invalid",
            Rejection::RekeyNotOrdered { .. } => "rekey_not_ordered",
            Rejection::FormerKeyUnproven { .. } => "wireguard_key_unproven",
            Rejection::NoOverlay { .. } => "no_overlay",
            Rejection::NodeNotRegistered { .. } => "node_not_registered",
            Rejection::SvidRenewalOff => "svid_renewal_off",
            Rejection::BootstrapNotFound { .. } => "bootstrap_not_found",
            Rejection::BootstrapTtl { .. } => "bootstrap_ttl_invalid",
            Rejection::TooManyBootstraps { .. } => "too_many_bootstraps",
            Rejection::BootstrapReadNotAllowed { .. } => "bootstrap_read_not_allowed",
        }
    }
}
