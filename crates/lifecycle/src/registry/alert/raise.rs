//! Alerts: raised and cleared by the control plane, acknowledged by operators.

use crate::names::{AlertId, NodeId, TenantId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, NodeQuarantined};
use crate::registry::node::contact;
use crate::registry::policy::CloneRule;
use crate::registry::{Alert, AlertKind, Envelope, Event, Node, NodeState, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseAlert {
    pub kind: AlertKind,
    pub node: Option<NodeId>,
    pub detail: String,
}

/// Raised again with other words, an open alert counts up. A copied identity may cost the node its freedom.
pub(in crate::registry) fn raise(state: &State, envelope: &Envelope, raise: &RaiseAlert) -> Decision {
    let node = raise.node.as_ref().map(|id| state.nodes.get(id));
    if node.is_some_and(|node| node.is_none_or(|node| node.state.is_gone())) {
        return Decision::granted(Vec::new());
    }
    // Confirmed while the alert was on its way: nothing would ever clear it.
    let over = |node: &Arc<Node>| node.state != NodeState::Enrolled;
    if contact::ENROLLMENT.contains(&raise.kind) && node.flatten().is_none_or(over) {
        return Decision::granted(Vec::new());
    }
    // Renewed meanwhile.
    let fresh = |node: &Arc<Node>| state.expiring(node, state.at).is_none();
    if raise.kind == AlertKind::CertExpiring && node.flatten().is_none_or(fresh) {
        return Decision::granted(Vec::new());
    }
    // Heard meanwhile.
    let heard = |node: &Arc<Node>| state.silent_for_long(node, state.at).is_none();
    if raise.kind == AlertKind::NodeSilent && node.flatten().is_none_or(heard) {
        return Decision::granted(Vec::new());
    }
    // Left meanwhile.
    let left = |node: &Arc<Node>| node.state != NodeState::Active;
    if raise.kind == AlertKind::ClaimedElsewhere && node.flatten().is_none_or(left) {
        return Decision::granted(Vec::new());
    }
    let open = state.open_alert(raise.kind, raise.node.as_ref());
    if open.is_some_and(|open| open.detail == raise.detail) {
        return Decision::granted(Vec::new());
    }
    let mut events = vec![Event::AlertRaised(AlertRaised {
        alert: open.map_or(AlertId(envelope.id.0), |open| open.id),
        kind: raise.kind,
        node: raise.node.clone(),
        tenant: None,
        detail: raise.detail.clone(),
        count: 1,
    })];
    if raise.kind == AlertKind::CloneSuspected
        && state.policy.clone_rule == CloneRule::Quarantine
        && let Some(node) = node.flatten().filter(|node| !node.quarantined)
    {
        let reason = format!("{}: {}", raise.kind, raise.detail);
        events.push(Event::NodeQuarantined(NodeQuarantined { node: node.id.clone(), reason }));
    }
    Decision::granted(events)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertRaised {
    pub alert: AlertId,
    pub kind: AlertKind,
    pub node: Option<NodeId>,
    /// Whose operators it is for, where it is about no node and not about the whole domain.
    pub tenant: Option<TenantId>,
    pub detail: String,
    /// How often since it was last raised.
    pub count: u64,
}

impl Happened for AlertRaised {
    const NAME: &'static str = "alert.raised";

    fn fields(&self) -> AuditFields {
        let mut fields = vec![
            ("alert_id", AuditField::text(self.alert)),
            ("kind", AuditField::text(self.kind)),
            ("node_id", AuditField::maybe(self.node.as_ref())),
            ("detail", AuditField::text(&self.detail)),
        ];
        if let Some(tenant) = &self.tenant {
            fields.push(("tenant", AuditField::text(tenant)));
        }
        if self.count > 1 {
            fields.push(("count", AuditField::Number(self.count)));
        }
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        let open = state.alerts.with_subject(self.kind, self.node.as_ref(), self.tenant.as_ref());
        let open = open.map(|open| open.id);
        match open.and_then(|id| state.alerts.get_mut(&id)) {
            Some(alert) => {
                alert.count = alert.count.saturating_add(self.count);
                alert.detail = self.detail.clone();
                alert.again = Some(at);
            }
            None => {
                let raised = Alert {
                    id: self.alert,
                    kind: self.kind,
                    node: self.node.clone(),
                    since: at,
                    count: self.count,
                    detail: self.detail.clone(),
                    acknowledged: false,
                    again: None,
                    acknowledged_at: None,
                    tenant: self.tenant.clone(),
                };
                state.alerts.insert(self.alert, raised);
            }
        }
    }
}
