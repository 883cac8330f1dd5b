//! Renewing an operator's certificate: one for a new key, asked for with the one in use.
//!
//! A lost answer must not lock the operator out: the certificate in use stays good until the new one is first
//! used, and is denied then. Asked again, what was issued before and never used is denied and replaced.

use crate::names::{KeyHash, OperatorName, Serial, SpiffeId};
use crate::registry::apply::Decision;
use crate::registry::{Actor, Envelope, Event, Operator, Outcome, Rejection, RenewOperator, State};

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
    events.push(Event::OperatorRenewed {
        name: renew.name.clone(),
        with: with.clone(),
        certificate: Box::new(certificate.clone()),
        denied: operator.renewed.clone().filter(|unused| unused != with),
    });
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
    (operator.renewed.as_ref() == Some(used)).then(|| Event::OperatorCertificateReplaced {
        name: operator.name.clone(),
        serial: old,
        by: used.clone(),
    })
}
