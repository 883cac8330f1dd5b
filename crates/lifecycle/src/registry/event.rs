//! What happened: the only thing that changes state, and the lines of the audit trail.

use super::{
    ActivateIssuer, AlertKind, AuditGap, Checkpoint, Found, FoundIssuer, Hardware, Import, Issued, Operator,
    OperatorKey, PrepareRoll, RecoveryToken, Refusals, Rewrap, ServerCertificate, Sighting, Tenant, Token,
    Underlay, Wireguard,
};
use crate::host::Class;
use crate::names::{
    AlertId, IdempotencyHash, IssuerId, KeyId, Label, Labels, NodeId, OperatorName, ProfileName, RequestId,
    Serial, TenantId, Timestamp, Title, TokenId,
};
use serde::Serialize;
use std::net::Ipv6Addr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    DomainFounded(Box<Found>),
    TokenCreated(Token),
    TokenRevoked {
        token: TokenId,
    },
    TokenExpired {
        token: TokenId,
    },
    /// A live token met a refusal that ends its life.
    TokenBurned {
        token: TokenId,
        reason: &'static str,
    },
    NodeEnrolled(Box<NodeEnrolled>),
    NodeConfirmed {
        node: NodeId,
        serial: Serial,
    },
    NodeActive {
        node: NodeId,
    },
    NodeInactive {
        node: NodeId,
        last_seen: Option<Timestamp>,
    },
    /// Heard of, nothing more: an observation of liveness, which is not audited.
    NodeSeen(Sighting),
    /// A certificate was used for the first time; what it takes over from is told by others.
    CertificateSeen {
        serial: Serial,
    },
    CertificateRenewed {
        node: NodeId,
        /// Asked for with this one.
        with: Serial,
        certificate: Box<Issued>,
        agent_version: Option<Label>,
        /// Issued before and never seen: its answer was lost.
        denied: Vec<Serial>,
    },
    CertificateSuperseded {
        node: NodeId,
        serial: Serial,
        by: Serial,
        until: Timestamp,
    },
    RotationOrdered {
        node: NodeId,
        order: RequestId,
    },
    RotationExpired {
        node: NodeId,
        order: RequestId,
    },
    NodeDraining {
        node: NodeId,
        by: Option<Timestamp>,
    },
    NodeUndrained {
        node: NodeId,
    },
    NodeQuarantined {
        node: NodeId,
        reason: String,
    },
    NodeReleased {
        node: NodeId,
    },
    NodeDecommissioned {
        node: NodeId,
        denied: Vec<Serial>,
    },
    NodeRevoked {
        node: NodeId,
        by: String,
        reason: String,
        denied: Vec<Serial>,
    },
    NodeReinstated {
        node: NodeId,
        generation: u32,
    },
    RollPrepared(PrepareRoll),
    RollCertified(Box<FoundIssuer>),
    IssuerActivated {
        activate: ActivateIssuer,
        /// What signed until now.
        before: Option<IssuerId>,
    },
    IssuerRetired {
        issuer: IssuerId,
    },
    IssuerRevoked {
        issuer: IssuerId,
        reason: String,
        /// How many certificates that were good are denied by it.
        leaves: u64,
    },
    Rewrapped(Rewrap),
    AlertAcknowledged {
        alert: AlertId,
        kind: AlertKind,
        node: Option<NodeId>,
    },
    AlertRaised {
        alert: AlertId,
        kind: AlertKind,
        node: Option<NodeId>,
        detail: String,
    },
    AlertCleared {
        alert: AlertId,
        kind: AlertKind,
        node: Option<NodeId>,
    },
    TenantCreated(Tenant),
    OperatorAdded {
        operator: Operator,
        certificate: Option<Issued>,
    },
    OperatorRemoved {
        name: OperatorName,
    },
    OperatorKeyCreated(OperatorKey),
    OperatorKeyRevoked {
        key: KeyId,
        name: OperatorName,
    },
    PolicyChanged {
        key: String,
        old: Option<String>,
        new: String,
    },
    ServerCertificateIssued(ServerCertificate),
    EnrollmentRefused(Refusals),
    CheckpointRecorded(Checkpoint),
    AuditGapFound(AuditGap),
    Tidied {
        tokens: Vec<TokenId>,
        certificates: Vec<Serial>,
        keys: Vec<KeyId>,
        issuers: Vec<IssuerId>,
    },
    NodeRegistered(Box<NodeRegistered>),
    NodeDescribed {
        node: NodeId,
        name: Option<Title>,
        labels: Labels,
    },
    NodeImported(Box<NodeImported>),
    RecoveryTokenRotated {
        node: NodeId,
        token: RecoveryToken,
    },
    RecoveryTokenKept {
        node: NodeId,
        token: TokenId,
    },
    RecoveryRequested {
        node: NodeId,
        token: TokenId,
        class: Option<Class>,
        repair: bool,
    },
    RecoveryIssued(Box<RecoveryIssued>),
    /// The node was seen with the certificate that it recovered with.
    RecoveryResolved {
        node: NodeId,
        serial: Serial,
    },
    RepairBundleIssued {
        node: NodeId,
        token: RecoveryToken,
        profile: Label,
        /// Whether the node's quarantine is over when it has come back with it.
        ends_quarantine: bool,
    },
    OperatorRenewed {
        name: OperatorName,
        /// Asked for with this one.
        with: Serial,
        certificate: Box<Issued>,
        /// Issued before and never used: its answer was lost.
        denied: Option<Serial>,
    },
    /// A renewed certificate was used for the first time: the one before is denied.
    OperatorCertificateReplaced {
        name: OperatorName,
        serial: Serial,
        by: Serial,
    },
}

