//! API keys of operators' automation.

use super::add::{check_scope, tenants_field, vclusters_field};
use crate::names::{KeyId, NodeId, OperatorName, SecretHash, Span};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, OperatorKey, Rejection, Role, State, Tenants, Vclusters};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateOperatorKey {
    pub key: KeyId,
    pub hash: SecretHash,
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub ttl: Span,
    /// What the role is narrowed to.
    #[serde(default, skip_serializing_if = "Vclusters::is_all")]
    pub vclusters: Vclusters,
}

const KEY_TTL_MIN: Span = Span::from_secs(10);
const KEY_TTL_MAX: Span = Span::from_days(3650);

/// A key needs no operator record: automation may have nobody behind it.
pub(in crate::registry) fn create_key(state: &State, actor: &Actor, create: &CreateOperatorKey) -> Decision {
    if !(KEY_TTL_MIN..=KEY_TTL_MAX).contains(&create.ttl) {
        return Rejection::OperatorKeyTtl { min: KEY_TTL_MIN, max: KEY_TTL_MAX }.into();
    }
    if let Err(rejection) = check_scope(state, create.role, &create.tenants, &create.vclusters) {
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
        behind: state.operators_behind(actor),
        created_at: state.at,
        expires_at: state.at.plus(create.ttl),
        revoked_at: None,
        vclusters: create.vclusters.clone(),
    })])
}

/// Revoking twice is revoking once.
pub(in crate::registry) fn revoke_key(state: &State, id: KeyId) -> Decision {
    match state.operator_keys.get(&id) {
        None => Rejection::OperatorKeyNotFound { key: id }.into(),
        Some(key) if key.revoked_at.is_some() => Decision::granted(Vec::new()),
        Some(key) => Decision::granted(vec![Event::OperatorKeyRevoked(OperatorKeyRevoked {
            key: id,
            name: key.name.clone(),
        })]),
    }
}

impl Happened for OperatorKey {
    const NAME: &'static str = "operator_key.created";

    fn fields(&self) -> AuditFields {
        [
            ("key_id", AuditField::text(self.id)),
            ("operator", AuditField::text(&self.name)),
            ("role", AuditField::text(self.role.as_str())),
            ("tenants", tenants_field(&self.tenants)),
            ("expires_at", AuditField::text(self.expires_at)),
        ]
        .into_iter()
        .chain(vclusters_field(&self.vclusters))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.operator_key_by_hash.insert(self.hash, self.id);
        state.operator_keys.insert(self.id, self.clone());
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorKeyRevoked {
    pub key: KeyId,
    pub name: OperatorName,
}

impl Happened for OperatorKeyRevoked {
    const NAME: &'static str = "operator_key.revoked";

    fn fields(&self) -> AuditFields {
        vec![("key_id", AuditField::text(self.key)), ("operator", AuditField::text(&self.name))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        if let Some(key) = state.operator_keys.get_mut(&self.key) {
            key.revoked_at = Some(at);
        }
    }
}
