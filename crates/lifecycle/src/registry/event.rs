//! What happened: the only thing that changes state, and the lines of the audit trail.

use super::{
    AuditGap, Checkpoint, Found, Hardware, Issued, Operator, OperatorKey, Refusals, ServerCertificate,
    Tenant, Token, Underlay, Wireguard,
};
use crate::names::{
    AlertId, IdempotencyHash, KeyId, Label, NodeId, OperatorName, ProfileName, Serial, TenantId, TokenId,
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
    AlertRaised {
        alert: AlertId,
        kind: &'static str,
        node: Option<NodeId>,
        detail: String,
    },
    AlertCleared {
        alert: AlertId,
        kind: &'static str,
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
    },
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
    /// Older serials of the node, denied by this enrollment.
    pub denied: Vec<Serial>,
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
            Event::TokenBurned { .. } | Event::EnrollmentRefused(_) => "enrollment.refused",
            Event::NodeEnrolled(_) => "host.enrolled",
            Event::NodeConfirmed { .. } => "host.confirmed",
            Event::NodeActive { .. } => "host.active",
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
        }
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
            Event::TokenCreated(token) => vec![
                ("token_id", Field::text(token.id)),
                ("created_by", Field::text(&token.created_by)),
                ("expires_at", Field::text(token.expires_at)),
                ("tenant", Field::text(&token.tenant)),
                ("pinned_node", Field::maybe(token.node.as_ref())),
                ("profile", Field::maybe(token.profile.as_ref())),
            ],
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
            Event::AlertCleared { alert, kind, node } => vec![
                ("alert_id", Field::text(alert)),
                ("kind", Field::text(kind)),
                ("node_id", Field::maybe(node.as_ref())),
            ],
            Event::TenantCreated(tenant) => vec![("tenant", Field::text(&tenant.name))],
            Event::OperatorAdded { operator, .. } => vec![
                ("operator", Field::text(&operator.name)),
                ("role", Field::text(operator.role.as_str())),
                ("tenants", tenants(&operator.tenants)),
                ("cert_serial", Field::maybe(operator.serial.as_ref())),
            ],
            Event::OperatorRemoved { name } => vec![("operator", Field::text(name))],
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
            Event::EnrollmentRefused(refusals) => vec![
                ("reason", Field::text(&refusals.reason)),
                ("network", Field::maybe(refusals.network)),
                ("count", Field::Number(refusals.count)),
                ("samples", Field::texts(&refusals.samples)),
            ],
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
            Event::Tidied { tokens, certificates, keys } => vec![
                ("tokens", Field::Number(tokens.len() as u64)),
                ("certificates", Field::Number(certificates.len() as u64)),
                ("keys", Field::Number(keys.len() as u64)),
            ],
        }
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

fn host(node: &NodeId) -> [(&'static str, Field); 2] {
    [("host_id", Field::text(node)), ("node_id", Field::text(node))]
}

fn tenants(tenants: &super::Tenants) -> Field {
    match tenants {
        super::Tenants::All => Field::text("*"),
        super::Tenants::Only(names) => Field::Texts(names.iter().map(ToString::to_string).collect()),
    }
}
