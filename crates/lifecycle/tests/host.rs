//! A host is never stranded: whatever fails, in whatever order, it says what is wrong, goes on without haste, and is
//! well again once it can be.

mod world;

use lifecycle::host::{
    CallFailure, CandidateOrigin, Chance, Class, FailureKind, HostAction, HostMachine, Input, Life, Now,
    RecoveryResult,
};
use lifecycle::names::{Span, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;
use world::{Faults, MINUTE, World};

/// More than any healthy or sick host has reason for in an hour.
const CALLS: usize = 400;

fn faults() -> impl Strategy<Value = Faults> {
    let rarely = || prop::bool::weighted(0.15);
    let ahead = prop_oneof![
        6 => Just(0i64),
        1 => -200_000i64..200_000,
        1 => prop_oneof![Just(600_000), Just(-600_000), Just(90_000_000), Just(-90_000_000)],
    ];
    let first = (prop::bool::weighted(0.4), rarely(), rarely(), rarely(), rarely());
    (first, rarely(), ahead, rarely(), rarely(), rarely()).prop_map(
        |(
            (down, recovery_down, stale, recovery_stale, revoked),
            full,
            ahead,
            superseded,
            retired,
            no_token,
        )| Faults {
            down,
            recovery_down,
            stale,
            recovery_stale,
            revoked,
            full,
            ahead,
            superseded,
            retired,
            no_token,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_host_is_well_again_once_the_causes_are_gone(
        seed: u32, history in vec((faults(), 1u64..120), 0..8),
    ) {
        let mut world = World::new(seed);
        for (faults, minutes) in history {
            // What a recovery has cured stays cured until the next fault.
            world.faults = faults;
            world.minutes(minutes);
        }
        world.faults = Faults::NONE;
        world.minutes(20);
        prop_assert!(world.is_well() || world.is_given_up(), "{:?}", world.host);
        let times: Vec<u64> = world.acts.iter().map(|(at, _)| *at).collect();
        for hour in times.windows(CALLS) {
            prop_assert!(hour[CALLS - 1] - hour[0] >= 60 * MINUTE, "more than {CALLS} calls within an hour");
        }
    }

    #[test]
    fn nothing_that_is_learned_makes_it_spin(
        steps in vec((input(), 0u64..2000, any::<u32>()), 1..400),
    ) {
        let end = Timestamp::from_secs(2000);
        let mut host = HostMachine::new(Life { not_after: end, renew_at: Timestamp::from_secs(1000) }, "u".to_owned());
        let (mut steady, mut acts) = (0, Vec::new());
        for (input, pause, number) in steps {
            steady += pause;
            let now = Now { wall: Timestamp::from_millis(900_000 + steady), steady: Span::from_millis(steady) };
            host.learn(input, now, Chance { number, id: number.to_string() });
            acts.extend(host.due(now));
            prop_assert!(host.wake(now).millis() <= steady + MINUTE);
        }
        let most = usize::try_from(steady / 1000).unwrap() + 1;
        let count = |kind: fn(&HostAction) -> bool| acts.iter().filter(|act| kind(act)).count();
        prop_assert!(count(|act| *act == HostAction::Open) <= most);
        prop_assert!(count(|act| *act == HostAction::Renew) <= most);
        prop_assert!(count(|act| matches!(act, HostAction::Recover(_))) <= most);
    }
}

fn input() -> impl Strategy<Value = Input> {
    let kind = prop::sample::select(vec![
        FailureKind::Transient,
        FailureKind::WrongServer,
        FailureKind::Untrusted,
        FailureKind::ClockSkew,
        FailureKind::UnknownIssuer,
        FailureKind::Expired,
        FailureKind::Revoked,
        FailureKind::Unacceptable,
        FailureKind::Superseded,
        FailureKind::Refused,
        FailureKind::DiskFull,
    ]);
    let failure = (kind, prop::option::of(any::<i64>()), 0u64..1_000_000)
        .prop_map(|(kind, clock, wait)| CallFailure { kind, clock, wait: Span::from_millis(wait) });
    let life = (0u64..4_000_000).prop_map(|end| Life {
        not_after: Timestamp::from_millis(end),
        renew_at: Timestamp::from_millis(end / 2),
    });
    prop_oneof![
        life.prop_map(Input::Loaded),
        Just(Input::CandidateFound(CandidateOrigin::Renewal)),
        Just(Input::CandidateFound(CandidateOrigin::Recovery)),
        Just(Input::Opened(Ok(()))),
        failure.clone().prop_map(|failure| Input::Opened(Err(failure))),
        failure.clone().prop_map(Input::Disconnected),
        Just(Input::Renewed(Ok(()))),
        failure.clone().prop_map(|failure| Input::Renewed(Err(failure))),
        Just(Input::Recovered(Ok(RecoveryResult::Issued))),
        Just(Input::Recovered(Ok(RecoveryResult::Refreshed))),
        failure.prop_map(|failure| Input::Recovered(Err(failure))),
        any::<i64>().prop_map(Input::Clock),
        any::<bool>().prop_map(Input::DiskFull),
        any::<bool>().prop_map(Input::Drift),
        any::<bool>().prop_map(Input::RecoveryReady),
        any::<bool>().prop_map(Input::HardwareReady),
        Just(Input::RenewalOrdered),
        Just(Input::RenewalNotAllowed),
        Just(Input::Revoked),
    ]
}

/// The one door for the rows of the failure matrix: this goes wrong, for so long; then this is said of it.
fn check(faults: Faults, minutes: u64, expected: Class) -> World {
    let mut world = World::new(7);
    world.minutes(5);
    assert!(world.is_well());
    world.faults = faults;
    world.minutes(minutes);
    assert_eq!(world.host.condition().map(|condition| condition.class), Some(expected), "{:?}", world.host);
    world
}

#[test]
fn a_silent_control_plane_is_unreachable_until_the_certificate_ends() {
    let down = Faults { down: true, recovery_down: true, ..Faults::NONE };
    let world = check(down, 10, Class::EndpointUnreachable);
    assert!(!world.acts.iter().any(|(_, act)| matches!(act, HostAction::Recover(Class::CertExpired))));
}

#[test]
fn addresses_that_are_gone_for_the_grace_period_are_asked_for_where_recovery_is_and_no_token_is_spent() {
    let world = check(Faults { down: true, ..Faults::NONE }, 50, Class::EndpointUnreachable);
    let asked = world.acts.iter().filter(|(_, act)| *act == HostAction::Recover(Class::EndpointUnreachable));
    let asked: Vec<u64> = asked.map(|(at, _)| *at).collect();
    assert!((3..30).contains(&asked.len()), "asked {} times", asked.len());
    assert_eq!(world.recoveries, 0);
}

#[test]
fn a_certificate_that_ended_while_nobody_answered_is_recovered() {
    let mut world = check(Faults { down: true, ..Faults::NONE }, 90, Class::CertExpired);
    assert_eq!(world.recoveries, 1, "it has ended, whoever answers");
    world.faults = Faults::NONE;
    world.minutes(11);
    assert!(world.is_well());
    assert_eq!(world.recoveries, 1);
}

#[test]
fn without_a_token_an_ended_certificate_is_blocked() {
    let mut world = check(Faults { down: true, no_token: true, ..Faults::NONE }, 70, Class::CertExpired);
    world.faults = Faults { no_token: true, ..Faults::NONE };
    world.minutes(20);
    assert_eq!(
        world.host.condition().map(|condition| condition.class),
        Some(Class::RecoveryEnrollmentBlocked)
    );
}

#[test]
fn a_host_whose_issuer_was_retired_recovers_after_the_grace_period() {
    let mut world = check(Faults { retired: true, ..Faults::NONE }, 4, Class::EndpointUnreachable);
    assert_eq!(world.recoveries, 0, "another replica may know the issuer");
    world.minutes(5);
    assert!(world.is_well(), "{:?}", world.host);
    assert_eq!(world.recoveries, 1);
}

#[test]
fn without_a_token_a_host_whose_issuer_was_retired_is_blocked_after_the_grace_period() {
    let retired = Faults { retired: true, no_token: true, ..Faults::NONE };
    check(retired, 4, Class::EndpointUnreachable);
    check(retired, 9, Class::RecoveryEnrollmentBlocked);
}

/// What a host does about an issuer that no replica knows, until somebody does: when it asks for recovery, and why.
fn unknown_for(seconds: u64, token: bool, hardware: bool) -> Vec<(u64, Class)> {
    let end = Timestamp::from_secs(1_000_000);
    let mut host = HostMachine::new(Life { not_after: end, renew_at: end }, "u".to_owned());
    let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
    host.learn(Input::Grace(Span::from_secs(20)), at(0), chance());
    host.learn(Input::RecoveryReady(token), at(0), chance());
    host.learn(Input::HardwareReady(hardware), at(0), chance());
    let mut recoveries = Vec::new();
    for second in 0..seconds {
        for act in host.due(at(second)) {
            let input = match act {
                HostAction::Open | HostAction::Renew => Input::Opened(Err(FailureKind::UnknownIssuer.into())),
                HostAction::Recover(class) => {
                    recoveries.push((second, class));
                    // What the control plane says to a host whose certificate is good.
                    Input::Recovered(Err(FailureKind::Refused.into()))
                }
            };
            host.learn(input, at(second), chance());
        }
    }
    assert!(!host.is_revoked());
    host.learn(Input::Opened(Ok(())), at(seconds), chance());
    assert_eq!(host.condition(), None);
    recoveries
}

#[test]
fn a_replica_that_does_not_know_the_issuer_yet_costs_no_token_and_no_haste() {
    assert_eq!(unknown_for(24, true, true), [], "the grace period and its jitter");
    let asked = unknown_for(3600, true, false);
    assert_eq!(asked.first(), Some(&(24, Class::EndpointUnreachable)), "which spends no token for nothing");
    assert!((5..40).contains(&asked.len()), "asked {} times", asked.len());
    assert!(asked.iter().all(|(_, class)| *class == Class::EndpointUnreachable));
    assert_eq!(unknown_for(60, false, false), []);
    assert_eq!(unknown_for(60, false, true).first(), Some(&(24, Class::CertExpired)), "by its hardware");
}

#[test]
fn a_stale_bundle_is_cured_by_recovery_and_a_stale_recovery_bundle_blocks() {
    let mut world = World::new(3);
    world.faults = Faults { stale: true, ..Faults::NONE };
    world.minutes(10);
    assert!(world.is_well());
    let both = Faults { stale: true, recovery_stale: true, ..Faults::NONE };
    let mut world = World::new(3);
    world.faults = both;
    world.minutes(10);
    assert_eq!(
        world.host.condition().map(|condition| condition.class),
        Some(Class::RecoveryEnrollmentBlocked)
    );
}

#[test]
fn a_full_disk_and_a_wrong_clock_have_their_own_words() {
    check(Faults { full: true, ..Faults::NONE }, 50, Class::DiskFull);
    let world = check(Faults { ahead: 600_000, ..Faults::NONE }, 120, Class::ClockSkew);
    assert!(world.acts.iter().all(|(_, act)| *act == HostAction::Open));
    let far = Faults { ahead: 90_000_000, ..Faults::NONE };
    let mut world = World::new(1);
    world.faults = far;
    world.minutes(30);
    assert_eq!(world.host.condition().map(|condition| condition.class), Some(Class::ClockSkew));
}

#[test]
fn a_revoked_host_asks_now_and_then_and_nothing_else() {
    let world = check(Faults { revoked: true, ..Faults::NONE }, 120, Class::IdentityRevokedOrFenced);
    let asked = world.acts.len();
    assert!((15..40).contains(&asked), "{asked}");
}

/// What is due now ends at once, in these ways.
fn after(now: u64, host: &mut HostMachine, connecting: FailureKind, recovering: FailureKind) {
    let now = at(now);
    let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
    for act in host.due(now) {
        let input = match act {
            HostAction::Recover(_) => Input::Recovered(Err(recovering.into())),
            HostAction::Open | HostAction::Renew => Input::Opened(Err(connecting.into())),
        };
        host.learn(input, now, chance());
    }
}

fn at(second: u64) -> Now {
    Now { wall: Timestamp::from_secs(second), steady: Span::from_secs(second) }
}

/// Nobody is trusted for an hour, neither where it connects nor where it recovers.
fn behind_a_portal(not_after: u64) -> (HostMachine, u64) {
    let end = Timestamp::from_secs(not_after);
    let mut host = HostMachine::new(Life { not_after: end, renew_at: end }, "u".to_owned());
    host.learn(Input::RecoveryReady(true), at(0), Chance { number: 0, id: "u".to_owned() });
    for second in 0..3600 {
        after(second, &mut host, FailureKind::Untrusted, FailureKind::Untrusted);
    }
    (host, 3600)
}

#[test]
fn a_portal_that_went_away_is_noticed_within_half_a_minute() {
    let (mut host, gone) = behind_a_portal(1_000_000);
    let opens = (gone..).find(|second| host.due(at(*second)).contains(&HostAction::Open)).unwrap();
    assert!(opens - gone <= 30, "{opens}");
}

#[test]
fn a_recovery_that_failed_for_one_cause_does_not_wait_for_another() {
    let (mut host, gone) = behind_a_portal(100);
    let mut recovers = None;
    for second in gone..gone + 600 {
        if host.due(at(second)).iter().any(|act| matches!(act, HostAction::Recover(_))) && recovers.is_none()
        {
            recovers = Some(second);
        }
        let chance = Chance { number: u32::MAX, id: "u".to_owned() };
        host.learn(Input::Opened(Err(FailureKind::Expired.into())), at(second), chance);
        if recovers.is_some() {
            break;
        }
    }
    assert!(recovers.is_some_and(|second| second - gone <= 35), "{recovers:?}");
}

#[test]
fn a_recovery_that_found_nobody_is_tried_as_soon_as_somebody_answers() {
    let end = Timestamp::from_secs(100);
    let mut host = HostMachine::new(Life { not_after: end, renew_at: end }, "u".to_owned());
    let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
    host.learn(Input::RecoveryReady(true), at(0), chance());
    for second in 0..3600 {
        for act in host.due(at(second)) {
            let nobody = FailureKind::Transient;
            let input = match act {
                HostAction::Open => Input::Opened(Err(nobody.into())),
                HostAction::Renew => Input::Renewed(Err(nobody.into())),
                HostAction::Recover(_) => Input::Recovered(Err(nobody.into())),
            };
            host.learn(input, at(second), chance());
        }
    }
    host.learn(Input::Opened(Err(FailureKind::Expired.into())), at(3600), chance());
    let recovers = |second: &u64| {
        let due = host.clone().due(at(*second));
        due.iter().any(|act| matches!(act, HostAction::Recover(_)))
    };
    assert!((3600..3603).any(|second| recovers(&second)), "{host:?}");
}

#[test]
fn a_slow_recovery_keeps_nobody_from_seeing_that_the_runtime_is_trusted_again() {
    let end = Timestamp::from_secs(1_000_000);
    let mut host = HostMachine::new(Life { not_after: end, renew_at: end }, "u".to_owned());
    let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
    host.learn(Input::RecoveryReady(true), at(0), chance());
    assert_eq!(host.due(at(0)), [HostAction::Open]);
    host.learn(Input::Opened(Err(FailureKind::Untrusted.into())), at(0), chance());
    assert_eq!(host.due(at(0)), [HostAction::Recover(Class::ServerTlsUntrusted)]);
    assert_eq!(host.due(at(2)), [HostAction::Open], "while the recovery is under way");
    host.learn(Input::Recovered(Ok(RecoveryResult::Refreshed)), at(3), chance());
    host.learn(Input::Opened(Err(FailureKind::Untrusted.into())), at(4), chance());
    assert_eq!(host.due(at(5)), [HostAction::Open], "what was begun before the cure says nothing");
    host.learn(Input::Opened(Ok(())), at(6), chance());
    assert_eq!(host.condition(), None);
}

#[test]
fn without_a_recovery_token_the_hardware_brings_a_lost_certificate_back_and_nothing_else() {
    let acts = |kind: FailureKind, hardware: bool| {
        let end = Timestamp::from_secs(100);
        let mut host = HostMachine::new(Life { not_after: end, renew_at: end }, "u".to_owned());
        let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
        host.learn(Input::RecoveryReady(false), at(0), chance());
        host.learn(Input::HardwareReady(hardware), at(0), chance());
        assert_eq!(host.due(at(0)), [HostAction::Open]);
        host.learn(Input::Opened(Err(kind.into())), at(0), chance());
        (host.due(at(0)), host.condition().map(|condition| condition.class))
    };
    let lost = vec![HostAction::Recover(Class::CertExpired)];
    assert_eq!(acts(FailureKind::Expired, true), (lost, Some(Class::CertExpired)));
    assert_eq!(acts(FailureKind::Expired, false), (vec![], Some(Class::RecoveryEnrollmentBlocked)));
    assert_eq!(acts(FailureKind::Untrusted, true).0, [], "it brings no other trust");
}

#[test]
fn a_revoked_machine_asks_now_and_then_whether_it_was_registered_anew() {
    for hardware in [true, false] {
        let end = Timestamp::from_secs(1_000_000);
        let mut host = HostMachine::new(Life { not_after: end, renew_at: end }, "u".to_owned());
        let chance = || Chance { number: 0, id: "u".to_owned() };
        host.learn(Input::RecoveryReady(true), at(0), chance());
        host.learn(Input::HardwareReady(hardware), at(0), chance());
        let (mut asked, revoked) = (0, FailureKind::Revoked);
        for second in 0..3600 {
            for act in host.due(at(second)) {
                let input = match act {
                    HostAction::Open | HostAction::Renew => Input::Opened(Err(revoked.into())),
                    HostAction::Recover(class) => {
                        assert_eq!(class, Class::IdentityRevokedOrFenced);
                        asked += 1;
                        Input::Recovered(Err(revoked.into()))
                    }
                };
                host.learn(input, at(second), chance());
            }
            assert_eq!(host.condition().map(|found| found.class), Some(Class::IdentityRevokedOrFenced));
        }
        assert_eq!(asked, if hardware { 11 } else { 0 }, "every five minutes");
    }
}

#[test]
fn a_pause_after_a_failed_renewal_ends_with_the_certificate_that_it_was_for() {
    let life = |renew_at: u64, not_after: u64| Life {
        not_after: Timestamp::from_secs(not_after),
        renew_at: Timestamp::from_secs(renew_at),
    };
    let mut host = HostMachine::new(life(0, 1000), "u".to_owned());
    let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
    host.learn(Input::Opened(Ok(())), at(990), chance());
    assert!(host.due(at(990)).contains(&HostAction::Renew));
    let busy = CallFailure { wait: Span::from_minutes(5), ..FailureKind::Transient.into() };
    host.learn(Input::Renewed(Err(busy)), at(991), chance());
    host.learn(Input::Loaded(life(1012, 1052)), at(992), chance());
    let renews = (992..1400).find(|second| host.clone().due(at(*second)).contains(&HostAction::Renew));
    assert_eq!(renews, Some(1012));
}

#[test]
fn a_renewal_that_is_not_allowed_is_asked_for_again_on_another_connection_or_by_order_only() {
    let life = Life { not_after: Timestamp::from_secs(100_000), renew_at: Timestamp::from_secs(0) };
    let mut host = HostMachine::new(life, "u".to_owned());
    let chance = || Chance { number: u32::MAX, id: "u".to_owned() };
    let renews = |host: &HostMachine, from: u64| {
        (from..from + 2000).any(|second| host.clone().due(at(second)).contains(&HostAction::Renew))
    };
    host.learn(Input::Opened(Ok(())), at(10), chance());
    for (again, second) in [(Input::RenewalOrdered, 3000), (Input::Opened(Ok(())), 6000)] {
        assert!(host.due(at(second - 1000)).contains(&HostAction::Renew));
        host.learn(Input::RenewalNotAllowed, at(second - 999), chance());
        assert!(!renews(&host, second - 998) && host.condition().is_none(), "nothing is wrong");
        host.learn(again, at(second), chance());
        assert!(renews(&host, second), "{again:?}");
    }
}

#[test]
fn hosts_that_lose_a_replica_together_connect_again_spread_over_a_second() {
    let life = Life { not_after: Timestamp::from_secs(10_000), renew_at: Timestamp::from_secs(5000) };
    let lost = at(100);
    let pause = |number: u32| {
        let mut host = HostMachine::new(life, "u".to_owned());
        assert_eq!(host.due(at(0)), [HostAction::Open]);
        host.learn(Input::Opened(Ok(())), at(0), Chance { number, id: "u".to_owned() });
        let failure = FailureKind::Transient.into();
        host.learn(Input::Disconnected(failure), lost, Chance { number, id: "u".to_owned() });
        let pause = host.opens_in(lost).unwrap();
        assert_eq!(host.due(lost), [], "not at once");
        let later = Now {
            steady: Span::from_millis(lost.steady.millis() + pause.millis()),
            wall: lost.wall.plus(pause),
        };
        assert_eq!(host.due(later), [HostAction::Open]);
        pause.millis()
    };
    let pauses = (0..=10u32).map(|tenth| pause(u32::MAX / 10 * tenth)).collect::<Vec<_>>();
    assert_eq!(pauses, [200, 200, 200, 299, 399, 499, 599, 699, 799, 899, 999]);
}
