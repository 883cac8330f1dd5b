//! Activating issuers: they sign from now on, and those before retire; with their root, if that is new.

use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, RootActivated};
use crate::registry::{
    Confirmation, Envelope, Event, Issuer, IssuerState, Node, Rejection, RootState, State, Tenants,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How many nodes a refusal names.
const MISSING: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivateIssuer {
    pub issuer: IssuerId,
    /// Even if nodes have not got the bundle yet.
    pub force: bool,
    /// The audit key, certified by the new issuer of the control plane; empty if that stays the same.
    #[serde(with = "serde_bytes")]
    pub audit_certificate: Vec<u8>,
    #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
    pub confirm: Confirmation,
    /// The other issuer of the same roll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<IssuerId>,
    /// Judged by what hosts say that they have stored. Commands of before went by what they were sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_stored_bundles: bool,
}

impl ActivateIssuer {
    pub fn issuers(&self) -> impl Iterator<Item = &IssuerId> {
        [&self.issuer].into_iter().chain(self.other.iter().filter(|other| **other != self.issuer))
    }
}

pub(in crate::registry) fn activate(state: &State, activate: &ActivateIssuer) -> Decision {
    let mut issuers = Vec::new();
    for id in activate.issuers() {
        let Some(issuer) = state.issuers.get(id) else {
            return Rejection::IssuerNotFound { issuer: id.clone() }.into();
        };
        issuers.push(issuer);
    }
    if issuers.iter().all(|issuer| issuer.state == IssuerState::Active && !issuer.is_ephemeral()) {
        return Decision::granted(Vec::new());
    }
    let ready = |issuer: &Issuer| issuer.state == IssuerState::Prepared && issuer.not_after > state.at;
    if let Some(issuer) = issuers.iter().find(|issuer| !ready(issuer)) {
        let state = Some(issuer.state).filter(|state| *state != IssuerState::Prepared);
        return Rejection::IssuerNotPrepared { issuer: issuer.id.clone(), state }.into();
    }
    if let Err(refused) = check_whole(state, activate, &issuers) {
        return refused.into();
    }
    let signs_servers = issuers.iter().any(|issuer| issuer.usage.signs_servers());
    if let Err(refused) = check_adopted(state, activate, signs_servers) {
        return refused.into();
    }
    let root = issuers.iter().find_map(|issuer| {
        let root = state.root_of(issuer).filter(|root| root.state == RootState::Prepared)?;
        let before = state.active_root().map(|before| before.fingerprint);
        Some(Event::RootActivated(RootActivated { root: root.fingerprint, before }))
    });
    let activated = issuers.iter().map(|issuer| {
        Event::IssuerActivated(IssuerActivated {
            issuer: issuer.id.clone(),
            before: overlapping(state, issuer).next().map(|before| before.id.clone()),
            forced: activate.force,
            audit_certificate: activate.audit_certificate.clone(),
        })
    });
    Decision::granted(root.into_iter().chain(activated).collect())
}

/// The issuers that sign now what this one will.
fn overlapping<'a>(state: &'a State, next: &'a Issuer) -> impl Iterator<Item = &'a Issuer> {
    state.domain_issuers_in(IssuerState::Active).filter(|issuer| issuer.usage.overlaps(next.usage))
}

/// The issuers of a roll are activated together, with the audit key certified by the one that signs for the control plane.
/// Nothing that was signed until now goes unsigned afterwards, and nothing is signed below a root that retires.
fn check_whole(state: &State, activate: &ActivateIssuer, issuers: &[&Issuer]) -> Result<(), Rejection> {
    let named: BTreeSet<&IssuerId> = activate.issuers().collect();
    let prepared: BTreeSet<&IssuerId> =
        state.domain_issuers_in(IssuerState::Prepared).map(|issuer| &issuer.id).collect();
    let expected = if activate.by_stored_bundles {
        let certifies = issuers.iter().any(|issuer| issuer.usage.signs_servers());
        named == prepared && certifies != activate.audit_certificate.is_empty()
    } else {
        // Of a version that knew one issuer for both uses.
        issuers.iter().all(|issuer| issuer.usage.is_both())
    };
    if !expected {
        return Err(Rejection::PreparedStale);
    }
    let stays = |issuer: &&Issuer| !issuers.iter().any(|next| issuer.usage.overlaps(next.usage));
    let staying = || state.domain_issuers_in(IssuerState::Active).filter(stays);
    let signs = |wanted: fn(&Issuer) -> bool| {
        let before = state.domain_issuers_in(IssuerState::Active).any(wanted);
        staying().any(wanted) || issuers.iter().any(|issuer| wanted(issuer)) || !before
    };
    let under_new_root = issuers.iter().any(|issuer| is_below_prepared(state, issuer));
    let whole = !under_new_root || staying().next().is_none();
    if whole && signs(|issuer| issuer.usage.signs_clients()) && signs(|issuer| issuer.usage.signs_servers()) {
        return Ok(());
    }
    let why = "the other issuer of this roll is missing: abandon the roll and begin another".to_owned();
    Err(Rejection::IssuerInvalid { why })
}

fn is_below_prepared(state: &State, issuer: &Issuer) -> bool {
    state.root_of(issuer).is_some_and(|root| root.state == RootState::Prepared)
}

fn check_adopted(state: &State, activate: &ActivateIssuer, signs_servers: bool) -> Result<(), Rejection> {
    let (current, total) =
        if activate.by_stored_bundles { state.adoption_in(&Tenants::All) } else { state.delivery() };
    if current >= total {
        return Ok(());
    }
    if !activate.force {
        let bundle = |node: &Node| if activate.by_stored_bundles { node.stored_bundle } else { node.bundle };
        let missing = state.holders().filter(|node| bundle(node) < state.bundle_version);
        let missing = missing.take(MISSING).map(|node| node.id.to_string()).collect();
        return Err(Rejection::NotAdopted { current, total, missing });
    }
    let consequence = if state.root_in(RootState::Prepared).is_some() {
        "of the others, Enlist's agents reach the control plane by the cross-certificate and get the new root then; what does not follow a cross-certificate (Go's TLS library, pinned roots) refuses the control plane until it has the new bundle"
    } else if signs_servers {
        "those of the others that trust the root go on as before; what trusts only the previous issuer refuses certificates of the new one, also the control plane's own, until it has the bundle"
    } else {
        "hosts go on as before; what verifies nodes by the issuers of its bundle refuses certificates of the new one until it has the bundle"
    };
    let consequence = format!("{current} of {total} nodes have the new trust bundle: {consequence}");
    let affected = total.saturating_sub(current);
    activate.confirm.check(activate.issuer.as_str(), &consequence, affected)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerActivated {
    pub issuer: IssuerId,
    /// What signed until now.
    pub before: Option<IssuerId>,
    pub forced: bool,
    pub audit_certificate: Vec<u8>,
}

impl Happened for IssuerActivated {
    const NAME: &'static str = "ca.activated";

    fn fields(&self) -> AuditFields {
        vec![
            ("issuer", AuditField::text(&self.issuer)),
            ("before", AuditField::maybe(self.before.as_ref())),
            ("forced", AuditField::Flag(self.forced)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(old) = self.before.as_ref().and_then(|id| state.issuers.get_mut(id)) {
            old.state = IssuerState::Retiring;
        }
        if let Some(new) = state.issuers.get_mut(&self.issuer) {
            new.state = IssuerState::Active;
        }
        if let Some(signer) = &mut state.audit_signer
            && !self.audit_certificate.is_empty()
        {
            signer.certificate = self.audit_certificate.clone();
        }
    }
}
