//! Revoking an issuer: nothing that it signed is good any more.

use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Confirmation, Envelope, Event, Issuer, IssuerState, Owner, Rejection, State};
use std::collections::BTreeSet;

pub(in crate::registry) fn revoke(
    state: &State,
    id: &IssuerId,
    reason: &str,
    confirm: &Confirmation,
) -> Decision {
    match state.issuers.get(id) {
        None => Rejection::IssuerNotFound { issuer: id.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Revoked => Decision::granted(Vec::new()),
        Some(issuer) if let Err(needed) = check_confirmed(state, issuer, confirm) => needed.into(),
        Some(_) => Decision::granted(vec![Event::IssuerRevoked(IssuerRevoked {
            issuer: id.clone(),
            reason: reason.to_owned(),
            leaves: state.leaves(id),
        })]),
    }
}

/// Without the issuer that signs, no node can enroll, renew or recover; with ephemeral issuers, no operator and no replica gets
/// a certificate.
fn check_confirmed(state: &State, issuer: &Issuer, confirm: &Confirmation) -> Result<(), Rejection> {
    if issuer.state != IssuerState::Active || confirm.is_not_asked() {
        return Ok(());
    }
    let holders = state.good_certificates(&issuer.id).filter_map(|held| match &held.owner {
        Owner::Node(node) => Some(node),
        Owner::Operator(_) => None,
    });
    let affected = holders.collect::<BTreeSet<_>>().len() as u64;
    let consequence = if issuer.is_ephemeral() {
        format!(
            "issuer {} signs now: every certificate that it signed is refused at once, and their nodes have to recover or enroll again; its replica publishes another issuer by itself",
            issuer.id
        )
    } else if state.has_ephemeral_issuers() {
        format!(
            "issuer {} signs the certificates of operators and of the control plane: every certificate that it signed is refused at once, and none of these can be issued until another issuer is active; nodes have theirs from ephemeral issuers, which go on",
            issuer.id
        )
    } else {
        format!(
            "issuer {} is the only one that signs: every certificate that it signed is refused at once, and none can be issued until another issuer is active",
            issuer.id
        )
    };
    confirm.check(issuer.id.as_str(), &consequence, affected)
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
