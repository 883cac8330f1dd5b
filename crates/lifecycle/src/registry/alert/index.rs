//! The open alerts. There is one of a kind about each node, which whoever raises it asks for at every attempt of a stranger: it is
//! looked up and not searched.

use super::{Alert, AlertKind};
use crate::names::{AlertId, NodeId, TenantId};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// What an alert is about: a node, or a tenant, or else the domain.
type AlertSubject = (AlertKind, Option<NodeId>, Option<TenantId>);

/// Open alerts by id, and by what they are about. Stored are the alerts alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OrdMap<AlertId, Alert>", into = "OrdMap<AlertId, Alert>")]
pub struct AlertIndex {
    alerts: OrdMap<AlertId, Alert>,
    by_subject: OrdMap<AlertSubject, AlertId>,
}

impl AlertIndex {
    /// The open alert of a kind about a node, or about a tenant, or else about the domain.
    pub fn with_subject(
        &self,
        kind: AlertKind,
        node: Option<&NodeId>,
        tenant: Option<&TenantId>,
    ) -> Option<&Alert> {
        self.alerts.get(self.by_subject.get(&(kind, node.cloned(), tenant.cloned()))?)
    }

    pub fn insert(&mut self, id: AlertId, alert: Alert) {
        let subject = (alert.kind, alert.node.clone(), alert.tenant.clone());
        self.by_subject.entry(subject).or_insert(id);
        self.alerts.insert(id, alert);
    }

    pub fn remove(&mut self, id: &AlertId) {
        let Some(alert) = self.alerts.remove(id) else { return };
        let subject = (alert.kind, alert.node, alert.tenant);
        if self.by_subject.get(&subject) == Some(id) {
            self.by_subject.remove(&subject);
        }
    }

    /// Changes what was said of an alert, and not what it is about.
    pub fn get_mut(&mut self, id: &AlertId) -> Option<&mut Alert> {
        self.alerts.get_mut(id)
    }
}

impl Deref for AlertIndex {
    type Target = OrdMap<AlertId, Alert>;

    fn deref(&self) -> &Self::Target {
        &self.alerts
    }
}

impl From<OrdMap<AlertId, Alert>> for AlertIndex {
    fn from(stored: OrdMap<AlertId, Alert>) -> Self {
        stored.into_iter().collect()
    }
}

impl FromIterator<(AlertId, Alert)> for AlertIndex {
    fn from_iter<I: IntoIterator<Item = (AlertId, Alert)>>(alerts: I) -> Self {
        let mut open = Self::default();
        alerts.into_iter().for_each(|(id, alert)| open.insert(id, alert));
        open
    }
}

impl From<AlertIndex> for OrdMap<AlertId, Alert> {
    fn from(open: AlertIndex) -> Self {
        open.alerts
    }
}
