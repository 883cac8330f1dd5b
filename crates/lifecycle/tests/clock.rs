//! The control plane's own clock: an operator's word for it, and the repair of what a wrong one has done.

use crate::support::{Domain, check, contact, enroll, granted, local, node, refused, revoke, span};
use lifecycle::names::{ReplicaId, Span, Timestamp};
use lifecycle::registry::{
    AcceptClock, Actor, AlertKind, Command, Confirmation, CorroborateClock, NodeState, RaiseAlert,
    RepairClock, Role, Tenants, Verdict,
};

const YEAR: &str = "400d";

fn accept(domain: &Domain, to: Timestamp, confirm: Confirmation) -> (Actor, Command) {
    (local(), Command::AcceptClock(AcceptClock { from: domain.now, to, confirm }))
}

fn confirmed() -> Confirmation {
    Confirmation::Asked(Some("clock".to_owned()))
}

fn repair(to: Timestamp) -> (Actor, Command) {
    (local(), Command::RepairClock(RepairClock { to }))
}

/// Carries the domain ahead as a wrong clock did, and gives the right time.
fn poison(domain: &mut Domain, by: &str) -> Timestamp {
    let right = domain.now;
    domain.pass(span(by));
    check(domain, (local(), crate::support::create_tenant("poisoned")), granted(&["tenant.created"]));
    right.plus(Span::from_minutes(1))
}

/// The repair is given at the wrong time and the domain goes on at the right one.
fn repaired(domain: &mut Domain, to: Timestamp) {
    check(domain, repair(to), granted(&["clock.repaired"]));
    domain.now = to;
}

#[test]
fn accepting_a_clock_is_confirmed_and_ends_the_alert() {
    let mut domain = Domain::founded();
    let raise = RaiseAlert { kind: AlertKind::ClockSkew, node: None, detail: "ahead".to_owned() };
    check(&mut domain, (Actor::Reconciler, Command::RaiseAlert(raise)), granted(&["alert.raised"]));
    let to = domain.now.plus(span("2d"));
    let (unconfirmed, wrongly) = (Confirmation::Asked(None), Confirmation::Asked(Some("yes".to_owned())));
    for confirm in [unconfirmed, wrongly] {
        let asked = accept(&domain, to, confirm);
        check(&mut domain, asked, refused("confirmation_needed"));
    }
    let asked = accept(&domain, to, confirmed());
    check(&mut domain, asked, granted(&["clock.accepted", "alert.cleared"]));
}

#[test]
fn a_clock_that_is_behind_is_accepted_at_a_start_only() {
    let mut domain = Domain::founded();
    let before = domain.now.minus(span("6m"));
    let asked = accept(&domain, before, confirmed());
    check(&mut domain, asked, refused("clock_behind"));
    let asked = accept(&domain, before, Confirmation::NotAsked);
    check(&mut domain, asked, granted(&["clock.accepted"]));
}

#[test]
fn what_ends_by_a_later_time_is_counted() {
    let mut domain = Domain::founded();
    let one = domain.active();
    domain.mint();
    domain.key(Role::Viewer, Tenants::All);
    let (now, state) = (domain.now, &domain.state);
    let nothing = state.ends_by(now, now.plus(span("1m")));
    assert_eq!([nothing.nodes, nothing.tokens, nothing.keys, nothing.issuers], [0; 4]);
    assert_eq!(state.ends_by(now, now.plus(span("2h"))).tokens, 1);
    let all = state.ends_by(now, now.plus(span(YEAR)));
    assert_eq!([all.nodes, all.tokens, all.keys, all.issuers], [1; 4], "{:?}", one.node);
}

#[test]
fn a_repair_brings_back_what_the_calendar_says_is_good() {
    let mut domain = Domain::founded();
    let one = domain.active();
    let right = poison(&mut domain, YEAR);
    assert_eq!(domain.state.verdict(&one.serial, domain.state.at), Verdict::Expired);
    repaired(&mut domain, right);
    assert_eq!(domain.state.at, right);
    assert_eq!(domain.state.verdict(&one.serial, right), Verdict::Good);
    let next = domain.renew(&one);
    check(&mut domain, contact(&next), granted(&["certificate.seen", "certificate.superseded"]));
    domain.active();
    assert_eq!(domain.state.set_back, span("400d").minus_minute());
}

#[test]
fn a_repair_settles_what_had_ended() {
    let mut domain = Domain::founded();
    let (old, gone) = (domain.active(), domain.active());
    check(&mut domain, (local(), revoke(&gone.node)), granted(&["host.revoked"]));
    let key = domain.key(Role::PlatformAdmin, Tenants::All);
    let token = domain.mint();
    let new = domain.renew(&old);
    check(&mut domain, contact(&new), granted(&["certificate.seen", "certificate.superseded"]));
    let right = poison(&mut domain, YEAR);
    repaired(&mut domain, right);
    assert!(domain.state.is_denied(&old.serial), "its grace was over at the wrong time");
    assert!(domain.state.is_denied(&gone.serial));
    assert_eq!(domain.state.nodes[&gone.node].state, NodeState::Revoked);
    let mint = Command::CreateToken(domain.token_request());
    check(&mut domain, (key, mint), refused("unauthenticated"));
    let request = domain.request(token);
    let request = domain.prepare(request);
    check(&mut domain, enroll(request), refused("token_expired"));
}

