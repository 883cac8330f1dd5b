//! step-ca as the issuer of nodes: where it is, by what provisioner it is asked, and which of its intermediates have signed.
//!
//! The record of the issuer is that of step-ca's root; its sealed key is the provisioner's, which lets nobody sign and lets step-ca be
//! asked. Nodes are verified by the intermediates, which come with what step-ca signs. The rules here read no certificate: that an
//! intermediate is one of the root is checked by the replica that received it, and wherever it is read.

use super::{Issuer, IssuerKind, IssuerState, NewIssuer};
use crate::names::{Fingerprint, IssuerUse, Timestamp};
use crate::registry::State;
use serde::{Deserialize, Serialize};

/// Intermediates of one step-ca that have not ended. It replaces its own once in years.
pub const INTERMEDIATES: usize = 16;
/// A URL, the name of a provisioner, the id of its key.
const TEXT_MAX: usize = 512;

/// How step-ca is reached and asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCaAccess {
    pub url: String,
    pub provisioner: String,
    /// By which it knows the provisioner's key.
    pub key_id: String,
}

impl StepCaAccess {
    fn is_well_formed(&self) -> bool {
        [&self.url, &self.provisioner, &self.key_id]
            .iter()
            .all(|text| (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control))
    }
}

/// step-ca as a domain is initialized with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewStepCa {
    /// Its root, and the sealed key of the provisioner.
    pub issuer: NewIssuer,
    pub access: StepCaAccess,
}

impl NewStepCa {
    pub(in crate::registry) fn is_well_formed(&self) -> bool {
        let issuer = &self.issuer;
        issuer.kind == IssuerKind::StepCa
            && issuer.usage == IssuerUse::Node
            && issuer.root.is_none()
            && !issuer.sealed_key.is_empty()
            && self.access.is_well_formed()
    }

    pub(in crate::registry) fn record(&self) -> Issuer {
        let step_ca = StepCa { access: self.access.clone(), intermediates: Vec::new() };
        Issuer { step_ca: Some(Box::new(step_ca)), ..Issuer::of(&self.issuer, IssuerState::Active) }
    }
}

/// What is known of step-ca beyond its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCa {
    pub access: StepCaAccess,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intermediates: Vec<StepCaIntermediate>,
}

/// A CA between step-ca's root and what it signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCaIntermediate {
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
}

impl StepCa {
    /// Those that would be on record with these beside them.
    fn with(&self, chain: &[StepCaIntermediate], at: Timestamp) -> Vec<StepCaIntermediate> {
        let mut known: Vec<StepCaIntermediate> =
            self.intermediates.iter().filter(|one| one.not_after > at).cloned().collect();
        for new in chain {
            if !known.iter().any(|one| one.fingerprint == new.fingerprint) {
                known.push(new.clone());
            }
        }
        known
    }

    /// Whether these can go on record.
    pub fn has_room_for(&self, chain: &[StepCaIntermediate], at: Timestamp) -> bool {
        self.with(chain, at).len() <= INTERMEDIATES
    }
}

impl State {
    /// The step-ca that signs for nodes now.
    pub fn step_ca_issuer(&self) -> Option<(&Issuer, &StepCa)> {
        let signs = |issuer: &&Issuer| issuer.state == IssuerState::Active;
        self.issuers.values().filter(signs).find_map(|issuer| Some((issuer, issuer.step_ca.as_deref()?)))
    }

    /// Intermediates that have signed verify nodes from now on. Only folds call this.
    pub(in crate::registry) fn learn_intermediates(
        &mut self,
        issuer: &crate::names::IssuerId,
        chain: &[StepCaIntermediate],
    ) {
        let at = self.at;
        let Some(step_ca) = self.issuers.get_mut(issuer).and_then(|issuer| issuer.step_ca.as_mut()) else {
            return;
        };
        let known = step_ca.with(chain, at);
        if known != step_ca.intermediates {
            step_ca.intermediates = known;
            self.ephemeral_version += 1;
        }
    }
}
