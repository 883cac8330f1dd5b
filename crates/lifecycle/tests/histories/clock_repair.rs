//! Random histories that a wrong clock carries ahead, and their repair: nothing that had been refused comes back by it.

use super::step;
use super::world::World;
use crate::support::{Domain, local};
use lifecycle::names::{SecretHash, Span, Timestamp};
use lifecycle::registry::{
    Actor, CertificateStatus, Command, RepairClock, State, TokenState, Verdict, apply, check_invariants,
    check_replica_token, check_token, permissions,
};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use std::hash::{BuildHasher, RandomState};

const CASES: u32 = 600;

#[test]
fn a_repair_of_the_clock_revives_nothing_in_any_history() {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(0),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    let before = vec(step::step(), 0..=30);
    let history = (before, 1u64..800, vec(step::step(), 0..=15), super::form(), any::<bool>());
    let result = TestRunner::new(config).run(
        &history,
        |(before, days, ahead, (node_signer, [divided, cluster]), tidy)| {
            let mut world = World::new(node_signer, divided, cluster);
            before.iter().for_each(|step| world.take(step));
            let right = world.domain.state.at.plus(Span::from_minutes(1));
            world.domain.now = right.plus(Span::from_days(days));
            ahead.iter().for_each(|step| world.take(step));
            let mut domain = world.domain;
            domain.now = domain.now.max(domain.state.at).max(right.plus(Span::from_hours(1)));
            if tidy {
                domain.give(Actor::Reconciler, Command::Tidy);
            }
            domain.give(Actor::Reconciler, Command::Observe(Vec::new()));
            repair(&mut domain, right);
            Ok(())
        },
    );
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, history)) => panic!("PROPTEST_RNG_SEED={seed}: {why}\n{history:#?}"),
        Err(TestError::Abort(why)) => panic!("PROPTEST_RNG_SEED={seed}: {why}"),
    }
}

fn repair(domain: &mut Domain, right: Timestamp) {
    let wrong = domain.state.clone();
    // Every step is held against the promises and the invariants.
    let applied = domain.give(local(), Command::RepairClock(RepairClock { to: right }));
    assert_eq!(applied.events.len(), 1, "{applied:?}");
    domain.now = right;
    nothing_is_revived(&wrong, &domain.state, right);
    nothing_is_of_the_future(&domain.state, right);
    // It goes on from there: what is asked next, at the right time, keeps the promises too.
    domain.give(Actor::Reconciler, Command::Tidy);
    domain.pass(Span::from_days(1));
    let tokens: Vec<SecretHash> = domain.state.token_by_hash.keys().copied().collect();
    for hash in tokens {
        assert!(check_token(&domain.state, &hash, None).is_err(), "a token serves again");
    }
    let create = domain.token_request();
    domain.give(local(), Command::CreateToken(create));
    // The same again from the stored form.
    let mut again = wrong.clone();
    let envelope =
        domain.envelope_drawn_at(wrong.at, local(), Command::RepairClock(RepairClock { to: right }));
    apply(&mut again, &super::stored_envelope(&envelope), wrong.at);
    assert_eq!(check_invariants(&wrong, &again), Ok(()));
    assert_eq!(super::restored(&again), again);
}

fn nothing_is_revived(wrong: &State, now: &State, right: Timestamp) {
    for (serial, held) in &wrong.certificates {
        let verdict = wrong.verdict(serial, wrong.at);
        let refused = match verdict {
            Verdict::Denied(_) | Verdict::Superseded { .. } | Verdict::Unknown => true,
            Verdict::Grace { .. } => true,
            Verdict::Good | Verdict::Expired => false,
        };
        let accepted = now.verdict(serial, right).is_accepted();
        assert!(!(refused && accepted), "{serial} was {verdict:?} and is accepted");
        if matches!(held.status, CertificateStatus::Superseded { .. }) {
            assert!(now.is_denied(serial), "{serial} was superseded");
        }
        assert!(!(accepted && held.issued_at > right), "{serial} was issued at the wrong time");
    }
    for (id, token) in &now.tokens {
        assert_ne!(token.state, TokenState::Unused, "{id} serves");
    }
    for hash in now.replica_token_by_hash.keys() {
        assert!(check_replica_token(now, hash).is_err(), "a replica could join with an old token");
    }
    for (id, key) in &wrong.operator_keys {
        let actor = Actor::Key { id: *id };
        assert!(key.is_good(wrong.at) || permissions(now, &actor).is_none(), "API key {id} is good again");
    }
    for (id, node) in &wrong.nodes {
        let held = &now.nodes[id];
        assert_eq!(
            (held.state, held.draining, held.quarantined),
            (node.state, node.draining, node.quarantined)
        );
    }
    let rest = now.policy.overlay_cooldown;
    let early = right.plus(rest).minus(Span::from_millis(1));
    let picked = now.addresses.pick(early, rest);
    let resting = |(_, address): &(Timestamp, _)| Some(*address) == picked;
    assert!(rest.millis() == 0 || !wrong.addresses.resting.keys().any(resting), "an address came back early");
    assert_eq!(wrong.addresses.resting.len(), now.addresses.resting.len());
}

fn nothing_is_of_the_future(state: &State, right: Timestamp) {
    assert_eq!(state.at, right);
    for node in state.nodes.values() {
        assert!(node.state_since <= right && node.last_seen.is_none_or(|at| at <= right), "{node:?}");
        assert!(node.recovery.tokens.iter().all(|token| token.minted_at <= right));
    }
    assert!(state.certificates.values().all(|held| held.issued_at <= right));
    assert!(state.replicas.values().all(|one| one.joined_at <= right));
    assert!(state.replicas.values().all(|one| one.removed_at.is_none_or(|at| at <= right)));
    assert!(state.replica_tokens.values().all(|token| token.created_at <= right));
    assert!(state.server_certificates().all(|own| own.not_after <= right));
    assert!(state.alerts.values().all(|alert| alert.since <= right));
    assert!(state.roots.iter().all(|root| root.retired_at.is_none_or(|at| at <= right)));
}
