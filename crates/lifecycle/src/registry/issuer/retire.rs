//! Retiring an issuer once no good certificate depends on it.

use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{CertificateStatus, Envelope, Event, Issuer, IssuerState, Owner, Rejection, State};
use std::collections::BTreeSet;

/// How many holders a refusal names.
const HOLDERS: usize = 10;

pub(in crate::registry) fn retire(state: &State, id: &IssuerId) -> Decision {
    match state.issuers.get(id) {
        None => Rejection::IssuerNotFound { issuer: id.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Retired => Decision::granted(Vec::new()),
        Some(issuer) if issuer.state != IssuerState::Retiring => in_use(state, issuer).into(),
        Some(_) if state.good_certificates(id).next().is_none() && !state.presents_leaf_of(id) => {
            Decision::granted(vec![Event::IssuerRetired(IssuerRetired { issuer: id.clone() })])
        }
        Some(issuer) => in_use(state, issuer).into(),
    }
}

/// Names some of those that have to renew before the issuer can be retired, and until when the certificates are valid
/// whose holders have renewed.
fn in_use(state: &State, issuer: &Issuer) -> Rejection {
    let id = &issuer.id;
    let name = |owner: &Owner| match owner {
        Owner::Node(id) => id.to_string(),
        Owner::Operator(name) => format!("operator {name}"),
    };
    let own = state.presents_leaf_of(id).then(|| "the control plane itself".to_owned());
    let mut holders = BTreeSet::new();
    let mut drained_at = None;
    for held in state.good_certificates(id) {
        match held.status {
            CertificateStatus::Superseded { until } => {
                drained_at = drained_at.max(Some(until.min(held.not_after)))
            }
            CertificateStatus::Live | CertificateStatus::Denied => drop(holders.insert(name(&held.owner))),
        }
    }
    let issuer_state = (issuer.state != IssuerState::Retiring).then_some(issuer.state);
    let holders = holders.into_iter().chain(own).take(HOLDERS).collect();
    Rejection::IssuerInUse {
        issuer: id.clone(),
        leaves: state.leaves(id),
        holders,
        drained_at,
        state: issuer_state,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerRetired {
    pub issuer: IssuerId,
}

impl Happened for IssuerRetired {
    const NAME: &'static str = "ca.retired";

    fn fields(&self) -> AuditFields {
        vec![("issuer", AuditField::text(&self.issuer))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.end_issuer(&self.issuer, IssuerState::Retired);
    }
}
