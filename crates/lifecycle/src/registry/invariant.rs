//! What must hold after every step. Checked in property tests and simulation, not in production.

use super::{
    CertificateStatus, ConfigChange, IssuerKind, IssuerState, MOST_REPLICAS, MOST_SESSIONS, NodeState,
    Overlay, OverlayScope, Owner, RecoveryKind, RecoveryState, RecoveryToken, Replica, RootState, State,
    TokenState, Vclusters,
};
use crate::names::{IssuerUse, ReplicaId, Serial, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    an_operator_has_its_own_certificates(after)?;
    a_bootstrap_identity_has_its_own_certificates(after)?;
    a_denied_serial_stays_denied(before, after)?;
    an_address_belongs_to_one_node(before, after)?;
    a_wireguard_key_belongs_to_one_node(after)?;
    a_replaced_wireguard_key_rests(before, after)?;
    a_tombstone_keeps_the_wireguard_key_of_a_node_that_was_active(before, after)?;
    hardware_belongs_to_one_node(after)?;
    only_known_transitions_occur(before, after)?;
    no_certificate_outlives_its_issuer(after)?;
    a_node_that_is_gone_has_nothing_good(after)?;
    what_was_superseded_stays_so(before, after)?;
    at_most_one_certificate_of_a_node_is_unseen(after)?;
    one_issuer_signs(before, after)?;
    one_root_is_active(before, after)?;
    ephemeral_issuers_are_their_replicas_own(before, after)?;
    what_step_ca_owes_is_not_good(after)?;
    keys_point_to_what_certifies_them(after)?;
    an_overlay_holds_its_peers_and_nobody_else(before, after)?;
    recovery_tokens_are_few_and_known(after)?;
    what_ended_a_recovery_token_is_final(before, after)?;
    a_report_is_of_this_life(after)?;
    sessions_are_open_once_and_on_living_nodes(after)?;
    a_node_is_in_a_vcluster_of_its_tenant(after)?;
    changes_of_configuration_are_counted_once(before, after)?;
    a_replica_token_leads_to_at_most_one_replica(before, after)?;
    replicas_have_their_own_certificates(after)?;
    members_are_few_and_apart(before, after)?;
    counters_never_fall(before, after)
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
        if let (Some(was), Some(now)) = (&token.node, after.tokens.get(id))
            && now.node.as_ref() != Some(was)
        {
            return violated("I1", format!("token {id} was for {was} and is now for {:?}", now.node));
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

/// I2, of operators: what is on record is their own, and what was replaced is denied.
fn an_operator_has_its_own_certificates(state: &State) -> Result<(), Violation> {
    let mut holders = BTreeMap::new();
    for operator in state.operators.values() {
        for serial in operator.serials() {
            if let Some(other) = holders.insert(serial, &operator.name) {
                return violated("I2", format!("serial {serial} belongs to {other} and {}", operator.name));
            }
            let owner = state.certificates.get(serial).map(|certificate| &certificate.owner);
            if owner != Some(&Owner::Operator(operator.name.clone())) {
                let name = &operator.name;
                return violated(
                    "I2",
                    format!("serial {serial} of operator {name} is not on record as its own"),
                );
            }
        }
        if let Some(serial) = operator.replaced.iter().find(|serial| !state.is_denied(serial)) {
            return violated("I2", format!("serial {serial} of {} was replaced and is good", operator.name));
        }
    }
    Ok(())
}

/// I2, of bootstrap identities: what is on record under a name is of that name, and none is without a certificate.
fn a_bootstrap_identity_has_its_own_certificates(state: &State) -> Result<(), Violation> {
    for bootstrap in state.bootstraps.values() {
        let owner = Owner::Bootstrap(bootstrap.name.clone());
        let own = |serial: &Serial| state.certificates.get(serial).is_some_and(|held| held.owner == owner);
        if bootstrap.serials.is_empty() || !bootstrap.serials.iter().all(own) {
            let what =
                format!("bootstrap identity {} is not on record with its certificates", bootstrap.name);
            return violated("I2", what);
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

/// I5, of keys that were replaced: they are in nobody's use, stay their node's, and come free after the cool-down alone. Of a
/// node that was never active nobody has used the key.
fn a_replaced_wireguard_key_rests(before: &State, after: &State) -> Result<(), Violation> {
    for ((_, key), holder) in &after.resting_keys {
        let used = after.nodes.values().any(|node| node.wireguard.is_some_and(|has| has.key == *key));
        if used || after.wireguard_keys.get(key) != Some(holder) {
            return violated("I5", format!("a key that {holder} has replaced is in use, or not its own"));
        }
    }
    for (key, holder) in &before.wireguard_keys {
        match after.wireguard_keys.get(key) {
            Some(now) if now == holder => continue,
            Some(now) => return violated("I5", format!("a key of {holder} went to {now}")),
            None => {}
        }
        let over = |since: &Timestamp| since.plus(before.policy.overlay_cooldown) <= after.at;
        let rested = before.resting_keys.keys().any(|(since, rested)| rested == key && over(since));
        let unused = before.nodes.get(holder).is_none_or(|node| !node.ever_active);
        if !rested && !unused {
            return violated("I5", format!("a key of {holder} came free before its cool-down ended"));
        }
    }
    match after.nodes.values().find(|node| node.rekey.is_some() && node.wireguard.is_none()) {
        Some(node) => violated("I5", format!("{} is to replace a key that it does not have", node.id)),
        None => Ok(()),
    }
}

/// I6: of what identifies a machine, each piece belongs to at most one node that is not gone; and the index says whose it is.
fn hardware_belongs_to_one_node(state: &State) -> Result<(), Violation> {
    for node in state.nodes.values().filter(|node| !node.state.is_gone()) {
        for identifier in node.identity.iter().flat_map(|identity| identity.identifiers()) {
            if state.hardware.get(&identifier) != Some(&node.id) {
                return violated("I6", format!("{identifier} of {} is someone else's", node.id));
            }
        }
    }
    for (identifier, holder) in &state.hardware {
        let identity = state.nodes.get(holder).and_then(|node| node.identity.as_ref());
        if !identity.is_some_and(|identity| identity.identifiers().any(|own| own == *identifier)) {
            return violated("I6", format!("{identifier} is not of {holder}"));
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
            // An ephemeral one is forgotten when the last of its certificates has ended.
            None if certificate.not_after <= state.at => {}
            _ => return violated("I12", format!("serial {serial} outlives its issuer")),
        }
    }
    Ok(())
}

/// I5, of tombstones. One that was never active gives its key back.
fn a_tombstone_keeps_the_wireguard_key_of_a_node_that_was_active(
    before: &State,
    after: &State,
) -> Result<(), Violation> {
    for (id, node) in after.nodes.iter().filter(|(_, node)| node.state.is_gone()) {
        let had = before.nodes.get(id).and_then(|node| node.wireguard);
        let kept = if node.ever_active { had } else { None };
        if node.wireguard != kept {
            return violated("I5", format!("the tombstone of {id} has {:?}", node.wireguard));
        }
    }
    Ok(())
}

/// I3, of nodes: each serial by itself, so that a new life of the name does not revive it. The address is free.
fn a_node_that_is_gone_has_nothing_good(state: &State) -> Result<(), Violation> {
    for (id, node) in state.nodes.iter().filter(|(_, node)| node.state.is_gone()) {
        let status = |serial| state.certificates.get(serial).map(|certificate| certificate.status);
        if node.serials.iter().any(|serial| status(serial) != Some(CertificateStatus::Denied)) {
            return violated("I3", format!("{id} is {} and not all of it is denied", node.state));
        }
        if node.address.is_some() || node.rotation.is_some() {
            return violated("I7", format!("{id} is {} and still holds something", node.state));
        }
    }
    Ok(())
}

/// D32: a superseded certificate never gets more time than it was left.
fn what_was_superseded_stays_so(before: &State, after: &State) -> Result<(), Violation> {
    for (serial, certificate) in &before.certificates {
        let now = after.certificates.get(serial).map(|certificate| certificate.status);
        let same = now.is_none_or(|now| now == certificate.status || now == CertificateStatus::Denied);
        if matches!(certificate.status, CertificateStatus::Superseded { .. }) && !same {
            return violated("D32", format!("serial {serial} was superseded and is {now:?}"));
        }
    }
    Ok(())
}

/// D32: what was lost is denied before something new is issued.
fn at_most_one_certificate_of_a_node_is_unseen(state: &State) -> Result<(), Violation> {
    for (id, node) in &state.nodes {
        let unseen = node.serials.iter().filter_map(|serial| state.certificates.get(serial));
        let unseen = unseen.filter(|held| held.is_unseen() && held.status == CertificateStatus::Live);
        if unseen.count() > 1 {
            return violated("D32", format!("{id} has two certificates that it never showed"));
        }
    }
    Ok(())
}

/// D13: only the arrows of a roll, one issuer that signs, and no key where it is of no use.
fn one_issuer_signs(before: &State, after: &State) -> Result<(), Violation> {
    use IssuerState::{Active, Prepared, Retired, Retiring, Revoked};
    for (id, issuer) in &after.issuers {
        let was = before.issuers.get(id).map(|issuer| issuer.state);
        let first = before.domain.is_none();
        let known = match (was, issuer.state) {
            (Some(was), now) if was == now => true,
            (None, Active) => first || issuer.is_ephemeral() || issuer.kind == IssuerKind::StepCa,
            // An operator may name the step-ca of before again.
            (Some(Retiring), Active) => issuer.kind == IssuerKind::StepCa,
            (None, Prepared)
            | (Some(Prepared), Active)
            | (Some(Active), Retiring)
            | (Some(Retiring), Retired)
            | (Some(_), Revoked) => true,
            _ => false,
        };
        if !known {
            return violated("D13", format!("issuer {id} went from {was:?} to {:?}", issuer.state));
        }
        let idle = matches!(issuer.state, Retired | Revoked) && was != Some(issuer.state);
        if idle && !issuer.sealed_key.is_empty() && !after.issuer_is_named(id) {
            return violated("D13", format!("the key of {id} is kept for nothing"));
        }
    }
    for (what, signs) in [
        ("nodes", IssuerUse::signs_clients as fn(IssuerUse) -> bool),
        ("the control plane", IssuerUse::signs_servers),
    ] {
        let signing = after.domain_issuers_in(Active).filter(|issuer| signs(issuer.usage)).count();
        if signing > 1 {
            return violated("D13", format!("{signing} issuers sign for {what}"));
        }
    }
    Ok(())
}

/// D13: one root is active, only the arrows of a roll occur, and what hosts trust never changes unnoticed.
fn one_root_is_active(before: &State, after: &State) -> Result<(), Violation> {
    use RootState::{Active, Prepared, Retired, Retiring};
    for root in &after.roots {
        let was = before.roots.iter().find(|was| was.fingerprint == root.fingerprint).map(|was| was.state);
        let known = match (was, root.state) {
            (Some(was), now) if was == now => true,
            (None, Active) => before.domain.is_none(),
            (None, Prepared)
            | (Some(Prepared), Active)
            | (Some(Active), Retiring)
            | (Some(Retiring), Retired) => true,
            _ => false,
        };
        if !known {
            return violated("D13", format!("a root went from {was:?} to {:?}", root.state));
        }
    }
    if after.domain.is_some() && after.roots.iter().filter(|root| root.state == Active).count() != 1 {
        return violated("D13", "there is not one active root");
    }
    let trust = |state: &State| -> Vec<_> { state.trusted_roots().map(|root| root.fingerprint).collect() };
    let changed = trust(before) != trust(after) || before.lists != after.lists;
    if before.domain.is_some() && changed && before.bundle_version == after.bundle_version {
        return violated("D13", "what hosts trust has changed and nobody was told");
    }
    for (root, list) in &before.lists {
        let kept = after.lists.get(root).is_none_or(|now| now == list || now.number > list.number);
        let gone = !after.lists.contains_key(root) && trust(after).contains(root);
        if !kept || gone {
            return violated("D13", "the revocation list of a root became older");
        }
    }
    for issuer in after.issuers.values().filter(|issuer| issuer.is_of_domain()) {
        let above = after.root_of(issuer);
        if issuer.state.is_trusted() && !above.is_some_and(|root| root.state.is_trusted()) {
            return violated("D13", format!("issuer {} is trusted below a root that is not", issuer.id));
        }
        if issuer.state == IssuerState::Active && above != after.active_root() {
            return violated("D13", format!("issuer {} signs below a root that is not active", issuer.id));
        }
    }
    match after.nodes.values().find(|node| node.stored_bundle > after.bundle_version) {
        Some(node) => violated("D13", format!("{} has stored a trust bundle that does not exist", node.id)),
        None => Ok(()),
    }
}

/// D12, D13: only where they may be, each of a replica and without a key, one that signs on each, and none that hosts trust.
fn ephemeral_issuers_are_their_replicas_own(before: &State, after: &State) -> Result<(), Violation> {
    let mut signing = BTreeSet::new();
    for issuer in after.issuers.values().filter(|issuer| issuer.is_ephemeral()) {
        let id = &issuer.id;
        let Some(replica) = issuer.replica.filter(|_| after.has_ephemeral_issuers()) else {
            return violated("D12", format!("{id} is ephemeral and of no replica, or of no such domain"));
        };
        if issuer.state == IssuerState::Active && !signing.insert(replica) {
            return violated("D12", format!("two issuers sign on replica {replica}"));
        }
        if !issuer.sealed_key.is_empty() {
            return violated("D12", format!("the key of {id} is on record"));
        }
        if after.roots.iter().any(|root| root.fingerprint == issuer.fingerprint) {
            return violated("D13", format!("hosts trust {id}"));
        }
    }
    let of = |state: &State| -> Vec<_> {
        let ephemeral = state.issuers.values().filter(|issuer| issuer.is_ephemeral());
        ephemeral.map(|issuer| (issuer.id.clone(), issuer.state)).collect()
    };
    let changed = of(before) != of(after);
    if changed && after.ephemeral_version == before.ephemeral_version {
        return violated("D13", "the ephemeral issuers changed and nobody was told");
    }
    for certificate in after.certificates.values() {
        let issuer = after.issuers.get(&certificate.issuer);
        let fits = match &certificate.owner {
            Owner::Node(_) => true,
            Owner::Operator(_) | Owner::Replica(_) | Owner::Bootstrap(_) => {
                issuer.is_none_or(|issuer| issuer.is_of_domain())
            }
        };
        if !fits {
            return violated("D12", "an issuer of nodes alone signed for an operator or a replica");
        }
    }
    Ok(())
}

/// D12, D13: a step-ca signs only where it is to, hosts do not trust it, what it was asked for is not on record yet, and what it is to
/// revoke is good for nobody.
fn what_step_ca_owes_is_not_good(state: &State) -> Result<(), Violation> {
    for issuer in state.issuers.values().filter(|issuer| issuer.kind == IssuerKind::StepCa) {
        if !state.has_step_ca() || issuer.step_ca.is_none() || issuer.usage != IssuerUse::Node {
            return violated("D12", format!("{} is a step-ca of no such domain", issuer.id));
        }
        if state.roots.iter().any(|root| root.fingerprint == issuer.fingerprint) {
            return violated("D13", format!("hosts trust {}", issuer.id));
        }
    }
    let mut asked = BTreeSet::new();
    for intent in state.intents.values() {
        if state.certificates.contains_key(&intent.serial) || !asked.insert(&intent.serial) {
            return violated(
                "I2",
                format!("{} is asked for and on record, or asked for twice", intent.serial),
            );
        }
    }
    match state.undelivered_revocations.keys().find(|serial| state.is_good(serial)) {
        Some(serial) => violated("I3", format!("{serial} is to be revoked and good")),
        None => Ok(()),
    }
}

fn keys_point_to_what_certifies_them(state: &State) -> Result<(), Violation> {
    for (key, serial) in &state.certified_keys {
        if state.certificates.get(serial).is_none_or(|certificate| certificate.key != *key) {
            return violated("D11", format!("a key points to {serial}, which does not certify it"));
        }
    }
    Ok(())
}

/// Of every overlay: exactly the nodes of its tenant that are peers, as they are, and a revision that rises
/// exactly when they change.
fn an_overlay_holds_its_peers_and_nobody_else(before: &State, after: &State) -> Result<(), Violation> {
    for node in after.nodes.values() {
        let known = after.overlays.get(&node.tenant).and_then(|overlay| overlay.peers.get(&node.id));
        let vcluster = match after.policy.overlay_scope {
            OverlayScope::Tenant => None,
            OverlayScope::Vcluster => node.vcluster.as_ref(),
        };
        let told =
            known.map(|peer| (Some(peer.key), Some(peer.address), peer.underlay, peer.vcluster.as_ref()));
        let true_now = (node.wireguard.map(|wireguard| wireguard.key), node.address, node.underlay, vcluster);
        if told != node.is_peer().then_some(true_now) {
            return violated("overlay", format!("{} is {told:?} to others", node.id));
        }
    }
    for (tenant, overlay) in &after.overlays {
        let foreign = |id: &_| after.nodes.get(id).is_none_or(|node| node.tenant != *tenant);
        if let Some(id) = overlay.peers.keys().find(|id| foreign(*id)) {
            return violated("overlay", format!("{id} is a peer in {tenant}"));
        }
        let rises_to = overlay.peers.values().map(|peer| peer.since.max(peer.regrouped)).max();
        if rises_to.is_some_and(|latest| latest > overlay.revision) || !overlay.index_agrees() {
            return violated("overlay", format!("what {tenant} keeps beside its peers is not of them"));
        }
        let nobody = Overlay::default();
        let was = before.overlays.get(tenant).unwrap_or(&nobody);
        let rises = overlay.revision > was.revision;
        if rises != (overlay.peers != was.peers) || overlay.revision < was.revision {
            return violated("overlay", format!("revision {} of {tenant} tells otherwise", overlay.revision));
        }
    }
    Ok(())
}

/// D20: two of its own and one of an operator at most, none of a node that is gone, and an index of exactly those
/// on record.
fn recovery_tokens_are_few_and_known(state: &State) -> Result<(), Violation> {
    let mut known = 0;
    for (id, node) in &state.nodes {
        let tokens = &node.recovery.tokens;
        let valid = |kind| tokens.iter().filter(|token| token.kind == kind && token.is_valid()).count();
        let (rotated, repair) = (valid(RecoveryKind::Rotated), valid(RecoveryKind::Repair));
        if rotated > 2 || repair > 1 || (node.state.is_gone() && rotated + repair > 0) {
            return violated("D20", format!("{id} has {rotated} recovery tokens and {repair} for repair"));
        }
        let given = |token: &RecoveryToken| {
            token.kind == RecoveryKind::Rotated && token.is_valid() && token.profile.is_some()
        };
        if node.recovery.eligible == Some(false) && tokens.iter().any(given) {
            return violated("D20", format!("{id} was enrolled without recovery and has a recovery token"));
        }
        if node.recovery.repairing && !node.quarantined {
            return violated("D36", format!("{id} is under repair and not in quarantine"));
        }
        if tokens.iter().any(|token| state.recovery_by_hash.get(&token.hash) != Some(id)) {
            return violated("D20", format!("a recovery token of {id} is not known to be its own"));
        }
        known += tokens.len();
    }
    if known == state.recovery_by_hash.len() {
        Ok(())
    } else {
        violated("D20", "a recovery token is known and on no record")
    }
}

/// D20: single use, and no way back.
fn what_ended_a_recovery_token_is_final(before: &State, after: &State) -> Result<(), Violation> {
    for (id, node) in &before.nodes {
        for token in node.recovery.tokens.iter().filter(|token| !token.is_valid()) {
            let now = after.nodes.get(id).and_then(|node| node.recovery.token(token.id));
            if now.is_some_and(|now| !is_still(&token.state, &now.state)) {
                return violated("D20", format!("recovery token {} of {id} has two ends", token.id));
            }
        }
    }
    Ok(())
}

/// The same end; or the same use again, for the same key; or that taken away, because an operator revoked the token.
fn is_still(before: &RecoveryState, after: &RecoveryState) -> bool {
    match (before, after) {
        (RecoveryState::Used { key: before, .. }, RecoveryState::Used { key: after, .. }) => before == after,
        (RecoveryState::Used { .. }, RecoveryState::Revoked) => true,
        _ => before == after,
    }
}

/// What a host said of itself is neither from the future nor from before it enrolled.
fn a_report_is_of_this_life(state: &State) -> Result<(), Violation> {
    for node in state.nodes.values() {
        if let Some(report) = &node.report
            && (report.at > state.at || node.enrolled_at.is_some_and(|since| report.at < since))
        {
            return violated("report", format!("{} has a report of {}", node.id, report.at));
        }
    }
    Ok(())
}

/// A session is on record once, none of a node that is gone, and no more than there may be.
fn sessions_are_open_once_and_on_living_nodes(state: &State) -> Result<(), Violation> {
    for node in state.nodes.values() {
        let open = &node.sessions.open;
        let ids: BTreeSet<_> = open.iter().map(|session| session.id).collect();
        if ids.len() != open.len() || open.len() > MOST_SESSIONS || (node.state.is_gone() && !open.is_empty())
        {
            return violated("session", format!("{} has {} open sessions", node.id, open.len()));
        }
        if open.iter().any(|session| session.opened_at > state.at) {
            return violated("session", format!("a session of {} is of the future", node.id));
        }
    }
    Ok(())
}

/// Of nodes that are gone too: what they were in is not there for them if it was removed. And nobody is narrowed to what is gone.
fn a_node_is_in_a_vcluster_of_its_tenant(state: &State) -> Result<(), Violation> {
    for node in state.nodes.values() {
        if let Some(id) = &node.vcluster
            && state.vclusters.get(id).is_none_or(|vcluster| vcluster.tenant != node.tenant)
        {
            return violated("vcluster", format!("{} is in {id}, which is not of its tenant", node.id));
        }
    }
    let operators = state.operators.values().map(|operator| &operator.vclusters);
    let narrowed = operators.chain(state.operator_keys.values().map(|key| &key.vclusters));
    for vclusters in narrowed {
        let Vclusters::Only(names) = vclusters else { continue };
        if let Some(id) = names.iter().find(|id| !state.vclusters.contains_key(*id)) {
            return violated("vcluster", format!("somebody is narrowed to {id}, which there is not"));
        }
    }
    Ok(())
}

/// A sequence is of one change, is not beyond the counter, and rises with every change of a place; whoever resumes relies on it.
fn changes_of_configuration_are_counted_once(before: &State, after: &State) -> Result<(), Violation> {
    let nodes = after.nodes.values().map(|node| &node.config);
    let places = after.vclusters.values().map(|vcluster| &vcluster.config).chain(nodes);
    let mut counted = BTreeSet::new();
    for documents in places.chain([&after.defaults]) {
        let next = documents.changes().skip(1);
        let rises = |(one, next): (&Arc<ConfigChange>, &Arc<ConfigChange>)| {
            one.sequence < next.sequence && one.version + 1 == next.version
        };
        let once = documents.changes().all(|change| counted.insert(change.sequence));
        if !once || !documents.changes().zip(next).all(rises) {
            return violated("config", "a sequence of documents does not rise, or is of two changes");
        }
    }
    for node in after.nodes.values() {
        let sequences = node.assignments.iter().map(|assignment| assignment.sequence);
        if !sequences.clone().is_sorted() || !sequences.into_iter().all(|sequence| counted.insert(sequence)) {
            return violated("config", format!("the assignments of {} are not in order", node.id));
        }
        let was = before.nodes.get(&node.id).map_or(0, |node| before.config_mark(node));
        // A machine that takes the place of one that is gone begins with no documents of its own.
        let stayed = before
            .nodes
            .get(&node.id)
            .is_some_and(|was| was.vcluster == node.vcluster && !was.state.is_gone());
        if stayed && after.config_mark(node) < was {
            return violated("config", format!("what is newest for {} has become older", node.id));
        }
    }
    let beyond = counted.last().is_some_and(|newest| *newest > after.config_sequence);
    if beyond || after.config_sequence < before.config_sequence {
        return violated("config", "the counter of changes fell");
    }
    Ok(())
}

/// I1, of replicas.
fn a_replica_token_leads_to_at_most_one_replica(before: &State, after: &State) -> Result<(), Violation> {
    let mut spent = BTreeMap::new();
    for (id, token) in &after.replica_tokens {
        if token.used_at.is_some() != token.used_by.is_some() {
            return violated("I1", format!("token {id} was used by nobody, or at no time"));
        }
        let was = before.replica_tokens.get(id).and_then(|was| was.used_by);
        if was.is_some() && was != token.used_by {
            return violated("I1", format!("token {id} led to replica {was:?} and to {:?}", token.used_by));
        }
        let Some(replica) = token.used_by else { continue };
        if !after.replicas.contains_key(&replica) {
            return violated("I1", format!("token {id} led to replica {replica}, which there is not"));
        }
        if let Some(other) = spent.insert(replica, id) {
            return violated("I1", format!("tokens {other} and {id} led to replica {replica}"));
        }
    }
    Ok(())
}

/// I2 and I3, of replicas: what is on record is their own, and a removed one has nothing that is good.
fn replicas_have_their_own_certificates(state: &State) -> Result<(), Violation> {
    let mut holders = BTreeMap::new();
    for (id, replica) in &state.replicas {
        for serial in replica.serials() {
            if let Some(other) = holders.insert(serial, id) {
                return violated("I2", format!("serial {serial} belongs to replicas {other} and {id}"));
            }
            let owner = state.certificates.get(serial).map(|certificate| &certificate.owner);
            if owner != Some(&Owner::Replica(*id)) {
                return violated(
                    "I2",
                    format!("serial {serial} of replica {id} is not on record as its own"),
                );
            }
        }
    }
    for (serial, certificate) in &state.certificates {
        let Owner::Replica(id) = &certificate.owner else { continue };
        let holds = |replica: &Replica| replica.is_member() && replica.serials().any(|own| own == serial);
        if state.is_good(serial) && !state.replicas.get(id).is_some_and(holds) {
            return violated(
                "I3",
                format!("serial {serial} is good and of no member, or of one that has newer"),
            );
        }
    }
    let is_of_member = |id: ReplicaId| {
        let alone = state.replicas.is_empty() && id == ReplicaId::FIRST;
        alone || state.member(id).is_ok()
    };
    match state.server_certificates().find(|own| !is_of_member(own.replica)) {
        Some(own) => {
            violated("I3", format!("replica {} is no member and presents {}", own.replica, own.serial))
        }
        None => Ok(()),
    }
}

/// Each id is given once, each address is of one member, and somebody is left.
fn members_are_few_and_apart(before: &State, after: &State) -> Result<(), Violation> {
    for (id, replica) in &before.replicas {
        let stays = |now: &Replica| now.is_member() <= replica.is_member();
        if !after.replicas.get(id).is_some_and(stays) {
            return violated("cluster", format!("replica {id} vanished or came back"));
        }
    }
    if let Some(id) = after.replicas.keys().find(|id| id.0 == 0 || id.0 > after.last_replica) {
        return violated("cluster", format!("replica {id} is beyond {}", after.last_replica));
    }
    if after.last_replica < before.last_replica || after.epoch < before.epoch {
        return violated("cluster", "a counter fell");
    }
    let members = after.members().count();
    let peers: BTreeSet<&str> = after.members().map(|member| member.peer.as_str()).collect();
    if peers.len() != members {
        return violated("cluster", "two members are reached at one address");
    }
    if members > MOST_REPLICAS || (members == 0 && !after.replicas.is_empty()) {
        return violated("cluster", format!("there are {members} members"));
    }
    let signs = |id: &ReplicaId| after.ephemeral_issuer(*id).is_some();
    match after.replicas.values().find(|replica| !replica.is_member() && signs(&replica.id)) {
        Some(replica) => violated("cluster", format!("replica {} was removed and signs", replica.id)),
        None => Ok(()),
    }
}

/// Whoever waits for them to rise would wait in vain, and connections would not be looked at again.
fn counters_never_fall(before: &State, after: &State) -> Result<(), Violation> {
    let newly = |serial: &_| after.is_denied(serial) && !before.is_denied(serial);
    let fell = after.denials < before.denials
        || after.bundle_version < before.bundle_version
        || after.ephemeral_version < before.ephemeral_version;
    if fell {
        return violated("D14", "a counter fell");
    }
    if before.forwarded.iter().any(|(sink, through)| after.forwarded(*sink) < *through) {
        return violated("forwarded", "a cursor of the audit trail fell");
    }
    match before.certificates.keys().find(|serial| newly(*serial)) {
        Some(serial) if after.denials == before.denials => {
            violated("D14", format!("serial {serial} was denied and nobody was told"))
        }
        _ => Ok(()),
    }
}
