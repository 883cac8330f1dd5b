//! Certifying a roll: the next issuer's certificate has come back.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Issuer, IssuerKind, IssuerState, NewIssuer, Rejection, State};

/// The certificate has come back: the issuer is trusted from now on, and signs once it is activated.
pub(in crate::registry) fn certify(state: &State, issuer: &NewIssuer) -> Decision {
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
    // What a replica holds in its memory has another way in.
    if issuer.kind == IssuerKind::Ephemeral {
        return Rejection::IssuerInvalid { why: "it is ephemeral, and no issuer of a roll".to_owned() }
            .into();
    }
    if state.is_divided() || known.is_some() || !same_key || !within_root || issuer.not_after <= state.at {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::RollCertified(Box::new(issuer.clone()))])
}

impl Happened for NewIssuer {
    const NAME: &'static str = "ca.prepared";

    fn fields(&self) -> AuditFields {
        vec![
            ("issuer", AuditField::text(&self.id)),
            ("issuer_fingerprint", AuditField::text(self.fingerprint.labelled())),
            ("subject", AuditField::text(&self.subject)),
            ("not_after", AuditField::text(self.not_after)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.roll = None;
        state.issuers.insert(self.id.clone(), Issuer::of(self, IssuerState::Prepared));
        state.bundle_version += 1;
    }
}
