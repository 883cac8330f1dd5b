//! What holds of every step, whatever was asked.

use lifecycle::names::Timestamp;
use lifecycle::registry::{
    Alert, Applied, Claim, Command, Envelope, Event, Register, ReplicaToken, State, TokenState,
    check_invariants,
};
use std::collections::BTreeSet;

#[track_caller]
pub fn check(before: &State, after: &State, at: Timestamp, envelope: &Envelope, applied: &Applied) {
    assert_eq!(check_invariants(before, after), Ok(()));
    match repaired(applied) {
        Some(to) => assert_eq!(after.at, to, "time is what it was set back to"),
        None => assert_eq!(after.at, before.at.max(at), "time is the later of the last and this"),
    }
    there_is_no_change_without_an_event(before, after, applied);
    a_token_has_one_end(before, after, repaired(applied).is_some());
    indexes_agree_with_what_they_index(after);
    no_event_tells_a_secret(after, envelope, applied);
}

/// Where an operator's repair has set the time.
fn repaired(applied: &Applied) -> Option<Timestamp> {
    applied.events.iter().find_map(|event| match event {
        Event::ClockRepaired(repaired) => Some(repaired.to),
        _ => None,
    })
}

#[track_caller]
fn there_is_no_change_without_an_event(before: &State, after: &State, applied: &Applied) {
    let told = u64::from(applied.events.iter().any(Event::is_audited));
    assert_eq!(after.revision, before.revision + told, "the revision counts what the trail tells");
    if applied.events.is_empty() {
        let untouched = State { at: after.at, recent: after.recent.clone(), ..before.clone() };
        assert_eq!(*after, untouched, "changed without an event");
    }
}

#[track_caller]
fn a_token_has_one_end(before: &State, after: &State, redated: bool) {
    for (id, token) in &before.tokens {
        match after.tokens.get(id) {
            Some(now) if token.state != TokenState::Unused && redated => {
                let ends = [now, token].map(|token| std::mem::discriminant(&token.state));
                assert_eq!(ends[0], ends[1], "changed after its end");
            }
            Some(now) if token.state != TokenState::Unused => assert_eq!(now, token, "changed after its end"),
            Some(_) => {}
            None => assert_ne!(token.state, TokenState::Unused, "{id} was forgotten before its end"),
        }
    }
}

#[track_caller]
fn indexes_agree_with_what_they_index(state: &State) {
    assert_eq!(state.tokens.len(), state.token_by_hash.len());
    assert!(state.tokens.values().all(|token| state.token_with_hash(&token.hash) == Some(token)));
    assert_eq!(state.replica_tokens.len(), state.replica_token_by_hash.len());
    let known = |token: &ReplicaToken| state.replica_token_with_hash(&token.hash) == Some(token);
    assert!(state.replica_tokens.values().all(known));
    assert_eq!(state.operator_keys.len(), state.operator_key_by_hash.len());
    assert!(state.operator_keys.values().all(|key| state.operator_key_with_hash(&key.hash) == Some(key)));
    for (key, holder) in &state.wireguard_keys {
        let holder = &state.nodes[holder];
        // One that was in use stays taken.
        assert!(holder.ever_active || holder.wireguard.map(|wireguard| wireguard.key) == Some(*key));
    }
    for (address, holder) in &state.addresses.held {
        assert_eq!(state.nodes[holder].address, Some(*address));
    }
    let subject = |alert: &Alert| (alert.kind, alert.node.clone(), alert.tenant.clone());
    let kinds: BTreeSet<_> = state.alerts.values().map(subject).collect();
    assert_eq!(kinds.len(), state.alerts.len(), "one open alert per kind and node");
    let found = |alert: &Alert| {
        let (node, tenant) = (alert.node.as_ref(), alert.tenant.as_ref());
        state.alerts.with_subject(alert.kind, node, tenant) == Some(alert)
    };
    assert!(state.alerts.values().all(found));
    let mut counted = state.clone();
    counted.count_machines();
    assert_eq!(counted.machines, state.machines, "the machines of each tenant");
    for (id, alert) in state.alerts.iter() {
        assert_eq!(*id, alert.id);
    }
}

#[track_caller]
fn no_event_tells_a_secret(state: &State, envelope: &Envelope, applied: &Applied) {
    if applied.events.is_empty() {
        return;
    }
    let lines = serde_json::to_string(&applied.events.iter().map(|event| event.fields()).collect::<Vec<_>>());
    let lines = lines.expect("an audit line is JSON");
    let brought = match &envelope.command {
        Command::Enroll(enroll) => enroll.credential.token().copied(),
        Command::Recover(recover) => Some(recover.token),
        Command::JoinReplica(join) => Some(join.hash),
        Command::Register(Register { claim: Claim::Token(token), .. }) => Some(*token),
        _ => None,
    };
    let known = state.token_by_hash.keys().chain(state.operator_key_by_hash.keys());
    let known = known.chain(state.recovery_by_hash.keys()).chain(state.replica_token_by_hash.keys()).copied();
    for hash in known.chain(brought) {
        assert!(!lines.contains(&hash.hex()), "the hash of a secret is in {lines}");
    }
}
