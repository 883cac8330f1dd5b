//! Issuers: what signs certificates, and the roots above them.

pub(super) mod activate;
pub(super) mod certify;
pub(super) mod change_step_ca;
pub(super) mod prepare;
pub(super) mod publish;
pub(super) mod retire;
pub(super) mod revoke;
pub(super) mod rewrap;
pub(super) mod step_ca;

use super::{Certificate, CertificateStatus, Owner, State};
use crate::names::{Fingerprint, IssuerId, IssuerUse, NodeId, OperatorName, ReplicaId, Serial, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use step_ca::StepCa;

/// The first issuer. Its key is here only as ciphertext.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewIssuer {
    pub id: IssuerId,
    pub kind: IssuerKind,
    pub subject: String,
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
    #[serde(rename = "use", default, skip_serializing_if = "IssuerUse::is_both")]
    pub usage: IssuerUse,
    /// The root above it; nothing of one of before there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Fingerprint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssuerKind {
    Sealed,
    Imported,
    /// In the memory of one replica and nowhere else; signs certificates of nodes only.
    Ephemeral,
    /// In a PKCS#11 token. What is sealed is where it is found there.
    Pkcs11,
    /// A step-ca that replicas ask over the network; signs certificates of nodes only. What is sealed is the provisioner's key.
    StepCa,
}

impl IssuerKind {
    /// Whether the domain itself signs with it: below its root, for operators and the control plane too.
    pub fn is_of_domain(self) -> bool {
        match self {
            IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Pkcs11 => true,
            IssuerKind::Ephemeral | IssuerKind::StepCa => false,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            IssuerKind::Sealed => "sealed",
            IssuerKind::Imported => "imported",
            IssuerKind::Ephemeral => "ephemeral",
            IssuerKind::Pkcs11 => "pkcs11",
            IssuerKind::StepCa => "step-ca",
        }
    }
}

/// What signs the certificates of nodes in a domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeSigner {
    /// The issuer that signs for operators and the control plane too.
    #[default]
    DomainIssuer,
    /// An issuer in the memory of the replica that a node reaches.
    Ephemeral,
    /// step-ca, which replicas ask.
    StepCa,
}

impl NodeSigner {
    /// Whether issuers of this kind sign for nodes.
    fn is(self, kind: IssuerKind) -> bool {
        match self {
            NodeSigner::DomainIssuer => kind.is_of_domain(),
            NodeSigner::Ephemeral => kind == IssuerKind::Ephemeral,
            NodeSigner::StepCa => kind == IssuerKind::StepCa,
        }
    }

    pub(super) fn is_domain_issuer(&self) -> bool {
        *self == NodeSigner::DomainIssuer
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssuerState {
    /// Trusted, does not sign yet.
    Prepared,
    /// Signs.
    Active,
    /// Trusted for what it signed, signs no more.
    Retiring,
    /// Nothing good hangs on it any more: nothing did, or its root was retired all the same.
    Retired,
    /// Nothing that it signed is good.
    Revoked,
}

impl IssuerState {
    pub fn as_str(self) -> &'static str {
        match self {
            IssuerState::Prepared => "prepared",
            IssuerState::Active => "active",
            IssuerState::Retiring => "retiring",
            IssuerState::Retired => "retired",
            IssuerState::Revoked => "revoked",
        }
    }

    /// Whether what it signed may be good.
    pub fn is_trusted(self) -> bool {
        matches!(self, IssuerState::Prepared | IssuerState::Active | IssuerState::Retiring)
    }
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
    #[serde(default)]
    pub revoked_at: Option<Timestamp>,
    /// Of an ephemeral one: the replica whose memory holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaId>,
    #[serde(rename = "use", default, skip_serializing_if = "IssuerUse::is_both")]
    pub usage: IssuerUse,
    /// The root above it; nothing of one of before there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Fingerprint>,
    /// Of a step-ca: how it is asked, and its intermediates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ca: Option<Box<StepCa>>,
}

impl Issuer {
    pub(super) fn of(issuer: &NewIssuer, state: IssuerState) -> Self {
        Self {
            id: issuer.id.clone(),
            kind: issuer.kind,
            state,
            subject: issuer.subject.clone(),
            certificate: issuer.certificate.clone(),
            fingerprint: issuer.fingerprint,
            not_after: issuer.not_after,
            sealed_key: issuer.sealed_key.clone(),
            revoked_at: None,
            replica: None,
            usage: issuer.usage,
            root: issuer.root,
            step_ca: None,
        }
    }

