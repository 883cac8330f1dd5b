//! Revoking an issuer: nothing that it signed is good any more.

use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, IssuerState, Rejection, State};

pub(in crate::registry) fn revoke(state: &State, id: &IssuerId, reason: &str) -> Decision {
    match state.issuers.get(id) {
        None => Rejection::IssuerNotFound { issuer: id.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Revoked => Decision::granted(Vec::new()),
        Some(_) => Decision::granted(vec![Event::IssuerRevoked(IssuerRevoked {
            issuer: id.clone(),
            reason: reason.to_owned(),
            leaves: state.leaves(id),
        })]),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerRevoked {
    pub issuer: IssuerId,
    pub reason: String,
    /// How many certificates that were good are denied by it.
    pub leaves: u64,
}

impl Happened for IssuerRevoked {
    const NAME: &'static str = "ca.revoked";

    fn fields(&self) -> AuditFields {
        vec![
            ("issuer", AuditField::text(&self.issuer)),
            ("reason", AuditField::text(&self.reason)),
            ("leaves", AuditField::Number(self.leaves)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.end_issuer(&self.issuer, IssuerState::Revoked);
        state.denials += 1;
    }
}