/// A recovery token became a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryIssued {
    pub node: NodeId,
    pub token: TokenId,
    pub certificate: Issued,
    pub agent_version: Option<Label>,
    /// Everything that the node had before.
    pub denied: Vec<Serial>,
}

/// A certificate made elsewhere became an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeImported {
    pub import: Import,
    pub tenant: TenantId,
    pub profile: ProfileName,
    /// Until when it is accepted: its own end, or its issuer's if that is earlier.
    pub not_after: Timestamp,
    pub renew_at: Timestamp,
}

/// A token became an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEnrolled {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: ProfileName,
    pub token: TokenId,
    pub idempotency: Option<IdempotencyHash>,
    pub certificate: Issued,
    pub wireguard: Option<Wireguard>,
    pub address: Option<Ipv6Addr>,
    pub underlay: Option<Underlay>,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
    pub name: Option<Title>,
    /// Older serials of the node, denied by this enrollment.
    pub denied: Vec<Serial>,
}

/// A node is known, and has no certificate yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRegistered {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: ProfileName,
    /// From now on for this node alone.
    pub token: Option<TokenId>,
    pub name: Option<Title>,
    pub hostname: Option<Label>,
    pub plane: Option<Label>,
}

/// A value in an audit line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Field {
    Text(String),
    Number(u64),
    Flag(bool),
    Texts(Vec<String>),
    Null,
}

impl Field {
    fn text(value: impl ToString) -> Self {
        Field::Text(value.to_string())
    }

    fn maybe(value: Option<impl ToString>) -> Self {
        value.map_or(Field::Null, |value| Field::text(value))
    }

    fn texts<T: ToString>(values: &[T]) -> Self {
        Field::Texts(values.iter().map(ToString::to_string).collect())
    }
}

