//! Alerts: raised and cleared by the control plane, acknowledged by operators.

use crate::names::{AlertId, Span};
use crate::registry::apply::Decision;
use crate::registry::node::contact;
use crate::registry::policy::CloneRule;
use crate::registry::{Alert, AlertKind, Envelope, Event, Node, NodeState, RaiseAlert, Rejection, State};
use std::sync::Arc;

const QUIET: Span = Span::from_days(1);
/// Nothing but quiet says that they were wrong.
const SUSPICIONS: [AlertKind; 2] = [AlertKind::CloneSuspected, AlertKind::RecoveryNotNeeded];

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
    let open = state.open_alert(raise.kind, raise.node.as_ref());
    if open.is_some_and(|open| open.detail == raise.detail) {
        return Decision::granted(Vec::new());
    }
    let mut events = vec![Event::AlertRaised {
        alert: open.map_or(AlertId(envelope.id.0), |open| open.id),
        kind: raise.kind,
        node: raise.node.clone(),
        detail: raise.detail.clone(),
    }];
    if raise.kind == AlertKind::CloneSuspected
        && state.policy.clone_rule == CloneRule::Quarantine
        && let Some(node) = node.flatten().filter(|node| !node.quarantined)
    {
        let reason = format!("{}: {}", raise.kind, raise.detail);
        events.push(Event::NodeQuarantined { node: node.id.clone(), reason });
    }
    Decision::granted(events)
}

pub(in crate::registry) fn clear(state: &State, id: AlertId) -> Decision {
    Decision::granted(state.alerts.get(&id).map(Alert::cleared).into_iter().collect())
}

/// A suspicion that somebody has looked at, and that nothing has nourished for a day. If it was right, it comes
/// again. A node that is held because of it keeps it until it is released.
pub(in crate::registry) fn laid_to_rest(state: &State) -> impl Iterator<Item = Event> + '_ {
    let held = |alert: &Alert| {
        let node = alert.node.as_ref().and_then(|id| state.nodes.get(id));
        node.is_some_and(|node| node.quarantined && !node.state.is_gone())
    };
    let over = move |alert: &&Alert| {
        SUSPICIONS.contains(&alert.kind)
            && alert.acknowledged
            && alert.quiet_since().plus(QUIET) <= state.at
            && !held(alert)
    };
    state.alerts.values().filter(over).map(Alert::cleared)
}

pub(in crate::registry) fn acknowledge(state: &State, id: AlertId) -> Decision {
    match state.alerts.get(&id) {
        None => Rejection::AlertNotFound { alert: id }.into(),
        Some(alert) if alert.acknowledged => Decision::granted(Vec::new()),
        Some(alert) => Decision::granted(vec![Event::AlertAcknowledged {
            alert: id,
            kind: alert.kind,
            node: alert.node.clone(),
        }]),
    }
}
