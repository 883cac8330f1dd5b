//! Bringing back a domain whose time was carried far ahead by a wrong clock.
//!
//! Effective time never runs backwards, because what was denied, drained or set to rest was judged by it. So it is all
//! settled first, as it stands at the wrong time and for good; only then is the time set back, and what was issued or
//! noted in the meantime is dated now. Nothing that had been refused is accepted again for the lower time.

use super::accept_clock::offset;
use crate::clock;
use crate::names::{NodeId, Serial, Span, Timestamp, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{
    Certificate, Envelope, Event, Node, OperatorKey, RecoveryKind, RecoveryState, RecoveryToken, Rejection,
    State, TokenState,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairClock {
    /// What the wall clock says.
    pub to: Timestamp,
}

/// Nothing to do where time is not ahead.
pub(in crate::registry) fn decide(state: &State, repair: &RepairClock) -> Decision {
    let to = repair.to;
    if state.domain.as_ref().is_some_and(|domain| to < domain.founded_at) {
        return Rejection::ClockBehind { wall: to, last: state.at }.into();
    }
    if !clock::is_behind(to, state.at) {
        return Decision::granted(Vec::new());
    }
    Decision::granted(vec![Event::ClockRepaired(ClockRepaired {
        from: state.at,
        to,
        tokens: unused(state).count() as u64 + state.unused_replica_tokens().count() as u64,
        superseded: superseded(state).count() as u64,
        issued_ahead: state.certificates.values().filter(|held| is_ahead(held, to)).count() as u64,
        keys: lapsed(state, to).count() as u64,
        addresses: state.addresses.resting.len() as u64,
    })])
}

/// Enrollment tokens that nobody has used: whoever holds one asks for another.
fn unused(state: &State) -> impl Iterator<Item = TokenId> + '_ {
    state.tokens.values().filter(|token| token.state == TokenState::Unused).map(|token| token.id)
}

/// Certificates that a newer one has taken the place of: their time beside it was judged by the wrong clock.
fn superseded(state: &State) -> impl Iterator<Item = &Serial> + '_ {
    state.certificates.iter().filter(|(_, held)| held.grace_end().is_some()).map(|(serial, _)| serial)
}

/// Issued at the wrong time: it says itself that it is not valid before then, so nobody can use it.
fn is_ahead(held: &Certificate, to: Timestamp) -> bool {
    held.issued_at > to
}

/// API keys that have ended at the wrong time and would not have by now.
fn lapsed(state: &State, to: Timestamp) -> impl Iterator<Item = &OperatorKey> + '_ {
    let lapsed = move |key: &&OperatorKey| {
        key.revoked_at.is_none() && key.expires_at <= state.at && key.expires_at > to
    };
    state.operator_keys.values().filter(lapsed)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockRepaired {
    pub from: Timestamp,
    pub to: Timestamp,
    /// Tokens of nodes and of replicas that are void.
    pub tokens: u64,
    /// Superseded certificates that are denied.
    pub superseded: u64,
    /// Certificates that were issued at the wrong time, and end.
    pub issued_ahead: u64,
    /// API keys that stay expired.
    pub keys: u64,
    /// Overlay addresses whose cool-down begins anew.
    pub addresses: u64,
}

impl Happened for ClockRepaired {
    const NAME: &'static str = "clock.repaired";

