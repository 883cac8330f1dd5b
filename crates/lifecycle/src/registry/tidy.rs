//! Tidying: tokens expire, and what can no longer matter is forgotten. Bounded, so that no entry grows large.

use super::alert::clear;
use super::event::{AuditField, AuditFields, Happened};
use super::issuance::lapse;
use super::node::rotate::RotationExpired;
use super::overlay::rekey::RekeyExpired;
use super::token::expire;
use crate::names::{IssuerId, KeyId, NodeId, Serial, Span, TokenId, WireguardKey};
use crate::registry::apply::Decision;
use crate::registry::{
    Certificate, Envelope, Event, Issuer, IssuerKind, IssuerState, Node, Owner, ReplicaToken, State, Token,
    TokenState,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long the exact reason of a refusal stays known after a token's end.
const TOKEN_MEMORY: Span = Span::from_days(7);
const KEY_MEMORY: Span = Span::from_days(30);
const AT_ONCE: usize = 256;

/// What has ended is ended, and nothing is forgotten.
pub(in crate::registry) fn expire(state: &State) -> Decision {
    Decision::granted(ended(state))
}

fn ended(state: &State) -> Vec<Event> {
    let mut events: Vec<Event> = expire::expired(state).take(AT_ONCE).collect();
    events.extend(unfetched_orders(state));
    events.extend(clear::quiet_suspicions(state).take(AT_ONCE));
    events.extend(lapse::lapsed(state));
    events
}

pub(in crate::registry) fn decide(state: &State) -> Decision {
    let mut events = ended(state);
    let (tokens, certificates, keys) = (old_tokens(state), old_certificates(state), old_keys(state));
    let (issuers, replica_tokens) = (old_issuers(state), old_replica_tokens(state));
    let wireguard_keys = state.rested_keys().take(AT_ONCE).collect();
    let revocations = old_revocations(state);
    let tidied = Tidied { tokens, certificates, keys, issuers, replica_tokens, wireguard_keys, revocations };
    if !tidied.is_empty() {
        events.push(Event::Tidied(tidied));
    }
    Decision::granted(events)
}

fn unfetched_orders(state: &State) -> impl Iterator<Item = Event> + '_ {
    let over = |node: &Arc<Node>| {
        let rotation = node.rotation.as_ref().filter(|rotation| rotation.is_over(state.at))?;
        Some(Event::RotationExpired(RotationExpired { node: node.id.clone(), order: rotation.order }))
    };
    let rekey_over = |node: &Arc<Node>| {
        let rekey = node.rekey.as_ref().filter(|rekey| rekey.is_over(state.at))?;
        Some(Event::RekeyExpired(RekeyExpired { node: node.id.clone(), order: rekey.order }))
    };
    state.nodes.values().flat_map(move |node| over(node).into_iter().chain(rekey_over(node))).take(AT_ONCE)
}

/// Issuers that have ended and on which nothing is on record any more. An ephemeral one that signs no more ends with the
/// last of its certificates; a revoked one is the reason why these are denied, for as long as they are on record.
fn old_issuers(state: &State) -> Vec<IssuerId> {
    let over = |issuer: &&Issuer| match (issuer.kind, issuer.state) {
        (_, IssuerState::Active) => false,
        (IssuerKind::Ephemeral, IssuerState::Revoked) => true,
        (IssuerKind::Ephemeral, IssuerState::Prepared | IssuerState::Retiring | IssuerState::Retired) => {
            false
        }
        (IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Pkcs11 | IssuerKind::StepCa, _) => {
            issuer.not_after <= state.at
        }
    };
    let drained = |issuer: &&Issuer| {
        issuer.is_ephemeral() && matches!(issuer.state, IssuerState::Retiring | IssuerState::Retired)
    };
    let of = |wanted: &dyn Fn(&&Issuer) -> bool, counts: &dyn Fn(&Certificate) -> bool| {
        let ids = state.issuers.values().filter(|issuer| wanted(issuer)).map(|issuer| &issuer.id);
        state.without_certificates(ids, counts)
    };
    let mut old = of(&over, &|_| true);
    old.extend(of(&drained, &|held| held.not_after > state.at));
    old
}

fn old_tokens(state: &State) -> Vec<TokenId> {
    let over = |token: &&Arc<Token>| {
        token.state != TokenState::Unused && token.expires_at.plus(TOKEN_MEMORY) <= state.at
    };
    state.tokens.values().filter(over).take(AT_ONCE).map(|token| token.id).collect()
}

