//! Those who run the fleet, and their automation.

pub(super) mod add;
pub(super) mod key;
pub(super) mod remove;
pub(super) mod renew;

use super::{Actor, Role, State, Tenants, Vclusters};
use crate::names::{KeyId, OperatorName, SecretHash, Serial, Timestamp, Ulid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub added_by: String,
    pub added_at: Timestamp,
    /// The serial of the certificate in use, if any.
    pub serial: Option<Serial>,
    /// Issued by a renewal and never used. Until it is, the certificate in use stays good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Serial>,
    /// Certificates that renewals have replaced, denied, until they have expired and are tidied away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Serial>,
    /// What its role is narrowed to.
    #[serde(default, skip_serializing_if = "Vclusters::is_all")]
    pub vclusters: Vclusters,
}

impl Operator {
    /// Whether this serial speaks for the operator.
    pub fn holds(&self, serial: &Serial) -> bool {
        self.serial.as_ref() == Some(serial) || self.renewed.as_ref() == Some(serial)
    }

    /// Every serial of the operator that is on record.
    pub fn serials(&self) -> impl Iterator<Item = &Serial> {
        self.serial.iter().chain(&self.renewed).chain(&self.replaced)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorKey {
    pub id: KeyId,
    pub hash: SecretHash,
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub created_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    /// What its role is narrowed to.
    #[serde(default, skip_serializing_if = "Vclusters::is_all")]
    pub vclusters: Vclusters,
    /// The operators that it came from: the one that made it, or those behind the key that made it, whose record may be forgotten
    /// before this one's. Nothing of keys of before: there `created_by` tells, as far as those records go.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub behind: BTreeSet<OperatorName>,
}

impl OperatorKey {
    pub fn is_good(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && at < self.expires_at
    }

    /// Made by this operator itself.
    fn is_made_by(&self, name: &OperatorName) -> bool {
        self.behind.contains(name) || self.created_by.strip_prefix("user:") == Some(name.as_str())
    }

    /// The key that made it, if one did.
    fn maker(&self) -> Option<KeyId> {
        self.created_by.strip_prefix("key:").and_then(|id| Ulid::parse(id).ok()).map(KeyId)
    }
}

impl State {
    /// The operators behind whatever this actor makes. A key may carry the name of an operator: then that one is behind it too.
    fn operators_behind(&self, actor: &Actor) -> BTreeSet<OperatorName> {
        let mut behind = BTreeSet::new();
        let mut key = match actor {
            Actor::Operator { name, .. } => {
                behind.insert(name.clone());
                None
            }
            Actor::Key { id } => Some(*id),
            Actor::Local { .. }
            | Actor::Node { .. }
            | Actor::Svid { .. }
            | Actor::Stranger
            | Actor::Reconciler
            | Actor::Replica { .. } => None,
        };
        while let Some(record) = key.and_then(|id| self.operator_keys.get(&id)) {
            let made_by =
                record.created_by.strip_prefix("user:").and_then(|name| OperatorName::parse(name).ok());
            let names = record.behind.iter().chain([&record.name]).cloned().chain(made_by);
            behind.extend(names.filter(|name| self.operators.contains_key(name)));
            key = record.maker();
        }
        behind
    }

    /// The keys that go with an operator: those that carry its name, those that it made, and those that any of these made, however
    /// often that goes on, through keys that have ended too.
    fn keys_of(&self, name: &OperatorName) -> BTreeSet<KeyId> {
        let mut made: std::collections::BTreeMap<KeyId, Vec<KeyId>> = std::collections::BTreeMap::new();
        for key in self.operator_keys.values() {
            if let Some(maker) = key.maker() {
                made.entry(maker).or_default().push(key.id);
            }
        }
        let own = self.operator_keys.values().filter(|key| key.name == *name || key.is_made_by(name));
        let mut open: Vec<KeyId> = own.map(|key| key.id).collect();
        let mut found = BTreeSet::new();
        while let Some(key) = open.pop() {
            if found.insert(key) {
                open.extend(made.get(&key).into_iter().flatten());
            }
        }
        found
    }
}