#[test]
fn what_was_issued_at_the_wrong_time_ends_and_its_host_recovers() {
    let mut domain = Domain::founded();
    let (one, mint) = domain.provided();
    let right = domain.now.plus(Span::from_minutes(1));
    domain.pass(span("12h"));
    let ahead = domain.renew(&one);
    check(&mut domain, contact(&ahead), granted(&["certificate.seen", "certificate.superseded"]));
    repaired(&mut domain, right);
    assert_eq!(domain.state.verdict(&ahead.serial, right), Verdict::Expired);
    let recovery = domain.recovery(mint.hash);
    check(
        &mut domain,
        crate::support::recover(recovery),
        granted(&["recovery.requested", "recovery.issued"]),
    );
}

#[test]
fn a_cool_down_begins_anew() {
    let mut domain = Domain::founded();
    let (token, wireguard) = (domain.mint(), domain.wireguard());
    let one = domain.enroll_with(token, |request| request.wireguard = Some(wireguard));
    let address = domain.state.nodes[&one.node].address.unwrap();
    check(&mut domain, (local(), revoke(&one.node)), granted(&["host.revoked"]));
    let right = poison(&mut domain, YEAR);
    repaired(&mut domain, right);
    let rest = domain.state.policy.overlay_cooldown;
    let early = right.plus(rest).minus(Span::from_millis(1));
    assert_ne!(domain.state.addresses.pick(early, rest), Some(address));
    assert_eq!(domain.state.addresses.pick(right.plus(rest), rest), Some(address));
}

#[test]
fn a_repair_of_what_is_not_ahead_changes_nothing() {
    let mut domain = Domain::founded();
    for to in [domain.now, domain.now.plus(span("2d"))] {
        check(&mut domain, repair(to), granted(&[]));
    }
    let before_the_domain = domain.now.minus(span("1d"));
    check(&mut domain, repair(before_the_domain), refused("clock_behind"));
}

#[test]
fn what_ends_something_needs_no_clock_and_what_begins_something_does() {
    let mut domain = Domain::founded();
    let id = node("a");
    for command in [
        revoke(&id),
        Command::Decommission { node: id.clone(), force: false },
        Command::Quarantine { node: id.clone(), reason: String::new() },
        Command::RevokeRecoveryTokens { node: id.clone() },
    ] {
        assert!(!command.needs_time(), "{command:?}");
    }
    let token = domain.mint();
    let request = domain.request(token);
    for command in [
        Command::CreateToken(domain.token_request()),
        Command::Enroll(Box::new(request)),
        Command::CreateOperatorKey(domain.key_request(Role::Viewer, Tenants::All)),
        Command::Rotate { node: id },
        Command::Tidy,
        Command::Expire,
    ] {
        assert!(command.needs_time(), "{command:?}");
    }
}

trait LessAMinute {
    fn minus_minute(self) -> Self;
}

impl LessAMinute for Span {
    fn minus_minute(self) -> Self {
        Span::from_millis(self.millis() - Span::from_minutes(1).millis())
    }
}

/// Replica 1 has lost ten minutes, and these agree with its clock, which shows so much more than the time of the domain.
fn corroborated(domain: &Domain, agreeing: &[u64], ahead: i64) -> (Actor, Command) {
    let to = domain.now.millis().checked_add_signed(ahead * 1000).map(Timestamp::from_millis).unwrap();
    let (from, agreeing) = (to.minus(span("10m")), agreeing.iter().copied().map(ReplicaId).collect());
    (
        Actor::Reconciler,
        Command::CorroborateClock(CorroborateClock { replica: ReplicaId(1), from, to, agreeing }),
    )
}

#[test]
fn a_clock_that_two_other_replicas_agree_with_is_accepted_if_the_leader_does_too() {
    let mut domain = Domain::cluster(4);
    check(&mut domain, (local(), crate::support::remove_replica(4)), granted(&["cluster.removed"]));
    for (agreeing, ahead, code) in [
        (&[][..], 0, "try_again"),
        (&[2], 0, "try_again"),
        (&[2, 2], 0, "try_again"),
        (&[1, 2], 0, "try_again"),
        (&[2, 4], 0, "replica_removed"),
        (&[2, 9], 0, "replica_not_found"),
        (&[2, 3], 301, "try_again"),
        (&[2, 3], -301, "try_again"),
    ] {
        let asked = corroborated(&domain, agreeing, ahead);
        check(&mut domain, asked, refused(code));
    }
    let backwards = CorroborateClock {
        replica: ReplicaId(1),
        from: domain.now.plus(span("2m")),
        to: domain.now,
        agreeing: vec![ReplicaId(2), ReplicaId(3)],
    };
    check(&mut domain, (Actor::Reconciler, Command::CorroborateClock(backwards)), refused("try_again"));
    let asked = corroborated(&domain, &[2, 3], 1);
    check(&mut domain, asked, granted(&["clock.accepted"]));
}