impl Event {
    /// The table of audit event names.
    pub fn name(&self) -> &'static str {
        match self {
            Event::DomainFounded(_) => "domain.founded",
            Event::TokenCreated(_) => "enrollment_token.created",
            Event::TokenRevoked { .. } => "enrollment_token.revoked",
            Event::TokenExpired { .. } => "enrollment_token.expired",
            Event::TokenBurned { .. } => "enrollment.refused",
            Event::EnrollmentRefused(refusals) if refusals.recovery.is_some() => "recovery.refused",
            Event::EnrollmentRefused(_) => "enrollment.refused",
            Event::NodeEnrolled(_) => "host.enrolled",
            Event::NodeConfirmed { .. } => "host.confirmed",
            Event::NodeActive { .. } => "host.active",
            Event::NodeInactive { .. } => "host.inactive",
            Event::NodeSeen(_) => "host.seen",
            Event::CertificateSeen { .. } => "certificate.seen",
            Event::CertificateRenewed { .. } => "certificate.renewed",
            Event::CertificateSuperseded { .. } => "certificate.superseded",
            Event::RotationOrdered { .. } => "certificate.rotation_ordered",
            Event::RotationExpired { .. } => "certificate.rotation_expired",
            Event::NodeDraining { .. } => "host.draining",
            Event::NodeUndrained { .. } => "host.undrained",
            Event::NodeQuarantined { .. } => "host.quarantined",
            Event::NodeReleased { .. } => "host.released",
            Event::NodeDecommissioned { .. } => "host.decommissioned",
            Event::NodeRevoked { .. } => "host.revoked",
            Event::NodeReinstated { .. } => "host.reinstated",
            Event::RollPrepared(_) => "ca.requested",
            Event::RollCertified(_) => "ca.prepared",
            Event::IssuerActivated { .. } => "ca.activated",
            Event::IssuerRetired { .. } => "ca.retired",
            Event::IssuerRevoked { .. } => "ca.revoked",
            Event::Rewrapped(_) => "ca.rewrapped",
            Event::AlertAcknowledged { .. } => "alert.acknowledged",
            Event::AlertRaised { .. } => "alert.raised",
            Event::AlertCleared { .. } => "alert.cleared",
            Event::TenantCreated(_) => "tenant.created",
            Event::OperatorAdded { .. } => "operator.added",
            Event::OperatorRemoved { .. } => "operator.removed",
            Event::OperatorKeyCreated(_) => "operator_key.created",
            Event::OperatorKeyRevoked { .. } => "operator_key.revoked",
            Event::PolicyChanged { .. } => "policy.changed",
            Event::ServerCertificateIssued(_) => "server_certificate.issued",
            Event::CheckpointRecorded(_) => "audit.checkpoint",
            Event::AuditGapFound(_) => "audit.gap",
            Event::Tidied { .. } => "registry.tidied",
            Event::NodeRegistered(_) => "host.registered",
            Event::NodeDescribed { .. } => "host.described",
            Event::NodeImported(_) => "host.imported",
            Event::RecoveryTokenRotated { .. } => "recovery_token.rotated",
            Event::RecoveryTokenKept { .. } => "recovery_token.kept",
            Event::RecoveryRequested { .. } => "recovery.requested",
            Event::RecoveryIssued(_) => "recovery.issued",
            Event::RecoveryResolved { .. } => "recovery.resolved",
            Event::RepairBundleIssued { .. } => "repair_bundle.issued",
            Event::OperatorRenewed { .. } => "operator.renewed",
            Event::OperatorCertificateReplaced { .. } => "operator.certificate_replaced",
        }
    }

    /// Whether it is a line of the audit trail. Observations of liveness are not.
    pub fn is_audited(&self) -> bool {
        !matches!(self, Event::NodeSeen(_) | Event::CertificateSeen { .. })
    }

    /// What the audit line says beyond who, when and from where. Public data only: no secret reaches an event.
    pub fn fields(&self) -> Vec<(&'static str, Field)> {
        match self {
            Event::DomainFounded(found) => vec![
                ("domain", Field::text(&found.domain)),
                ("cluster_id", Field::text(found.cluster)),
                ("root_fingerprint", Field::text(found.root_fingerprint.labelled())),
                ("issuer", Field::text(&found.issuer.id)),
                ("issuer_fingerprint", Field::text(found.issuer.fingerprint.labelled())),
            ],
            Event::TokenCreated(token) => [
                ("token_id", Field::text(token.id)),
                ("created_by", Field::text(&token.created_by)),
                ("expires_at", Field::text(token.expires_at)),
                ("tenant", Field::text(&token.tenant)),
                ("pinned_node", Field::maybe(token.node.as_ref())),
                ("profile", Field::maybe(token.profile.as_ref())),
            ]
            .into_iter()
            // Lines of old logs are made again from their commands: what came later is there only if it is said.
            .chain(token.name.as_ref().map(|name| ("name", Field::text(name))))
            .collect(),
            Event::TokenRevoked { token } | Event::TokenExpired { token } => {
                vec![("token_id", Field::text(token))]
            }
            Event::TokenBurned { token, reason } => vec![
                ("reason", Field::text(reason)),
                ("count", Field::Number(1)),
                ("samples", Field::Texts(Vec::new())),
                ("token_id", Field::text(token)),
                ("token_burned", Field::Flag(true)),
            ],
            Event::NodeEnrolled(enrolled) => enrolled.fields(),
            Event::NodeConfirmed { node, serial } => {
                host(node).into_iter().chain([("cert_serial", Field::text(serial))]).collect()
            }
            Event::NodeActive { node } => host(node).to_vec(),
            Event::AlertRaised { alert, kind, node, detail } => vec![
                ("alert_id", Field::text(alert)),
                ("kind", Field::text(kind)),
                ("node_id", Field::maybe(node.as_ref())),
                ("detail", Field::text(detail)),
            ],
            Event::NodeInactive { node, last_seen } => {
                host(node).into_iter().chain([("last_seen", Field::maybe(*last_seen))]).collect()
            }
            Event::NodeSeen(_) => Vec::new(),
            Event::CertificateSeen { serial } => vec![("cert_serial", Field::text(serial))],
            Event::CertificateRenewed { node, with, certificate, denied, .. } => vec![
                ("node_id", Field::text(node)),
                ("cert_serial", Field::text(&certificate.serial)),
                ("mtls_cert_fingerprint", Field::text(certificate.fingerprint.labelled())),
                ("issuer", Field::text(&certificate.issuer)),
                ("not_after", Field::text(certificate.not_after)),
                ("with_serial", Field::text(with)),
                ("denied_serials", Field::texts(denied)),
            ],
            Event::CertificateSuperseded { node, serial, by, until } => vec![
                ("node_id", Field::text(node)),
                ("cert_serial", Field::text(serial)),
                ("superseded_by", Field::text(by)),
                ("until", Field::text(until)),
            ],
            Event::RotationOrdered { node, order } | Event::RotationExpired { node, order } => {
                vec![("node_id", Field::text(node)), ("order_id", Field::text(order))]
            }
            Event::NodeDraining { node, by } => {
                host(node).into_iter().chain([("drain_by", Field::maybe(*by))]).collect()
            }
            Event::NodeUndrained { node } | Event::NodeReleased { node } => host(node).to_vec(),
            Event::NodeQuarantined { node, reason } => {
                host(node).into_iter().chain([("reason", Field::text(reason))]).collect()
            }
            Event::NodeDecommissioned { node, denied } => {
                host(node).into_iter().chain([("denied_serials", Field::texts(denied))]).collect()
            }
            Event::NodeRevoked { node, by, reason, denied } => host(node)
                .into_iter()
                .chain([
                    ("revoked_by", Field::text(by)),
                    ("reason", Field::text(reason)),
                    ("denied_serials", Field::texts(denied)),
                ])
                .collect(),
            Event::NodeReinstated { node, generation } => host(node)
                .into_iter()
                .chain([("generation", Field::Number(u64::from(*generation)))])
                .collect(),
            Event::RollPrepared(roll) => vec![("key_hash", Field::text(roll.key.hex()))],
            Event::RollCertified(issuer) => vec![
                ("issuer", Field::text(&issuer.id)),
                ("issuer_fingerprint", Field::text(issuer.fingerprint.labelled())),
                ("subject", Field::text(&issuer.subject)),
                ("not_after", Field::text(issuer.not_after)),
            ],
            Event::IssuerActivated { activate, before } => vec![
                ("issuer", Field::text(&activate.issuer)),
                ("before", Field::maybe(before.as_ref())),
                ("forced", Field::Flag(activate.force)),
            ],
            Event::IssuerRetired { issuer } => vec![("issuer", Field::text(issuer))],
            Event::IssuerRevoked { issuer, reason, leaves } => vec![
                ("issuer", Field::text(issuer)),
                ("reason", Field::text(reason)),
                ("leaves", Field::Number(*leaves)),
            ],
            Event::Rewrapped(rewrap) => {
                vec![("issuers", Field::texts(&rewrap.issuers.iter().map(|(id, _)| id).collect::<Vec<_>>()))]
            }
            Event::AlertAcknowledged { alert, kind, node } | Event::AlertCleared { alert, kind, node } => {
                vec![
                    ("alert_id", Field::text(alert)),
                    ("kind", Field::text(kind)),
                    ("node_id", Field::maybe(node.as_ref())),
                ]
            }
            Event::TenantCreated(tenant) => vec![("tenant", Field::text(&tenant.name))],
            Event::OperatorAdded { operator, .. } => vec![
                ("operator", Field::text(&operator.name)),
                ("role", Field::text(operator.role.as_str())),
                ("tenants", tenants(&operator.tenants)),
                ("cert_serial", Field::maybe(operator.serial.as_ref())),
            ],
            Event::OperatorRemoved { name } => vec![("operator", Field::text(name))],
            Event::OperatorRenewed { name, with, certificate, denied } => vec![
                ("operator", Field::text(name)),
                ("cert_serial", Field::text(&certificate.serial)),
                ("mtls_cert_fingerprint", Field::text(certificate.fingerprint.labelled())),
                ("issuer", Field::text(&certificate.issuer)),
                ("not_after", Field::text(certificate.not_after)),
                ("with_serial", Field::text(with)),
                ("denied_serials", Field::texts(denied.as_slice())),
            ],
            Event::OperatorCertificateReplaced { name, serial, by } => vec![
                ("operator", Field::text(name)),
                ("cert_serial", Field::text(serial)),
                ("replaced_by", Field::text(by)),
            ],
            Event::OperatorKeyCreated(key) => vec![
                ("key_id", Field::text(key.id)),
                ("operator", Field::text(&key.name)),
                ("role", Field::text(key.role.as_str())),
                ("tenants", tenants(&key.tenants)),
                ("expires_at", Field::text(key.expires_at)),
            ],
            Event::OperatorKeyRevoked { key, name } => {
                vec![("key_id", Field::text(key)), ("operator", Field::text(name))]
            }
            Event::PolicyChanged { key, old, new } => {
                vec![
                    ("key", Field::text(key)),
                    ("old", Field::maybe(old.as_ref())),
                    ("new", Field::text(new)),
                ]
            }
            Event::ServerCertificateIssued(certificate) => vec![
                ("cert_serial", Field::text(&certificate.serial)),
                ("cert_fingerprint", Field::text(certificate.fingerprint.labelled())),
                ("issuer", Field::text(&certificate.issuer)),
                ("not_after", Field::text(certificate.not_after)),
            ],
            Event::EnrollmentRefused(refusals) => refusals
                .recovery
                .iter()
                .map(|about| ("node_id", Field::maybe(about.node.as_ref())))
                .chain([
                    ("reason", Field::text(&refusals.reason)),
                    ("network", Field::maybe(refusals.network)),
                    ("count", Field::Number(refusals.count)),
                    ("samples", Field::texts(&refusals.samples)),
                ])
                .collect(),
            Event::CheckpointRecorded(checkpoint) => vec![
                ("checkpoint_seq", Field::Number(checkpoint.seq)),
                ("checkpoint_head", Field::text(checkpoint.head.hex())),
                ("signature", Field::text(crate::names::hex(&checkpoint.signature))),
            ],
            Event::AuditGapFound(gap) => vec![
                ("from", Field::Number(gap.from)),
                ("to", Field::Number(gap.to)),
                ("refilled", Field::Flag(gap.refilled)),
            ],
            Event::Tidied { tokens, certificates, keys, issuers } => vec![
                ("tokens", Field::Number(tokens.len() as u64)),
                ("certificates", Field::Number(certificates.len() as u64)),
                ("keys", Field::Number(keys.len() as u64)),
                ("issuers", Field::texts(issuers)),
            ],
            Event::NodeRegistered(registered) => registered.fields(),
            Event::NodeDescribed { node, name, labels } => host(node)
                .into_iter()
                .chain([
                    ("name", Field::maybe(name.as_ref())),
                    (
                        "labels",
                        Field::Texts(labels.pairs().iter().map(|(k, v)| format!("{k}={v}")).collect()),
                    ),
                ])
                .collect(),
            Event::NodeImported(imported) => imported.fields(),
            Event::RecoveryTokenRotated { node, token } => vec![
                ("node_id", Field::text(node)),
                ("recovery_token_id", Field::text(token.id)),
                ("expires_at", Field::text(token.expires_at)),
            ],
            Event::RecoveryTokenKept { node, token } => {
                vec![("node_id", Field::text(node)), ("recovery_token_id", Field::text(token))]
            }
            Event::RecoveryRequested { node, token, class, repair } => vec![
                ("node_id", Field::text(node)),
                ("recovery_token_id", Field::text(token)),
                ("class", Field::maybe(*class)),
                ("repair", Field::Flag(*repair)),
            ],
            Event::RecoveryIssued(issued) => issued.fields(),
            Event::RecoveryResolved { node, serial } => {
                vec![("node_id", Field::text(node)), ("cert_serial", Field::text(serial))]
            }
            Event::RepairBundleIssued { node, token, profile, .. } => vec![
                ("node_id", Field::text(node)),
                ("recovery_token_id", Field::text(token.id)),
                ("expires_at", Field::text(token.expires_at)),
                ("recovery_profile_id", Field::text(profile)),
            ],
        }
    }
}