fn old_replica_tokens(state: &State) -> Vec<TokenId> {
    let over = |token: &&ReplicaToken| token.expires_at.plus(TOKEN_MEMORY) <= state.at;
    state.replica_tokens.values().filter(over).take(AT_ONCE).map(|token| token.id).collect()
}

/// Revocations that an external issuer has not taken, of certificates that have expired meanwhile.
fn old_revocations(state: &State) -> Vec<Serial> {
    let over = state.undelivered_revocations.iter().filter(|(_, owed)| owed.not_after <= state.at);
    over.take(AT_ONCE).map(|(serial, _)| serial.clone()).collect()
}

/// Expired certificates, except the last one of each holder: that is how its end is told.
fn old_certificates(state: &State) -> Vec<Serial> {
    let expired = state.certificates.iter().filter(|(_, certificate)| certificate.not_after <= state.at);
    let mut found = BTreeSet::new();
    for (serial, certificate) in expired {
        let current = match &certificate.owner {
            Owner::Node(id) => state.nodes.get(id).and_then(|node| node.current_serial()),
            Owner::Operator(name) => state.operators.get(name).and_then(|operator| operator.serial.as_ref()),
            Owner::Bootstrap(_) => None,
            Owner::Replica(id) => state.member(*id).ok().and_then(|replica| replica.serial.as_ref()),
        };
        if current != Some(serial) {
            found.insert(serial.clone());
        }
        if found.len() == AT_ONCE {
            break;
        }
    }
    found.into_iter().collect()
}

fn old_keys(state: &State) -> Vec<KeyId> {
    let over = |key: &&crate::registry::OperatorKey| {
        key.revoked_at.unwrap_or(key.expires_at).plus(KEY_MEMORY) <= state.at
    };
    state.operator_keys.values().filter(over).take(AT_ONCE).map(|key| key.id).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tidied {
    pub tokens: Vec<TokenId>,
    pub certificates: Vec<Serial>,
    pub keys: Vec<KeyId>,
    pub issuers: Vec<IssuerId>,
    pub replica_tokens: Vec<TokenId>,
    /// Keys that were replaced and have rested.
    pub wireguard_keys: Vec<WireguardKey>,
    pub revocations: Vec<Serial>,
}

impl Tidied {
    fn is_empty(&self) -> bool {
        self.tokens.is_empty()
            && self.certificates.is_empty()
            && self.keys.is_empty()
            && self.issuers.is_empty()
            && self.replica_tokens.is_empty()
            && self.wireguard_keys.is_empty()
            && self.revocations.is_empty()
    }
}

impl Happened for Tidied {
    const NAME: &'static str = "registry.tidied";

    fn fields(&self) -> AuditFields {
        let later = [
            ("replica_tokens", self.replica_tokens.len() as u64),
            ("wireguard_keys", self.wireguard_keys.len() as u64),
            ("revocations", self.revocations.len() as u64),
        ];
        [
            ("tokens", AuditField::Number(self.tokens.len() as u64)),
            ("certificates", AuditField::Number(self.certificates.len() as u64)),
            ("keys", AuditField::Number(self.keys.len() as u64)),
            ("issuers", AuditField::texts(&self.issuers)),
        ]
        .into_iter()
        // Lines of old logs are made again from their commands: what came later is there only if it is said.
        .chain(later.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, AuditField::Number(n))))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        for issuer in &self.issuers {
            if state.issuers.remove(issuer).is_some_and(|gone| !gone.is_of_domain()) {
                state.ephemeral_version += 1;
            }
        }
        for token in self.tokens.iter().filter_map(|id| state.tokens.remove(id)) {
            state.token_by_hash.remove(&token.hash);
        }
        for token in self.replica_tokens.iter().filter_map(|id| state.replica_tokens.remove(id)) {
            state.replica_token_by_hash.remove(&token.hash);
        }
        for serial in &self.revocations {
            state.undelivered_revocations.remove(serial);
        }
        for serial in &self.certificates {
            state.forget_certificate(serial);
        }
        for key in self.keys.iter().filter_map(|id| state.operator_keys.remove(id)) {
            state.operator_key_by_hash.remove(&key.hash);
        }
        for key in &self.wireguard_keys {
            state.forget_rested_key(key);
        }
        state.forget_idle_keys();
    }
}
