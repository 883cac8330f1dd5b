//! Everything the control plane knows, in structurally shared maps: a clone costs a pointer.
//!
//! What grows with the fleet is held by pointer: a map copies the leaf it changes, and that copy should be
//! pointers too.

use super::command::Answer;
use super::{
    Addresses, AlertIndex, Bootstrap, Certificate, Documents, HardwareIdentifier, Intent, Node, Operator,
    OperatorKey, Overlay, PendingRoll, Policy, PrepareRoll, Replica, ReplicaToken, ServerCertificate,
    Tenants, Token, UndeliveredRevocation, Vcluster,
};
use crate::names::{
    BootstrapName, Fingerprint, IssuerId, KeyHash, KeyId, NodeId, OperatorName, ReplicaId, RequestId,
    SecretHash, Serial, Span, TenantId, Timestamp, TokenId, VclusterId, WireguardKey,
};
use crate::registry::{AuditSigner, AuditSink, Domain, Issuer, Root, RootList, Tenant};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The answer to a command applied a short while ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    pub answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// None until the domain is initialized.
    pub domain: Option<Domain>,
    /// Effective time: never runs backwards.
    pub at: Timestamp,
    /// Counts changes: rises with every command that had an audited event.
    pub revision: u64,
    pub policy: Policy,
    pub tenants: OrdMap<TenantId, Tenant>,
    pub tokens: OrdMap<TokenId, Arc<Token>>,
    pub token_by_hash: OrdMap<SecretHash, TokenId>,
    pub nodes: OrdMap<NodeId, Arc<Node>>,
    pub certificates: OrdMap<Serial, Arc<Certificate>>,
    pub wireguard_keys: OrdMap<WireguardKey, NodeId>,
    /// Keys that their nodes have replaced, and since when. They stay taken for as long as a released address rests.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub resting_keys: OrdMap<(Timestamp, WireguardKey), NodeId>,
    pub addresses: Addresses,
    pub operators: OrdMap<OperatorName, Operator>,
    pub operator_keys: OrdMap<KeyId, OperatorKey>,
    pub operator_key_by_hash: OrdMap<SecretHash, KeyId>,
    pub roots: Vec<Root>,
    pub issuers: OrdMap<IssuerId, Issuer>,
    /// The newest revocation list of each root.
    #[serde(default)]
    pub lists: OrdMap<Fingerprint, RootList>,
    pub audit_signer: Option<AuditSigner>,
    /// What the first replica presents to clients.
    pub server_certificate: Option<ServerCertificate>,
    /// What the others present.
    #[serde(default)]
    pub server_certificates: OrdMap<ReplicaId, ServerCertificate>,
    pub alerts: AlertIndex,
    /// The last line of the audit trail that a signed checkpoint vouches for.
    #[serde(default)]
    pub checkpoint: u64,
    /// The last line of it that each sink needs no more.
    #[serde(default)]
    pub forwarded: OrdMap<AuditSink, u64>,
    /// Rises whenever something that was good is denied, so that open connections are looked at again.
    #[serde(default)]
    pub denials: u64,
    /// Rises whenever what must be trusted changes.
    #[serde(default = "first_bundle")]
    pub bundle_version: u64,
    /// Rises whenever an ephemeral issuer comes or goes: what verifies nodes changes by it, and nothing that hosts trust.
    #[serde(default)]
    pub ephemeral_version: u64,
    /// The same of a version that knew one issuer for both uses.
    #[serde(default)]
    pub roll: Option<PrepareRoll>,
    /// A roll whose certificates are awaited.
    #[serde(default)]
    pub pending_roll: Option<PendingRoll>,
    /// The latest certificate for each key: a renewal must bring a new one.
    #[serde(default)]
    pub certified_keys: OrdMap<KeyHash, Serial>,
    /// Who may talk to whom over WireGuard, by tenant.
    #[serde(default)]
    pub overlays: OrdMap<TenantId, Overlay>,
    /// Whose recovery tokens are on record.
    #[serde(default)]
    pub recovery_by_hash: OrdMap<SecretHash, NodeId>,
    /// Enrollments granted in the minute that began at this moment.
    pub minute: (Timestamp, u32),
    /// How far the time was set back in all: numbers of revocation lists, which rise with the time, go on from where they were.
    #[serde(default = "no_time")]
    pub set_back: Span,
    /// Which node is known by what hardware. What a node that is gone was known by is its own until another is registered with it.
    #[serde(default)]
    pub hardware: OrdMap<HardwareIdentifier, NodeId>,
    /// How many machines known by their hardware each tenant has. Not stored: it is counted when a snapshot is read.
    #[serde(skip)]
    pub machines: OrdMap<TenantId, u64>,
    #[serde(default)]
    pub vclusters: OrdMap<VclusterId, Arc<Vcluster>>,
    /// Configuration of nodes in no vCluster.
    #[serde(default)]
    pub defaults: Documents,
    /// Counts changes of configuration: documents and assignments.
    #[serde(default)]
    pub config_sequence: u64,
    /// The replicas of the cluster, those that were removed included; none of a domain that is no cluster.
    #[serde(default)]
    pub replicas: OrdMap<ReplicaId, Replica>,
    /// What lets replicas join.
    #[serde(default)]
    pub replica_tokens: OrdMap<TokenId, ReplicaToken>,
    #[serde(default)]
    pub replica_token_by_hash: OrdMap<SecretHash, TokenId>,
    /// The highest replica id that was ever given: none is given twice.
    #[serde(default = "first_replica")]
    pub last_replica: u64,
    /// Rises when the domain is restored: what replicas of before say is refused.
    #[serde(default = "first_epoch")]
    pub epoch: u64,
    /// What every replica can apply.
    #[serde(default = "first_feature_level")]
    pub feature_level: u32,
    /// Certificates that an external issuer was asked for and that are not on record yet, by the command that said so.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub intents: OrdMap<RequestId, Intent>,
    /// What external issuers have yet to revoke.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub undelivered_revocations: OrdMap<Serial, UndeliveredRevocation>,
    /// What hosts without an identity of their own authenticate with.
    #[serde(default, skip_serializing_if = "OrdMap::is_empty")]
    pub bootstraps: OrdMap<BootstrapName, Bootstrap>,
    /// Answers of the last minutes, so that a command applied twice is applied once.
    pub recent: OrdMap<RequestId, Arc<Recorded>>,
}