impl RecoveryIssued {
    fn fields(&self) -> Vec<(&'static str, Field)> {
        vec![
            ("node_id", Field::text(&self.node)),
            ("recovery_token_id", Field::text(self.token)),
            ("cert_serial", Field::text(&self.certificate.serial)),
            ("mtls_cert_fingerprint", Field::text(self.certificate.fingerprint.labelled())),
            ("issuer", Field::text(&self.certificate.issuer)),
            ("not_after", Field::text(self.certificate.not_after)),
            ("denied_serials", Field::texts(&self.denied)),
        ]
    }
}

impl NodeImported {
    fn fields(&self) -> Vec<(&'static str, Field)> {
        let import = &self.import;
        let mut fields = host(&import.node).to_vec();
        fields.extend([
            ("tenant", Field::text(&self.tenant)),
            ("profile", Field::text(&self.profile)),
            ("mtls_cert_fingerprint", Field::text(import.fingerprint.labelled())),
            ("cert_serial", Field::text(&import.serial)),
            ("issuer", Field::text(&import.issuer)),
            ("not_after", Field::text(self.not_after)),
        ]);
        fields
    }
}

impl NodeEnrolled {
    fn fields(&self) -> Vec<(&'static str, Field)> {
        let mut fields = host(&self.node).to_vec();
        fields.extend([
            ("token_id", Field::text(self.token)),
            ("enrolled_by", Field::text("system:enrollment-service")),
            ("tenant", Field::text(&self.tenant)),
            ("profile", Field::text(&self.profile)),
            ("underlay_endpoint", Field::maybe(self.underlay)),
            (
                "wireguard_pubkey_fingerprint",
                Field::maybe(self.wireguard.map(|wg| wg.fingerprint.labelled())),
            ),
            ("mtls_cert_fingerprint", Field::text(self.certificate.fingerprint.labelled())),
            ("cert_serial", Field::text(&self.certificate.serial)),
            ("spiffe_id", Field::text(&self.certificate.subject)),
            ("not_after", Field::text(self.certificate.not_after)),
            ("denied_serials", Field::texts(&self.denied)),
        ]);
        fields
    }
}

impl NodeRegistered {
    fn fields(&self) -> Vec<(&'static str, Field)> {
        let mut fields = host(&self.node).to_vec();
        fields.extend([
            ("tenant", Field::text(&self.tenant)),
            ("profile", Field::text(&self.profile)),
            ("token_id", Field::maybe(self.token)),
            ("name", Field::maybe(self.name.as_ref())),
            ("hostname", Field::maybe(self.hostname.as_ref())),
            ("plane", Field::maybe(self.plane.as_ref())),
        ]);
        fields
    }
}

fn host(node: &NodeId) -> [(&'static str, Field); 2] {
    [("host_id", Field::text(node)), ("node_id", Field::text(node))]
}

fn tenants(tenants: &super::Tenants) -> Field {
    match tenants {
        super::Tenants::All => Field::text("*"),
        super::Tenants::Only(names) => Field::Texts(names.iter().map(ToString::to_string).collect()),
    }
}
