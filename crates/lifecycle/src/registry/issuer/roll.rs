//! Rolling the issuer: prepare (request out, certificate in), activate, retire; and revoking one.

use crate::names::IssuerId;
use crate::registry::apply::Decision;
use crate::registry::{
    ActivateIssuer, CertificateStatus, Event, FoundIssuer, Issuer, IssuerState, Owner, PrepareRoll,
    Rejection, Rewrap, State,
};
use std::collections::BTreeSet;

/// How many a refusal names.
const HOLDERS: usize = 10;

/// One roll at a time. Asked again, the request that is out stays the one.
pub(in crate::registry) fn prepare(state: &State, prepare: &PrepareRoll) -> Decision {
    if let Some(issuer) = in_state(state, IssuerState::Prepared) {
        return Rejection::RollUnderway { issuer: issuer.id.clone() }.into();
    }
    match &state.roll {
        Some(_) => Decision::granted(Vec::new()),
        None => Decision::granted(vec![Event::RollPrepared(prepare.clone())]),
    }
}

/// The certificate has come back: the issuer is trusted from now on, and signs once it is activated.
pub(in crate::registry) fn certify(state: &State, issuer: &FoundIssuer) -> Decision {
    let known = state.issuers.get(&issuer.id);
    if known.is_some_and(|known| known.fingerprint == issuer.fingerprint) {
        return Decision::granted(Vec::new());
    }
    let Some(roll) = &state.roll else {
        return Rejection::NoRoll.into();
    };
    // Rewrapped meanwhile, the key would stay behind under the old key-encryption key.
    let same_key = roll.sealed_key == issuer.sealed_key;
    let within_root = state.roots.iter().any(|root| issuer.not_after <= root.not_after);
    if known.is_some() || !same_key || !within_root || issuer.not_after <= state.at {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::RollCertified(Box::new(issuer.clone()))])
}

pub(in crate::registry) fn activate(state: &State, activate: &ActivateIssuer) -> Decision {
    match state.issuers.get(&activate.issuer) {
        None => Rejection::IssuerNotFound { issuer: activate.issuer.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Active => Decision::granted(Vec::new()),
        Some(issuer) if issuer.state != IssuerState::Prepared || issuer.not_after <= state.at => {
            Rejection::IssuerNotPrepared { issuer: issuer.id.clone() }.into()
        }
        Some(_) => {
            let (current, total) = state.adoption();
            if current < total && !activate.force {
                return Rejection::NotAdopted { current, total }.into();
            }
            let before = state.active_issuer().map(|issuer| issuer.id.clone());
            Decision::granted(vec![Event::IssuerActivated { activate: activate.clone(), before }])
        }
    }
}

pub(in crate::registry) fn retire(state: &State, id: &IssuerId) -> Decision {
    match state.issuers.get(id) {
        None => Rejection::IssuerNotFound { issuer: id.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Retired => Decision::granted(Vec::new()),
        Some(issuer) if issuer.state != IssuerState::Retiring => in_use(state, issuer).into(),
        Some(_) if state.good_certificates(id).next().is_none() && !state.presents_leaf_of(id) => {
            Decision::granted(vec![Event::IssuerRetired { issuer: id.clone() }])
        }
        Some(issuer) => in_use(state, issuer).into(),
    }
}

pub(in crate::registry) fn revoke(state: &State, id: &IssuerId, reason: &str) -> Decision {
    match state.issuers.get(id) {
        None => Rejection::IssuerNotFound { issuer: id.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Revoked => Decision::granted(Vec::new()),
        Some(_) => Decision::granted(vec![Event::IssuerRevoked {
            issuer: id.clone(),
            reason: reason.to_owned(),
            leaves: leaves(state, id),
        }]),
    }
}

/// Every key that is held, and no other: nothing may stay behind under the old key.
pub(in crate::registry) fn rewrap(state: &State, rewrap: &Rewrap) -> Decision {
    let held = state.issuers.values().filter(|issuer| !issuer.sealed_key.is_empty()).map(|issuer| &issuer.id);
    let same =
        held.eq(rewrap.issuers.iter().map(|(id, _)| id)) && state.roll.is_some() == rewrap.roll.is_some();
    let sealed = rewrap.issuers.iter().map(|(_, sealed)| sealed).chain(&rewrap.roll);
    let whole = !rewrap.audit.is_empty() && sealed.into_iter().all(|sealed| !sealed.is_empty());
    if same && whole {
        Decision::granted(vec![Event::Rewrapped(rewrap.clone())])
    } else {
        Rejection::PreparedStale.into()
    }
}

/// Certificates under an issuer that are good, the control plane's own included.
fn leaves(state: &State, id: &IssuerId) -> u64 {
    let own = u64::from(state.presents_leaf_of(id));
    u64::try_from(state.good_certificates(id).count()).unwrap_or(u64::MAX).saturating_add(own)
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
        leaves: leaves(state, id),
        holders,
        drained_at,
        state: issuer_state,
    }
}

fn in_state(state: &State, wanted: IssuerState) -> Option<&Issuer> {
    state.issuers.values().find(|issuer| issuer.state == wanted)
}
