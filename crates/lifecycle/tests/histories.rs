//! Thousands of random histories: whatever is asked, by whomever, at whatever time, the promises hold.
//!
//! A history is a list of [`step::Step`]s in small worlds of names, so that collisions are common. Each step is
//! held against what is promised of every step (`support::promises`), and against a [`model::Model`] that
//! knows the rules in another, plainer form. `PROPTEST_RNG_SEED` replays a run, `PROPTEST_CASES` changes its
//! length.

mod clock_repair;
mod cluster;
mod issuance;
mod machines;
mod model;
mod step;
mod world;

use lifecycle::registry::{Envelope, NodeSigner, State};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use world::World;

const CASES: u32 = 3000;
const STEPS: usize = 62;
/// So many times as many cases before something counts as never seen.
const ROUNDS: u64 = 8;

/// What the histories of one run must have seen, so that no promise holds only because nothing happened.
const SEEN: &[&str] = &[
    "enrollment_token.created",
    "enrollment_token.revoked",
    "enrollment_token.expired",
    "enrollment.refused",
    "host.enrolled",
    "host.assigned",
    "host.unassigned",
    "host.moved",
    "host.configured",
    "vcluster.created",
    "vcluster.configured",
    "vcluster.removed",
    "clock.accepted",
    "host.registered",
    "host.described",
    "host.confirmed",
    "host.active",
    "host.inactive",
    "host.seen",
    "host.draining",
    "host.undrained",
    "host.quarantined",
    "host.released",
    "host.revoked",
    "host.decommissioned",
    "host.reinstated",
    "certificate.seen",
    "certificate.renewed",
    "certificate.superseded",
    "certificate.rotation_ordered",
    "certificate.rotation_expired",
    "host.overlay_joined",
    "host.rekeyed",
    "host.rekey_ordered",
    "host.rekey_expired",
    "host.endpoint_changed",
    "a WireGuard key comes free",
    "another group in the overlay",
    "refused: endpoint_invalid",
    "refused: no_overlay",
    "refused: rekey_not_ordered",
    "recovery_token.rotated",
    "recovery_token.kept",
    "recovery.requested",
    "recovery.issued",
    "recovery.resolved",
    "repair_bundle.issued",
    "ca.requested",
    "ca.prepared",
    "ca.activated",
    "ca.retired",
    "ca.revoked",
    "ca.rewrapped",
    "ca.abandoned",
    "ca.root_prepared",
    "ca.root_activated",
    "ca.root_retired",
    "ca.list_imported",
    "ca.published",
    "alert.raised",
    "alert.cleared",
    "alert.acknowledged",
    "tenant.created",
    "operator.added",
    "operator.removed",
    "operator.renewed",
    "operator.certificate_replaced",
    "operator_key.created",
    "operator_key.revoked",
    "policy.changed",
    "session.opened",
    "session.closed",
    "refused: active_sessions",
    "server_certificate.issued",
    "cluster.token_created",
    "cluster.joined",
    "cluster.announced",
    "cluster.removed",
    "refused: replica_not_found",
    "refused: replica_removed",
    "refused: peer_address_in_use",
    "refused: would_lose_majority",
    "a token of another kind",
    "the certificate of a replica renewed twice",
    "the first replica removed",
    "audit.checkpoint",
    "audit.gap",
    "registry.tidied",
    "refused: alert_not_found",
    "refused: already_active",
    "refused: already_assigned",
    "refused: hardware_identity_conflict",
    "refused: node_already_enrolled",
    "refused: node_not_enrolled",
    "refused: not_assigned",
    "refused: vcluster_exists",
    "refused: vcluster_in_use",
    "refused: vcluster_not_found",
    "refused: already_confirmed",
    "refused: already_founded",
    "refused: attestor_not_allowed",
    "refused: certificate_superseded",
    "refused: forbidden",
    "refused: issuer_in_use",
    "refused: issuer_invalid",
    "refused: issuer_not_prepared",
    "refused: no_ephemeral_issuers",
    "refused: key_in_use",
    "refused: key_kind_not_allowed",
    "refused: no_certificate",
    "refused: no_roll",
    "refused: node_id_in_use",
    "refused: node_not_found",
    "refused: node_quarantined",
    "refused: node_revoked",
    "refused: not_adopted",
    "refused: not_your_node",
    "refused: rate_limited",
    "refused: recovery_not_needed",
    "refused: repair_bundle_mismatch",
    "refused: request_too_old",
    "refused: roll_in_progress",
    "refused: root_in_use",
    "refused: list_older",
    "refused: list_invalid",
    "refused: confirmation_needed",
    "refused: tenant_not_found",
    "refused: token_expired",
    "refused: token_invalid",
    "refused: token_not_found",
    "refused: token_revoked",
    "refused: token_superseded",
    "refused: token_ttl_too_long",
    "refused: token_ttl_too_short",
    "refused: token_used",
    "refused: try_again",
    "refused: unauthenticated",
    "refused: wireguard_key_in_use",
    "enrolled again by a pinned token",
    "enrolled by a token and the hardware",
    "enrolled by hardware",
    "enrolled again by hardware",
    "the same certificate after a lost boot",
    "power over a vCluster",
    "the same certificate after a lost renewal",
    "the same certificate after a lost reply",
    "recovered by itself",
    "recovered by a repair bundle",
    "the same certificate after a lost recovery",
    "the same envelope twice",
    "divided by a roll",
    "activated with every host told",
    "a root retired with nobody left behind",
    "a root retired and somebody left behind",
    "issuance.begun",
    "issuance.ended",
    "issuance.lapsed",
    "revocation.delivered",
    "recorded some time after its intent",
    "a result after its intent's end",
    "a result after a minute",
    "a certificate of step-ca revoked",
    "refused: issuer_not_found",
];

