//! Initializing the domain: the first command of every log.

use crate::names::{
    ClusterId, Fingerprint, IssuerUse, NodeId, ProfileName, TenantId, Timestamp, TrustDomain,
};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{
    Addresses, AuditSigner, Domain, EPHEMERAL_LEAF, Envelope, Event, Issuer, IssuerState, NewIssuer,
    NewStepCa, NodeSigner, Rejection, Root, RootList, RootState, State, Tenant,
};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// Initializes the domain: the first command of every log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitializeDomain {
    pub domain: TrustDomain,
    pub cluster: ClusterId,
    /// The ULA /48 from which overlay addresses come, its lower 80 bits zero.
    pub overlay_prefix: Ipv6Addr,
    pub default_profile: ProfileName,
    #[serde(with = "serde_bytes")]
    pub root: Vec<u8>,
    pub root_fingerprint: Fingerprint,
    pub root_not_after: Timestamp,
    pub issuer: NewIssuer,
    /// Signs audit checkpoints; its certificate comes from the issuer.
    #[serde(with = "serde_bytes")]
    pub audit_certificate: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub audit_sealed_key: Vec<u8>,
    #[serde(default, skip_serializing_if = "NodeSigner::is_domain_issuer")]
    pub node_signer: NodeSigner,
    /// Signs for the control plane; without one, `issuer` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_issuer: Option<NewIssuer>,
    /// Signs for nodes, where `node_signer` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ca: Option<Box<NewStepCa>>,
    /// The revocation list of the root, where its key was at hand. It denies no issuer yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_list: Option<RootList>,
}

pub(in crate::registry) fn decide(state: &State, found: &InitializeDomain) -> Decision {
    if state.domain.is_some() {
        return Rejection::AlreadyInitialized.into();
    }
    if !state.policy.profiles.contains_key(&found.default_profile) {
        return Rejection::ProfileNotFound { profile: found.default_profile.clone() }.into();
    }
    // Bits below the /48 would give two nodes one address, and no issuer outlives its root.
    let below_prefix = u128::from(found.overlay_prefix) << 48 != 0;
    let issuers = || [&found.issuer].into_iter().chain(&found.server_issuer);
    let outside = issuers().any(|issuer| !issuer.kind.is_of_domain());
    let outlives = issuers().any(|issuer| issuer.not_after > found.root_not_after);
    let elsewhere = issuers().any(|issuer| issuer.root.is_some_and(|root| root != found.root_fingerprint));
    if below_prefix
        || outside
        || !fits_node_signer(found)
        || outlives
        || elsewhere
        || !are_divided_or_one(found)
    {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::DomainInitialized(Box::new(found.clone()))])
}

/// One issuer for both uses, or one for each.
fn are_divided_or_one(found: &InitializeDomain) -> bool {
    match &found.server_issuer {
        None => found.issuer.usage == IssuerUse::Both,
        Some(server) => {
            (found.issuer.usage, server.usage) == (IssuerUse::Node, IssuerUse::Server)
                && found.issuer.id != server.id
                && found.issuer.subject != server.subject
        }
    }
}

/// A step-ca where one is to sign, and its root is no root of the domain: hosts would trust it.
fn fits_node_signer(found: &InitializeDomain) -> bool {
    match (found.node_signer, &found.step_ca) {
        (NodeSigner::DomainIssuer | NodeSigner::Ephemeral, None) => true,
        (NodeSigner::StepCa, Some(step_ca)) => {
            let issuer = &step_ca.issuer;
            let own = |other: &NewIssuer| other.id == issuer.id || other.fingerprint == issuer.fingerprint;
            step_ca.is_well_formed()
                && issuer.fingerprint != found.root_fingerprint
                && !own(&found.issuer)
                && !found.server_issuer.as_ref().is_some_and(own)
        }
        (NodeSigner::StepCa, None) | (NodeSigner::DomainIssuer | NodeSigner::Ephemeral, Some(_)) => false,
    }
}

impl Happened for InitializeDomain {
    const NAME: &'static str = "domain.founded";

    fn fields(&self) -> AuditFields {
        let fields = [
            ("domain", AuditField::text(&self.domain)),
            ("cluster_id", AuditField::text(self.cluster)),
            ("root_fingerprint", AuditField::text(self.root_fingerprint.labelled())),
            ("issuer", AuditField::text(&self.issuer.id)),
            ("issuer_fingerprint", AuditField::text(self.issuer.fingerprint.labelled())),
        ];
        // Said only where there is something to say: lines of old logs are made again from their commands.
        let signer = match self.node_signer {
            NodeSigner::DomainIssuer => None,
            NodeSigner::Ephemeral => Some(("node_issuer", AuditField::text("ephemeral"))),
            NodeSigner::StepCa => Some(("node_issuer", AuditField::text("step-ca"))),
        };
        let step_ca = self.step_ca.iter().flat_map(|step_ca| {
            [
                ("step_ca", AuditField::text(&step_ca.issuer.id)),
                ("step_ca_fingerprint", AuditField::text(step_ca.issuer.fingerprint.labelled())),
                ("step_ca_url", AuditField::text(&step_ca.access.url)),
                ("step_ca_provisioner", AuditField::text(&step_ca.access.provisioner)),
            ]
        });
        let server_issuer = self.server_issuer.iter().flat_map(|issuer| {
            [
                ("server_issuer", AuditField::text(&issuer.id)),
                ("server_issuer_fingerprint", AuditField::text(issuer.fingerprint.labelled())),
            ]
        });
        fields.into_iter().chain(signer).chain(server_issuer).chain(step_ca).collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let at = state.at;
        state.domain = Some(Domain {
            name: self.domain.clone(),
            cluster: self.cluster,
            founded_at: at,
            node_signer: self.node_signer,
        });
        if self.node_signer == NodeSigner::Ephemeral {
            state.policy.shorten_lifetimes(EPHEMERAL_LEAF);
        }
        state.policy.default_profile = self.default_profile.clone();
        state.addresses = Addresses { prefix: self.overlay_prefix, ..Addresses::default() };
        state.roots = vec![Root {
            certificate: self.root.clone(),
            fingerprint: self.root_fingerprint,
            not_after: self.root_not_after,
            state: RootState::Active,
            cross_certificate: None,
            since_bundle: 0,
            retired_at: None,
        }];
        state.lists = self.root_list.iter().map(|list| (self.root_fingerprint, list.clone())).collect();
        for issuer in [&self.issuer].into_iter().chain(&self.server_issuer) {
            state.issuers.insert(issuer.id.clone(), Issuer::of(issuer, IssuerState::Active));
        }
        if let Some(step_ca) = &self.step_ca {
            let record = step_ca.record();
            state.issuers.insert(record.id.clone(), record);
            state.ephemeral_version += 1;
        }
        state.audit_signer = Some(AuditSigner {
            certificate: self.audit_certificate.clone(),
            sealed_key: self.audit_sealed_key.clone(),
        });
        let name = TenantId::default_tenant();
        let tenant = Tenant { name: name.clone(), created_by: envelope.actor.to_string(), created_at: at };
        state.tenants.insert(name, tenant);
    }
}
