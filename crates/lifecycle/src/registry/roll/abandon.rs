//! Abandoning a roll that is not active yet: its requests, its prepared issuers and its new root are forgotten.

use crate::names::{Fingerprint, IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Confirmation, Envelope, Event, IssuerState, Rejection, RootState, State};

pub(in crate::registry) fn abandon(state: &State) -> Decision {
    let issuers = state.domain_issuers_in(IssuerState::Prepared).map(|issuer| issuer.id.clone()).collect();
    let root = state.root_in(RootState::Prepared).map(|root| root.fingerprint);
    let abandoned = RollAbandoned { issuers, root };
    let requested = state.pending_roll.is_some() || state.roll.is_some();
    if !requested && abandoned.issuers.is_empty() && root.is_none() {
        return Rejection::NoRoll.into();
    }
    Decision::granted(vec![Event::RollAbandoned(abandoned)])
}

impl State {
    /// Certificates that have come back took the root key: whoever gives them up has named one of their issuers twice. It is asked
    /// before the command, whose stored form has no place for an answer.
    pub fn check_abandon(&self, confirm: &Confirmation) -> Result<(), Rejection> {
        let prepared = self.issuers_by_use(IssuerState::Prepared);
        let Some(first) = prepared.first() else { return Ok(()) };
        let ids: Vec<&str> = prepared.iter().map(|issuer| issuer.id.as_str()).collect();
        let (issuers, are) = if ids.len() == 1 { ("issuer", "is") } else { ("issuers", "are") };
        let mut consequence = format!(
            "{issuers} {} {are} prepared already, with a certificate that the root key signed: certificates and keys are forgotten, and another \
             roll needs the root key again",
            ids.join(" and ")
        );
        if self.root_in(RootState::Prepared).is_some() {
            consequence.push_str(
                "; the new root is forgotten too, but stays certified by the old one: its key has to be destroyed and its cross-certificate denied",
            );
        }
        confirm.check(first.id.as_str(), &consequence, 0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollAbandoned {
    /// Prepared ones; they have signed nothing.
    pub issuers: Vec<IssuerId>,
    pub root: Option<Fingerprint>,
}

impl Happened for RollAbandoned {
    const NAME: &'static str = "ca.abandoned";

    fn fields(&self) -> AuditFields {
        let root = self.root.map(|root| root.labelled());
        vec![
            ("issuers", AuditField::texts(&self.issuers)),
            ("root_fingerprint", AuditField::maybe(root.as_ref())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        (state.roll, state.pending_roll) = (None, None);
        for issuer in &self.issuers {
            state.issuers.remove(issuer);
        }
        state.roots.retain(|root| Some(root.fingerprint) != self.root);
        if let Some(root) = &self.root {
            state.lists.remove(root);
        }
        if !self.issuers.is_empty() || self.root.is_some() {
            state.bundle_version += 1;
        }
    }
}