    fn fields(&self) -> AuditFields {
        vec![
            ("from", AuditField::text(self.from)),
            ("to", AuditField::text(self.to)),
            ("offset", AuditField::Text(offset(self.from, self.to))),
            ("tokens_voided", AuditField::Number(self.tokens)),
            ("superseded_denied", AuditField::Number(self.superseded)),
            ("issued_ahead_ended", AuditField::Number(self.issued_ahead)),
            ("keys_expired", AuditField::Number(self.keys)),
            ("addresses_resting", AuditField::Number(self.addresses)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        settle(state, self.to);
        redate(state, self.to);
        state.at = self.to;
        state.set_back =
            Span::from_millis(state.set_back.millis().saturating_add(self.from.since(self.to).millis()));
        state.minute = (self.to, 0);
        // Their ids are of the wrong time; nobody who could repeat one of these commands has outlived the restart.
        state.recent.clear();
    }
}

/// What had ended has ended for good.
fn settle(state: &mut State, to: Timestamp) {
    for token in unused(state).collect::<Vec<_>>() {
        state.set_token(token, TokenState::Expired);
    }
    state.void_replica_tokens(to);
    state.lapse_intents();
    let over: Vec<Serial> = superseded(state).cloned().collect();
    state.deny(&over);
    let keys: Vec<_> = lapsed(state, to).map(|key| key.id).collect();
    for key in keys {
        if let Some(key) = state.operator_keys.get_mut(&key) {
            key.expires_at = to;
        }
    }
    // An operator's recovery token is like an enrollment token. A host's own is judged by the calendar, like its
    // certificate: it is what brings back a host whose certificate was issued at the wrong time.
    let at = state.at;
    let ended = |token: &RecoveryToken| {
        token.kind == RecoveryKind::Repair && token.is_valid() && token.is_expired(at)
    };
    let nodes: Vec<NodeId> =
        state.nodes.values().filter(|n| n.recovery.tokens.iter().any(ended)).map(|n| n.id.clone()).collect();
    for id in nodes {
        state.change_node(&id, |node| {
            for token in node.recovery.tokens.iter_mut().filter(|token| ended(token)) {
                token.state = RecoveryState::Revoked;
            }
        });
    }
}

/// What is dated after `to` is dated `to`, and ends no later than it would have if it had begun then.
fn redate(state: &mut State, to: Timestamp) {
    // One whose issuer is forgotten was over then, and nothing could verify it any more.
    let orphaned = |held: &Certificate| !state.issuers.contains_key(&held.issuer);
    let ended = state.certificates.iter().filter(|(_, held)| orphaned(held));
    for serial in ended.map(|(serial, _)| serial.clone()).collect::<Vec<_>>() {
        if let Some(held) = state.certificates.get_mut(&serial).map(Arc::make_mut) {
            (held.not_after, held.renew_at) = (held.not_after.min(to), held.renew_at.min(to));
        }
    }
    for serial in state.certificates.keys().cloned().collect::<Vec<_>>() {
        if let Some(held) = state.certificates.get_mut(&serial).filter(|held| is_dated(held, to)) {
            certificate(Arc::make_mut(held), to);
        }
    }
    for id in state.nodes.keys().cloned().collect::<Vec<_>>() {
        state.change_node(&id, |held| node(held, to));
    }
    for id in state.tokens.keys().copied().collect::<Vec<_>>() {
        if let Some(token) = state.tokens.get_mut(&id).map(Arc::make_mut) {
            (token.created_at, token.expires_at) = lasting(token.created_at, token.expires_at, to);
            match &mut token.state {
                TokenState::Used { at, .. } | TokenState::Revoked { at } => *at = to.min(*at),
                TokenState::Unused | TokenState::Expired => {}
            }
        }
    }
    for id in state.operator_keys.keys().copied().collect::<Vec<_>>() {
        if let Some(key) = state.operator_keys.get_mut(&id) {
            (key.created_at, key.expires_at) = lasting(key.created_at, key.expires_at, to);
            key.revoked_at = key.revoked_at.map(|at| at.min(to));
        }
    }
    for name in state.operators.keys().cloned().collect::<Vec<_>>() {
        if let Some(operator) = state.operators.get_mut(&name) {
            operator.added_at = operator.added_at.min(to);
        }
    }
    for name in state.tenants.keys().cloned().collect::<Vec<_>>() {
        if let Some(tenant) = state.tenants.get_mut(&name) {
            tenant.created_at = tenant.created_at.min(to);
        }
    }
    for id in state.vclusters.keys().cloned().collect::<Vec<_>>() {
        if let Some(vcluster) = state.vclusters.get_mut(&id).map(Arc::make_mut) {
            vcluster.created_at = vcluster.created_at.min(to);
            vcluster.config.redate(to);
        }
    }
    state.defaults.redate(to);
    for id in state.issuers.keys().cloned().collect::<Vec<_>>() {
        if let Some(issuer) = state.issuers.get_mut(&id) {
            issuer.revoked_at = issuer.revoked_at.map(|at| at.min(to));
        }
    }
    for root in &mut state.roots {
        root.retired_at = root.retired_at.map(|at| at.min(to));
    }
    for id in state.alerts.keys().copied().collect::<Vec<_>>() {
        if let Some(alert) = state.alerts.get_mut(&id) {
            alert.since = alert.since.min(to);
            alert.again = alert.again.map(|at| at.min(to));
            alert.acknowledged_at = alert.acknowledged_at.map(|at| at.min(to));
        }
    }
    // A cool-down begins anew, rather than being shorter by what the clock was ahead.
    let resting = state.addresses.resting.keys().map(|(_, address)| ((to, *address), ())).collect();
    state.addresses.resting = resting;
    state.resting_keys =
        state.resting_keys.iter().map(|((_, key), node)| ((to, *key), node.clone())).collect();
    // The one on disk says that it is not valid yet: the next start issues another.
    if let Some(own) = &mut state.server_certificate {
        own.not_after = own.not_after.min(to);
    }
    for replica in state.server_certificates.keys().copied().collect::<Vec<_>>() {
        if let Some(own) = state.server_certificates.get_mut(&replica) {
            own.not_after = own.not_after.min(to);
        }
    }
    for id in state.replicas.keys().copied().collect::<Vec<_>>() {
        if let Some(replica) = state.replicas.get_mut(&id) {
            replica.joined_at = replica.joined_at.min(to);
            replica.removed_at = replica.removed_at.map(|at| at.min(to));
        }
    }
    for id in state.replica_tokens.keys().copied().collect::<Vec<_>>() {
        if let Some(token) = state.replica_tokens.get_mut(&id) {
            (token.created_at, token.expires_at) = lasting(token.created_at, token.expires_at, to);
            token.used_at = token.used_at.map(|at| at.min(to));
        }
    }
}

fn is_dated(held: &Certificate, to: Timestamp) -> bool {
    is_ahead(held, to) || held.denied_at.is_some_and(|at| at > to)
}

fn certificate(held: &mut Certificate, to: Timestamp) {
    if is_ahead(held, to) {
        // Ended, and not denied: its host recovers by itself, as one whose certificate has expired.
        (held.issued_at, held.renew_at, held.not_after) = (to, held.renew_at.min(to), held.not_after.min(to));
    }
    held.denied_at = held.denied_at.map(|at| at.min(to));
}

fn node(node: &mut Node, to: Timestamp) {
    let earlier = |at: Option<Timestamp>| at.map(|at| at.min(to));
    node.state_since = node.state_since.min(to);
    node.enrolled_at = earlier(node.enrolled_at);
    node.last_seen = earlier(node.last_seen);
    node.registered_at = earlier(node.registered_at);
    for assignment in &mut node.assignments {
        assignment.at = assignment.at.min(to);
    }
    node.config.redate(to);
    for session in &mut node.sessions.open {
        session.opened_at = session.opened_at.min(to);
    }
    // A drain that was begun then has as long from now.
    let latest = node.drain_within.map(|within| to.plus(within));
    node.drain_by = node.drain_by.map(|by| latest.map_or(by, |latest| by.min(latest)));
    for rotation in node.rotation.iter_mut().chain(&mut node.rekey) {
        rotation.at = rotation.at.min(to);
    }
    for account in node.quarantine.iter_mut().chain(&mut node.ended) {
        account.at = account.at.min(to);
    }
    if let Some(report) = node.report.as_mut().map(Arc::make_mut) {
        (report.at, report.since) = (report.at.min(to), report.since.min(to));
    }
    if let Some(refused) = &mut node.recovery.refused {
        refused.at = refused.at.min(to);
    }
    for token in &mut node.recovery.tokens {
        (token.minted_at, token.expires_at) = lasting(token.minted_at, token.expires_at, to);
        if let RecoveryState::Used { at, .. } = &mut token.state {
            *at = to.min(*at);
        }
    }
}

/// Begun by now, and no longer than it was to last.
fn lasting(begun: Timestamp, end: Timestamp, to: Timestamp) -> (Timestamp, Timestamp) {
    if begun <= to { (begun, end) } else { (to, end.min(to.plus(end.since(begun)))) }
}
