//! Operators and the API keys of their automation.

use crate::names::{KeyId, OperatorName, Span, SpiffeId};
use crate::registry::apply::Decision;
use crate::registry::{
    Actor, AddOperator, CreateOperatorKey, Event, Operator, OperatorKey, Rejection, State, Tenants,
};

const KEY_TTL_MIN: Span = Span::from_secs(10);
const KEY_TTL_MAX: Span = Span::from_days(3650);

pub(in crate::registry) fn add(state: &State, actor: &Actor, add: &AddOperator) -> Decision {
    if state.operators.contains_key(&add.name) {
        return Rejection::OperatorExists { name: add.name.clone() }.into();
    }
    if let Err(rejection) = check_tenants(state, &add.tenants) {
        return rejection.into();
    }
    if let Some(certificate) = &add.certificate {
        let subject = state.domain.as_ref().map(|domain| SpiffeId::operator(&domain.name, &add.name));
        if Some(&certificate.subject) != subject.as_ref() || !certificate.may_be_recorded(state) {
            return Rejection::PreparedStale.into();
        }
    }
    let operator = Operator {
        name: add.name.clone(),
        role: add.role,
        tenants: add.tenants.clone(),
        added_by: actor.to_string(),
        added_at: state.at,
        serial: add.certificate.as_ref().map(|certificate| certificate.serial.clone()),
        renewed: None,
        replaced: Vec::new(),
    };
    Decision::granted(vec![Event::OperatorAdded { operator, certificate: add.certificate.clone() }])
}

/// Whoever goes takes the keys that carry the name along.
pub(in crate::registry) fn remove(state: &State, name: &OperatorName) -> Decision {
    if !state.operators.contains_key(name) {
        return Rejection::OperatorNotFound { name: name.clone() }.into();
    }
    let theirs = state.operator_keys.values().filter(|key| key.name == *name && key.revoked_at.is_none());
    let revoked = theirs.map(|key| Event::OperatorKeyRevoked { key: key.id, name: name.clone() });
    Decision::granted([Event::OperatorRemoved { name: name.clone() }].into_iter().chain(revoked).collect())
}

/// A key needs no operator record: automation may have nobody behind it.
pub(in crate::registry) fn create_key(state: &State, actor: &Actor, create: &CreateOperatorKey) -> Decision {
    if !(KEY_TTL_MIN..=KEY_TTL_MAX).contains(&create.ttl) {
        return Rejection::OperatorKeyTtl { min: KEY_TTL_MIN, max: KEY_TTL_MAX }.into();
    }
    if let Err(rejection) = check_tenants(state, &create.tenants) {
        return rejection.into();
    }
    if state.operator_keys.contains_key(&create.key) || state.operator_key_by_hash.contains_key(&create.hash)
    {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::OperatorKeyCreated(OperatorKey {
        id: create.key,
        hash: create.hash,
        name: create.name.clone(),
        role: create.role,
        tenants: create.tenants.clone(),
        created_by: actor.to_string(),
        created_at: state.at,
        expires_at: state.at.plus(create.ttl),
        revoked_at: None,
    })])
}

/// Revoking twice is revoking once.
pub(in crate::registry) fn revoke_key(state: &State, id: KeyId) -> Decision {
    match state.operator_keys.get(&id) {
        None => Rejection::OperatorKeyNotFound { key: id }.into(),
        Some(key) if key.revoked_at.is_some() => Decision::granted(Vec::new()),
        Some(key) => Decision::granted(vec![Event::OperatorKeyRevoked { key: id, name: key.name.clone() }]),
    }
}

fn check_tenants(state: &State, tenants: &Tenants) -> Result<(), Rejection> {
    match tenants {
        Tenants::All => Ok(()),
        Tenants::Only(names) => match names.iter().find(|name| !state.tenants.contains_key(*name)) {
            Some(tenant) => Err(Rejection::TenantNotFound { tenant: tenant.clone() }),
            None => Ok(()),
        },
    }
}