#[test]
fn the_promises_hold_in_every_history() {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(0),
    };
    let (cases, seen) = (config.cases, RefCell::new(BTreeMap::new()));
    // What is rare is not in every run: it is looked for in further ones.
    for round in 0..ROUNDS {
        let seed = seed.wrapping_add(round);
        perform(Config { rng_seed: RngSeed::Fixed(seed), ..config.clone() }, seed, &seen);
        if cases < CASES || missing(&seen.borrow()).is_empty() {
            return;
        }
    }
    let seen = seen.into_inner();
    panic!("PROPTEST_RNG_SEED={seed}: never seen: {:?} in {seen:#?}", missing(&seen));
}

/// How often everything that histories had to do with has happened.
type Counts = BTreeMap<String, u64>;

fn missing(seen: &Counts) -> Vec<&'static str> {
    SEEN.iter().copied().filter(|what| !seen.contains_key(*what)).collect()
}

/// One run of histories.
fn perform(config: Config, seed: u64, seen: &RefCell<Counts>) {
    let result = TestRunner::new(config).run(&(form(), vec(step::step(), 1..=STEPS)), |(form, steps)| {
        let (node_signer, [divided, cluster]) = form;
        let mut world = World::new(node_signer, divided, cluster);
        for step in &steps {
            world.take(step);
        }
        the_same_history_gives_the_same_state(&world);
        for (what, count) in world.seen {
            *seen.borrow_mut().entry(what).or_default() += count;
        }
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("PROPTEST_RNG_SEED={seed}: {why}\n{steps:#?}"),
        Err(TestError::Abort(why)) => panic!("PROPTEST_RNG_SEED={seed}: {why}"),
    }
}

/// What signs for nodes; whether nodes and the control plane have issuers of their own, and whether there are two replicas.
fn form() -> impl Strategy<Value = (NodeSigner, [bool; 2])> {
    let signers = vec![NodeSigner::DomainIssuer, NodeSigner::Ephemeral, NodeSigner::StepCa];
    (select(signers), any::<[bool; 2]>())
}

/// Applied again from the start, with a snapshot written and read half-way and every entry in its stored form,
/// a history ends in the same state and has had the same events.
fn the_same_history_gives_the_same_state(world: &World) {
    let mut state = State::default();
    for (position, past) in world.past.iter().enumerate() {
        if position == world.past.len() / 2 {
            state = restored(&state);
        }
        past.replay(&mut state);
    }
    assert_eq!(state, world.domain.state, "replayed otherwise");
    assert_eq!(restored(&state), state);
}

/// The registry as a snapshot gives it back.
fn restored(state: &State) -> State {
    let mut restored = stored(state);
    restored.count_machines();
    restored
}

/// Written as snapshots and entries are, and read back.
fn stored<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let bytes = rmp_serde::to_vec_named(value).expect("can be written");
    rmp_serde::from_slice(&bytes).expect("can be read back")
}

fn stored_envelope(envelope: &Envelope) -> Envelope {
    let read = stored(envelope);
    assert_eq!(read, *envelope);
    read
}