    pub fn is_ephemeral(&self) -> bool {
        self.kind == IssuerKind::Ephemeral
    }

    /// Whether the domain itself signs with it.
    pub fn is_of_domain(&self) -> bool {
        self.kind.is_of_domain()
    }

    /// What its certificates are for, said of every kind.
    pub fn issues_for(&self) -> IssuerUse {
        if self.is_ephemeral() { IssuerUse::Node } else { self.usage }
    }
}

/// Who uses a certificate of an issuer.
pub(super) struct IssuerUsers<'a> {
    pub nodes: BTreeSet<&'a NodeId>,
    pub operators: BTreeSet<&'a OperatorName>,
    pub replicas: BTreeSet<&'a ReplicaId>,
}

impl State {
    /// The issuer of the domain that signs for operators now, and for nodes unless these have issuers of another kind.
    pub fn client_issuer(&self) -> Option<&Issuer> {
        self.domain_issuers_in(IssuerState::Active).find(|issuer| issuer.usage.signs_clients())
    }

    /// The issuer that signs for the control plane now.
    pub fn server_issuer(&self) -> Option<&Issuer> {
        self.domain_issuers_in(IssuerState::Active).find(|issuer| issuer.usage.signs_servers())
    }

    /// The uses for which the domain has no issuer that signs: it was revoked, or has ended, and no other was activated.
    pub fn uses_without_issuer(&self, now: Timestamp) -> Vec<IssuerUse> {
        let signs = |issuer: Option<&Issuer>| issuer.is_some_and(|issuer| now < issuer.not_after);
        let step_ca = self.step_ca_issuer().map(|(issuer, _)| issuer);
        let uses = [
            (IssuerUse::Node, signs(self.client_issuer()) && (!self.has_step_ca() || signs(step_ca))),
            (IssuerUse::Server, signs(self.server_issuer())),
        ];
        let missing = uses.into_iter().filter(|(_, signs)| !signs && self.domain.is_some());
        missing.map(|(usage, _)| usage).collect()
    }

    /// Whether the certificates of nodes come from ephemeral issuers.
    pub fn has_ephemeral_issuers(&self) -> bool {
        self.domain.as_ref().is_some_and(|domain| domain.node_signer == NodeSigner::Ephemeral)
    }

    /// Whether the certificates of nodes come from a step-ca.
    pub fn has_step_ca(&self) -> bool {
        self.domain.as_ref().is_some_and(|domain| domain.node_signer == NodeSigner::StepCa)
    }

    /// The ephemeral issuer that signs on a replica now.
    pub fn ephemeral_issuer(&self, replica: ReplicaId) -> Option<&Issuer> {
        let signs = |issuer: &&Issuer| {
            issuer.is_ephemeral() && issuer.state == IssuerState::Active && issuer.replica == Some(replica)
        };
        self.issuers.values().find(signs)
    }

    /// What verifies the certificates of nodes and operators.
    pub fn node_issuers(&self) -> impl Iterator<Item = &Issuer> {
        let verifies = |issuer: &&Issuer| issuer.state.is_trusted() && issuer.issues_for().signs_clients();
        self.issuers.values().filter(verifies)
    }

    /// This issuer, if it may sign a node's certificate now.
    pub fn node_issuer(&self, id: &IssuerId) -> Option<&Issuer> {
        let issuer = self.issuers.get(id).filter(|issuer| issuer.state == IssuerState::Active);
        issuer.filter(|issuer| {
            let signer = self.domain.as_ref().map(|domain| domain.node_signer).unwrap_or_default();
            signer.is(issuer.kind) && issuer.usage.signs_clients()
        })
    }

    /// Whether a certificate on record that has not expired hangs on an issuer, good or not.
    pub(super) fn issuer_is_named(&self, issuer: &IssuerId) -> bool {
        self.certificates.values().any(|held| held.issuer == *issuer && held.not_after > self.at)
    }