fn no_time() -> Span {
    Span::from_millis(0)
}

fn first_bundle() -> u64 {
    1
}

fn first_replica() -> u64 {
    ReplicaId::FIRST.0
}

fn first_epoch() -> u64 {
    1
}

fn first_feature_level() -> u32 {
    1
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
            resting_keys: OrdMap::new(),
            addresses: Addresses::default(),
            operators: OrdMap::new(),
            operator_keys: OrdMap::new(),
            operator_key_by_hash: OrdMap::new(),
            roots: Vec::new(),
            issuers: OrdMap::new(),
            lists: OrdMap::new(),
            audit_signer: None,
            server_certificate: None,
            server_certificates: OrdMap::new(),
            alerts: AlertIndex::default(),
            checkpoint: 0,
            forwarded: OrdMap::new(),
            denials: 0,
            bundle_version: first_bundle(),
            ephemeral_version: 0,
            roll: None,
            pending_roll: None,
            certified_keys: OrdMap::new(),
            overlays: OrdMap::new(),
            recovery_by_hash: OrdMap::new(),
            minute: (Timestamp::from_millis(0), 0),
            set_back: no_time(),
            hardware: OrdMap::new(),
            machines: OrdMap::new(),
            vclusters: OrdMap::new(),
            defaults: Documents::default(),
            config_sequence: 0,
            replicas: OrdMap::new(),
            replica_tokens: OrdMap::new(),
            replica_token_by_hash: OrdMap::new(),
            last_replica: first_replica(),
            epoch: first_epoch(),
            feature_level: first_feature_level(),
            intents: OrdMap::new(),
            undelivered_revocations: OrdMap::new(),
            bootstraps: OrdMap::new(),
            recent: OrdMap::new(),
        }
    }
}

impl State {
    /// An API key by the hash of the presented string.
    pub fn operator_key_with_hash(&self, hash: &SecretHash) -> Option<&OperatorKey> {
        self.operator_keys.get(self.operator_key_by_hash.get(hash)?)
    }

    /// The certificate a node uses now.
    pub fn current_certificate<'a>(&'a self, node: &'a Node) -> Option<(&'a Serial, &'a Certificate)> {
        let serial = node.current_serial()?;
        self.certificates.get(serial).map(|certificate| (serial, certificate.as_ref()))
    }

    /// Whether a serial is on record, the control plane's own included.
    pub(super) fn serial_is_taken(&self, serial: &Serial) -> bool {
        let own = self.server_certificates().any(|certificate| certificate.serial == *serial);
        own || self.certificates.contains_key(serial)
    }

    /// Whether a node could authenticate now.
    pub fn holds_good_certificate(&self, node: &Node) -> bool {
        node.serials.iter().any(|serial| self.is_good(serial))
    }

    /// How many nodes have stored the newest trust bundle, of those that hold a certificate that is good.
    pub fn adoption(&self) -> (u64, u64) {
        self.adoption_in(&Tenants::All)
    }

    /// The same of the nodes of some tenants.
    pub fn adoption_in(&self, tenants: &Tenants) -> (u64, u64) {
        let holders = self.holders().filter(|node| tenants.include(&node.tenant));
        self.count_current(holders, |node| node.stored_bundle)
    }

    /// How many nodes were sent the newest trust bundle: what rolls of before went by.
    pub(super) fn delivery(&self) -> (u64, u64) {
        self.count_current(self.holders(), |node| node.bundle)
    }

    fn count_current<'a>(
        &self,
        holders: impl Iterator<Item = &'a Node>,
        bundle: fn(&Node) -> u64,
    ) -> (u64, u64) {
        holders.fold((0, 0), |(current, total), node| {
            (current + u64::from(bundle(node) >= self.bundle_version), total + 1)
        })
    }

    /// Nodes that hold a good certificate and have not stored the newest trust bundle.
    pub fn lagging(&self) -> impl Iterator<Item = &Node> {
        self.holders().filter(|node| node.stored_bundle < self.bundle_version)
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(Arc::as_ref).filter(|node| self.holds_good_certificate(node))
    }
}
