//! Everything the control plane knows, in structurally shared maps: a clone costs a pointer.
//!
//! What grows with the fleet is held by pointer: a map copies the leaf it changes, and that copy should be
//! pointers too.

use super::command::Answer;
use super::{
    Addresses, Alert, Certificate, CertificateStatus, Node, Operator, OperatorKey, Owner, Policy,
    ServerCertificate, Token,
};
use crate::names::{
    AlertId, ClusterId, Fingerprint, IssuerId, KeyId, NodeId, OperatorName, RequestId, SecretHash, Serial,
    TenantId, Timestamp, TokenId, TrustDomain, WireguardKey,
};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    pub name: TrustDomain,
    pub cluster: ClusterId,
    pub founded_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub name: TenantId,
    pub created_by: String,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssuerKind {
    Sealed,
    Imported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssuerState {
    Active,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issuer {
    pub id: IssuerId,
    pub kind: IssuerKind,
    pub state: IssuerState,
    pub subject: String,
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    /// Ciphertext under the key-encryption key, which is never here.
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditSigner {
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

/// The answer to a command applied a short while ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    pub answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// None until the domain is founded.
    pub domain: Option<Domain>,
    /// Effective time: never runs backwards.
    pub at: Timestamp,
    /// Counts changes: rises with every command that had events.
    pub revision: u64,
    pub policy: Policy,
    pub tenants: OrdMap<TenantId, Tenant>,
    pub tokens: OrdMap<TokenId, Arc<Token>>,
    pub token_by_hash: OrdMap<SecretHash, TokenId>,
    pub nodes: OrdMap<NodeId, Arc<Node>>,
    pub certificates: OrdMap<Serial, Arc<Certificate>>,
    pub wireguard_keys: OrdMap<WireguardKey, NodeId>,
    pub addresses: Addresses,
    pub operators: OrdMap<OperatorName, Operator>,
    pub operator_keys: OrdMap<KeyId, OperatorKey>,
    pub operator_key_by_hash: OrdMap<SecretHash, KeyId>,
    pub roots: Vec<Root>,
    pub issuers: OrdMap<IssuerId, Issuer>,
    pub audit_signer: Option<AuditSigner>,
    pub server_certificate: Option<ServerCertificate>,
    pub alerts: OrdMap<AlertId, Alert>,
    /// The last line of the audit trail that a signed checkpoint vouches for.
    #[serde(default)]
    pub checkpoint: u64,
    /// Enrollments granted in the minute that began at this moment.
    pub minute: (Timestamp, u32),
    /// Answers of the last minutes, so that a command applied twice is applied once.
    pub recent: OrdMap<RequestId, Arc<Recorded>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            domain: None,
            at: Timestamp::from_millis(0),
            revision: 0,
            policy: Policy::default(),
            tenants: OrdMap::new(),
            tokens: OrdMap::new(),
            token_by_hash: OrdMap::new(),
            nodes: OrdMap::new(),
            certificates: OrdMap::new(),
            wireguard_keys: OrdMap::new(),
            addresses: Addresses::default(),
            operators: OrdMap::new(),
            operator_keys: OrdMap::new(),
            operator_key_by_hash: OrdMap::new(),
            roots: Vec::new(),
            issuers: OrdMap::new(),
            audit_signer: None,
            server_certificate: None,
            alerts: OrdMap::new(),
            checkpoint: 0,
            minute: (Timestamp::from_millis(0), 0),
            recent: OrdMap::new(),
        }
    }
}

impl State {
    /// A token by the hash of the presented string.
    pub fn token_with_hash(&self, hash: &SecretHash) -> Option<&Token> {
        self.tokens.get(self.token_by_hash.get(hash)?).map(Arc::as_ref)
    }

    /// An API key by the hash of the presented string.
    pub fn operator_key_with_hash(&self, hash: &SecretHash) -> Option<&OperatorKey> {
        self.operator_keys.get(self.operator_key_by_hash.get(hash)?)
    }

    /// The certificate a node uses now.
    pub fn current_certificate<'a>(&'a self, node: &'a Node) -> Option<(&'a Serial, &'a Certificate)> {
        let serial = node.current_serial()?;
        self.certificates.get(serial).map(|certificate| (serial, certificate.as_ref()))
    }

    /// The issuer that signs now.
    pub fn active_issuer(&self) -> Option<&Issuer> {
        self.issuers.values().find(|issuer| issuer.state == IssuerState::Active)
    }

    /// Whether a serial is on record, the control plane's own included.
    pub(super) fn serial_is_taken(&self, serial: &Serial) -> bool {
        let own = self.server_certificate.as_ref().is_some_and(|certificate| certificate.serial == *serial);
        own || self.certificates.contains_key(serial)
    }

    /// Whether a serial must be refused at the handshake. One that is unknown is no matter for a handshake.
    pub fn is_denied(&self, serial: &Serial) -> bool {
        self.certificates.get(serial).is_some_and(|certificate| {
            certificate.status == CertificateStatus::Denied || self.owner_is_gone(&certificate.owner)
        })
    }

    fn owner_is_gone(&self, owner: &Owner) -> bool {
        match owner {
            Owner::Node(id) => self.nodes.get(id).is_none_or(|node| node.state.is_gone()),
            Owner::Operator(name) => !self.operators.contains_key(name),
        }
    }
}