    /// The good certificates under an issuer, the control plane's own not counted.
    pub(super) fn good_certificates<'a>(
        &'a self,
        issuer: &'a IssuerId,
    ) -> impl Iterator<Item = &'a Certificate> + 'a {
        let good = move |(serial, held): &(&Serial, &Arc<Certificate>)| {
            held.issuer == *issuer && self.is_good(serial)
        };
        self.certificates.iter().filter(good).map(|(_, held)| held.as_ref())
    }

    /// Whom they speak for.
    pub fn good_leaves<'a>(&'a self, issuer: &'a IssuerId) -> impl Iterator<Item = &'a Owner> + 'a {
        self.good_certificates(issuer).map(|held| &held.owner)
    }

    /// Who uses a certificate of an issuer: it is good, and no newer one has taken its place.
    pub(super) fn users_of<'a>(&'a self, issuer: &'a IssuerId) -> IssuerUsers<'a> {
        let (mut nodes, mut operators, mut replicas) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for held in self.good_certificates(issuer) {
            match (&held.status, &held.owner) {
                (CertificateStatus::Superseded { .. }, _) => {}
                (_, Owner::Node(node)) => drop(nodes.insert(node)),
                (_, Owner::Operator(name)) => drop(operators.insert(name)),
                (_, Owner::Replica(id)) => drop(replicas.insert(id)),
                // Many hosts share it: what it leads to is theirs, and they have other ways.
                (_, Owner::Bootstrap(_)) => {}
            }
        }
        IssuerUsers { nodes, operators, replicas }
    }

    /// Whether a replica presents a certificate of this issuer to clients.
    pub fn presents_leaf_of(&self, issuer: &IssuerId) -> bool {
        self.presented_leaves(issuer) > 0
    }

    /// How many replicas present a certificate of this issuer to clients.
    pub fn presented_leaves(&self, issuer: &IssuerId) -> u64 {
        self.server_certificates().filter(|own| own.is_presented_of(issuer, self.at)).count() as u64
    }

    pub fn issuer_is_revoked(&self, issuer: &IssuerId) -> bool {
        self.issuers.get(issuer).is_some_and(|issuer| issuer.state == IssuerState::Revoked)
    }

    /// Whether what an issuer signed may be good.
    pub fn trusts_issuer(&self, issuer: &IssuerId) -> bool {
        self.issuers.get(issuer).is_some_and(|issuer| issuer.state.is_trusted())
    }

    pub(super) fn issuer_is_retired(&self, issuer: &IssuerId) -> bool {
        self.issuers.get(issuer).is_some_and(|issuer| issuer.state == IssuerState::Retired)
    }

    /// Certificates under an issuer that are good, the control plane's own included.
    pub(super) fn leaves(&self, id: &IssuerId) -> u64 {
        let own = self.presented_leaves(id);
        u64::try_from(self.good_certificates(id).count()).unwrap_or(u64::MAX).saturating_add(own)
    }

    /// An issuer signs no more. Only folds call this.
    pub(super) fn end_issuer(&mut self, id: &IssuerId, next: IssuerState) {
        let at = self.at;
        if let Some(issuer) = self.issuers.get_mut(id) {
            issuer.state = next;
            issuer.revoked_at = Some(at).filter(|_| next == IssuerState::Revoked);
        }
        self.forget_idle_keys();
        self.anchors_changed(id);
    }

    /// What verifies nodes has changed with this issuer; hosts have to be told of it only if they trust the control plane by it.
    fn anchors_changed(&mut self, id: &IssuerId) {
        if self.issuers.get(id).is_some_and(|issuer| !issuer.is_of_domain()) {
            self.ephemeral_version += 1;
        } else {
            self.bundle_version += 1;
        }
    }

    /// A retired or revoked issuer signs one thing still, the list of what was revoked. Once everything on that
    /// list has expired its key is not kept.
    pub(super) fn forget_idle_keys(&mut self) {
        let over = |issuer: &&Issuer| !issuer.state.is_trusted() && !issuer.sealed_key.is_empty();
        let idle: Vec<IssuerId> =
            self.issuers.values().filter(over).map(|issuer| issuer.id.clone()).collect();
        for id in idle.into_iter().filter(|id| !self.issuer_is_named(id)).collect::<Vec<_>>() {
            if let Some(issuer) = self.issuers.get_mut(&id) {
                issuer.sealed_key = Vec::new();
            }
        }
    }
}
