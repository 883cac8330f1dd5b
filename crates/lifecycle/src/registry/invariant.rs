//! What must hold after every step. Checked in property tests and simulation, not in production.

use super::{NodeState, Owner, State, TokenState};
use std::collections::BTreeMap;

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {what}")]
pub struct Violation {
    pub id: &'static str,
    pub what: String,
}

/// Checks one state, and the step from the one before it.
pub fn check(before: &State, after: &State) -> Result<(), Violation> {
    a_token_leads_to_at_most_one_node(before, after)?;
    a_serial_is_recorded_once(after)?;
    a_denied_serial_stays_denied(before, after)?;
    an_address_belongs_to_one_node(before, after)?;
    a_wireguard_key_belongs_to_one_node(after)?;
    only_known_transitions_occur(before, after)?;
    no_certificate_outlives_its_issuer(after)
}

fn violated(id: &'static str, what: impl Into<String>) -> Result<(), Violation> {
    Err(Violation { id, what: what.into() })
}

/// I1.
fn a_token_leads_to_at_most_one_node(before: &State, after: &State) -> Result<(), Violation> {
    for (id, token) in &before.tokens {
        if let (TokenState::Used { node: was, .. }, Some(now)) = (&token.state, after.tokens.get(id))
            && !matches!(&now.state, TokenState::Used { node, .. } if node == was)
        {
            return violated("I1", format!("token {id} was used for {was:?} and is now {:?}", now.state));
        }
    }
    let mut spent: BTreeMap<_, usize> = BTreeMap::new();
    for node in after.nodes.values() {
        if let Some(token) = node.token {
            *spent.entry(token).or_default() += 1;
        }
    }
    match spent.iter().find(|(_, nodes)| **nodes > 1) {
        Some((token, nodes)) => violated("I1", format!("token {token} led to {nodes} nodes")),
        None => Ok(()),
    }
}

/// I2.
fn a_serial_is_recorded_once(state: &State) -> Result<(), Violation> {
    let mut holders = BTreeMap::new();
    for node in state.nodes.values() {
        for serial in &node.serials {
            if let Some(other) = holders.insert(serial, &node.id) {
                return violated("I2", format!("serial {serial} belongs to {other} and {}", node.id));
            }
            match state.certificates.get(serial) {
                Some(certificate) if certificate.owner == Owner::Node(node.id.clone()) => {}
                _ => {
                    return violated(
                        "I2",
                        format!("serial {serial} of {} is not on record as its own", node.id),
                    );
                }
            }
        }
    }
    Ok(())
}

/// I3.
fn a_denied_serial_stays_denied(before: &State, after: &State) -> Result<(), Violation> {
    for (serial, certificate) in &before.certificates {
        let forgotten = !after.certificates.contains_key(serial);
        if forgotten && certificate.not_after > after.at {
            return violated("I3", format!("serial {serial} was forgotten before its end"));
        }
        if before.is_denied(serial) && !forgotten && !after.is_denied(serial) {
            return violated("I3", format!("serial {serial} was denied and is accepted again"));
        }
    }
    Ok(())
}

/// I4.
fn an_address_belongs_to_one_node(before: &State, after: &State) -> Result<(), Violation> {
    for node in after.nodes.values() {
        if let Some(address) = node.address
            && after.addresses.held.get(&address) != Some(&node.id)
        {
            return violated("I4", format!("{address} of {} is held by someone else", node.id));
        }
    }
    for (released, address) in before.addresses.resting.keys() {
        let again = after.addresses.held.contains_key(address);
        if again && released.plus(before.policy.overlay_cooldown) > after.at {
            return violated("I4", format!("{address} came back before its cool-down ended"));
        }
    }
    Ok(())
}

/// I5.
fn a_wireguard_key_belongs_to_one_node(state: &State) -> Result<(), Violation> {
    for node in state.nodes.values() {
        if let Some(wireguard) = node.wireguard
            && state.wireguard_keys.get(&wireguard.key) != Some(&node.id)
        {
            return violated("I5", format!("the WireGuard key of {} is someone else's", node.id));
        }
    }
    Ok(())
}

/// I7.
fn only_known_transitions_occur(before: &State, after: &State) -> Result<(), Violation> {
    for (id, node) in &before.nodes {
        let Some(now) = after.nodes.get(id) else {
            return violated("I7", format!("node {id} vanished"));
        };
        if now.state != node.state && !node.state.may_become(now.state) {
            return violated("I7", format!("node {id} went from {} to {}", node.state, now.state));
        }
    }
    let born = |state: NodeState| matches!(state, NodeState::Registered | NodeState::Enrolled);
    match after.nodes.iter().find(|(id, node)| !before.nodes.contains_key(*id) && !born(node.state)) {
        Some((id, node)) => violated("I7", format!("node {id} was born {}", node.state)),
        None => Ok(()),
    }
}

/// I12, as far as the registry knows: what was released is on record because release follows the record.
fn no_certificate_outlives_its_issuer(state: &State) -> Result<(), Violation> {
    for (serial, certificate) in &state.certificates {
        match state.issuers.get(&certificate.issuer) {
            Some(issuer) if certificate.not_after <= issuer.not_after => {}
            _ => return violated("I12", format!("serial {serial} outlives its issuer")),
        }
    }
    Ok(())
}
