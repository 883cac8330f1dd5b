//! Changing how step-ca is asked: its address, its provisioner with the key, or its root.
//!
//! Another root is another issuer: the one before signs no more, and verifies what it has signed until that has ended. The rules here
//! read no certificate: that the root is one, and what its fields are, is checked by the replica that was asked.

use super::step_ca::{INTERMEDIATES, NewStepCa};
use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, IssuerKind, IssuerState, Rejection, State};

/// Roots of step-ca that are trusted at once: as many as intermediates of one.
const TRUSTED: usize = INTERMEDIATES;

pub(in crate::registry) fn change(state: &State, new: &NewStepCa) -> Decision {
    let invalid = |why: &str| Decision::from(Rejection::IssuerInvalid { why: why.to_owned() });
    if !state.has_step_ca() {
        return invalid(
            "the certificates of nodes do not come from a step-ca here (`server init --issuer step-ca`)",
        );
    }
    if !new.is_well_formed() {
        return invalid("what is given for step-ca is not well-formed");
    }
    if new.issuer.not_after <= state.at {
        return invalid("the root of step-ca has expired");
    }
    let known = state.issuers.get(&new.issuer.id);
    let taken = |other: &crate::registry::Issuer| {
        other.fingerprint == new.issuer.fingerprint && other.id != new.issuer.id
    };
    let is_another = known
        .is_some_and(|known| known.kind != IssuerKind::StepCa || known.fingerprint != new.issuer.fingerprint);
    if is_another
        || state.issuers.values().any(taken)
        || state.roots.iter().any(|root| root.fingerprint == new.issuer.fingerprint)
    {
        return invalid("another CA of this domain has its id or its certificate");
    }
    if known.is_some_and(|known| known.state == IssuerState::Revoked) {
        return invalid("this root of step-ca was revoked");
    }
    let trusted =
        state.issuers.values().filter(|issuer| issuer.step_ca.is_some() && issuer.state.is_trusted());
    if known.is_none() && trusted.count() >= TRUSTED {
        return Rejection::TooManyIssuers { max: TRUSTED }.into();
    }
    let current = state.step_ca_issuer().map(|(issuer, _)| issuer.id.clone());
    let before = current.filter(|id| *id != new.issuer.id);
    Decision::granted(vec![Event::StepCaChanged(Box::new(StepCaChanged { new: new.clone(), before }))])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCaChanged {
    pub new: NewStepCa,
    /// What signed until now, where the root is another.
    pub before: Option<IssuerId>,
}

impl Happened for StepCaChanged {
    const NAME: &'static str = "ca.step_ca_changed";

    fn fields(&self) -> AuditFields {
        let NewStepCa { issuer, access } = &self.new;
        vec![
            ("step_ca", AuditField::text(&issuer.id)),
            ("step_ca_fingerprint", AuditField::text(issuer.fingerprint.labelled())),
            ("step_ca_url", AuditField::text(&access.url)),
            ("step_ca_provisioner", AuditField::text(&access.provisioner)),
            ("step_ca_key_id", AuditField::text(&access.key_id)),
            ("before", AuditField::maybe(self.before.as_ref())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(old) = self.before.as_ref().and_then(|id| state.issuers.get_mut(id)) {
            old.state = IssuerState::Retiring;
        }
        let id = &self.new.issuer.id;
        let mut record = self.new.record();
        // What the same root's intermediates have signed stays good.
        if let (Some(known), Some(step_ca)) =
            (state.issuers.get(id).and_then(|known| known.step_ca.as_deref()), record.step_ca.as_deref_mut())
        {
            step_ca.intermediates.clone_from(&known.intermediates);
        }
        state.issuers.insert(id.clone(), record);
        state.ephemeral_version += 1;
    }
}
