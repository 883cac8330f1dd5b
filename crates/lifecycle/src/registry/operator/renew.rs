//! Renewing an operator's certificate: one for a new key, asked for with the one in use.
//!
//! A lost answer must not lock the operator out: the certificate in use stays good until the new one is first
//! used, and is denied then. Asked again, what was issued before and never used is denied and replaced.

use crate::names::{KeyHash, NodeId, OperatorName, Serial, SpiffeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, Issued, Operator, Outcome, Rejection, State};
use serde::{Deserialize, Serialize};

/// Asks for a certificate for a new key, with the one in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewOperator {
    /// As the certificate in use says, never as the request does.
    pub name: OperatorName,
    /// What the replica made ready.
    pub certificate: Issued,
}

/// Certificates of one operator on record; what has expired is tidied away. Renewing in a loop does not grow the
/// registry.
const ON_RECORD: usize = 64;

/// May the operator renew with this serial, for this key? Asked before signing, and again when applied.
pub fn operator_renewable<'a>(
    state: &'a State,
    name: &OperatorName,
    with: &Serial,
    key: KeyHash,
) -> Result<&'a Operator, Rejection> {
    let operator = state.operators.get(name).filter(|operator| operator.holds(with));
    let operator = operator.filter(|_| state.is_good(with)).ok_or(Rejection::Unauthenticated)?;
    // The key of a renewal whose answer was lost may come again.
    let mut known =
        operator.serials().filter(|serial| operator.renewed.as_ref() != Some(*serial) || *serial == with);
    let own = known.any(|serial| state.certificates.get(serial).is_some_and(|held| held.key == key));
    if own || state.certified_keys.contains_key(&key) {
        return Err(Rejection::KeyInUse);
    }
    if operator.serials().count() >= ON_RECORD {
        return Err(Rejection::TooManyOperatorCertificates { name: name.clone() });
    }
    Ok(operator)
}

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, renew: &RenewOperator) -> Decision {
    let Actor::Operator { serial: with, .. } = &envelope.actor else {
        return Rejection::Unauthenticated.into();
    };
    let certificate = &renew.certificate;
    let operator = match operator_renewable(state, &renew.name, with, certificate.key) {
        Ok(operator) => operator,
        Err(rejection) => return rejection.into(),
    };
    let subject = state.domain.as_ref().map(|domain| SpiffeId::operator(&domain.name, &renew.name));
    if Some(&certificate.subject) != subject.as_ref() || !certificate.may_be_recorded(state) {
        return Rejection::PreparedStale.into();
    }
    let mut events: Vec<Event> = replacement(operator, with).into_iter().collect();
    events.push(Event::OperatorRenewed(OperatorRenewed {
        name: renew.name.clone(),
        with: with.clone(),
        certificate: Box::new(certificate.clone()),
        denied: operator.renewed.clone().filter(|unused| unused != with),
    }));
    let serial = certificate.serial.clone();
    Decision { events, answer: Ok(Outcome::Renewed { serial, replayed: false }) }
}

/// The first request with a renewed certificate. Nothing, if it was used before.
pub(in crate::registry) fn first_use(state: &State, envelope: &Envelope, name: &OperatorName) -> Decision {
    let (Some(operator), Actor::Operator { serial, .. }) = (state.operators.get(name), &envelope.actor)
    else {
        return Rejection::OperatorNotFound { name: name.clone() }.into();
    };
    Decision::granted(replacement(operator, serial).into_iter().collect())
}

/// What follows from an operator using this certificate.
fn replacement(operator: &Operator, used: &Serial) -> Option<Event> {
    let old = operator.serial.clone()?;
    (operator.renewed.as_ref() == Some(used)).then(|| {
        Event::OperatorCertificateReplaced(OperatorCertificateReplaced {
            name: operator.name.clone(),
            serial: old,
            by: used.clone(),
        })
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorRenewed {
    pub name: OperatorName,
    /// Asked for with this one.
    pub with: Serial,
    pub certificate: Box<Issued>,
    /// Issued before and never used: its answer was lost.
    pub denied: Option<Serial>,
}

impl Happened for OperatorRenewed {
    const NAME: &'static str = "operator.renewed";

    fn fields(&self) -> AuditFields {
        vec![
            ("operator", AuditField::text(&self.name)),
            ("cert_serial", AuditField::text(&self.certificate.serial)),
            ("mtls_cert_fingerprint", AuditField::text(self.certificate.fingerprint.labelled())),
            ("issuer", AuditField::text(&self.certificate.issuer)),
            ("not_after", AuditField::text(self.certificate.not_after)),
            ("with_serial", AuditField::text(&self.with)),
            ("denied_serials", AuditField::texts(self.denied.as_slice())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.record_operator_certificate(&self.name, &self.certificate);
        state.deny(&self.denied);
        if let Some(operator) = state.operators.get_mut(&self.name) {
            operator.replaced.extend(self.denied.clone());
            operator.renewed = Some(self.certificate.serial.clone());
        }
    }
}

/// A renewed certificate was used for the first time: the one before is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorCertificateReplaced {
    pub name: OperatorName,
    pub serial: Serial,
    pub by: Serial,
}

impl Happened for OperatorCertificateReplaced {
    const NAME: &'static str = "operator.certificate_replaced";

    fn fields(&self) -> AuditFields {
        vec![
            ("operator", AuditField::text(&self.name)),
            ("cert_serial", AuditField::text(&self.serial)),
            ("replaced_by", AuditField::text(&self.by)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.deny([&self.serial]);
        if let Some(operator) = state.operators.get_mut(&self.name) {
            operator.replaced.push(self.serial.clone());
            operator.serial = Some(self.by.clone());
            operator.renewed = None;
        }
    }
}
