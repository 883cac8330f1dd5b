//! Sessions on nodes: what a host says of them, and what their node's end does to them.

use crate::support::{Domain, Enrolled, check, granted, local, refused, revoke};
use lifecycle::names::{Label, SessionId, Timestamp, Ulid};
use lifecycle::registry::{
    Actor, CloseReason, ClosedSession, Command, MOST_SESSIONS, NodeState, Session, SessionChanges,
    SessionKind, SessionReport,
};

fn session(number: u16) -> Session {
    let mut chance = [0; 10];
    chance[..2].copy_from_slice(&number.to_be_bytes());
    Session {
        id: SessionId(Ulid::new(Timestamp::from_secs(1), chance)),
        kind: SessionKind::Shell,
        user: Label::parse("alice").unwrap(),
        opened_at: Timestamp::from_secs(u64::from(number)),
    }
}

fn ended(number: u16, sequence: u64) -> ClosedSession {
    ClosedSession { session: session(number), reason: CloseReason::Ended, exit_status: Some(7), sequence }
}

fn open(sequence: u64, numbers: impl IntoIterator<Item = u16>) -> SessionReport {
    let open = numbers.into_iter().map(session).collect();
    SessionReport { sequence, complete: true, open, ended: Vec::new() }
}

/// What the report changes, as the node says it.
fn said(domain: &Domain, of: &Enrolled, instance: &str, report: &SessionReport) -> Option<(Actor, Command)> {
    let node = &domain.state.nodes[&of.node];
    match report.changes(node, &Label::parse(instance).unwrap(), 1000) {
        SessionChanges::None => None,
        SessionChanges::Some { change, whole, .. } => {
            assert!(whole);
            Some((of.actor(), Command::ReportSessions(Box::new(change))))
        }
    }
}

#[track_caller]
fn tell(
    domain: &mut Domain,
    of: &Enrolled,
    instance: &str,
    report: &SessionReport,
    events: &'static [&'static str],
) {
    match said(domain, of, instance, report) {
        Some(command) => {
            check(domain, command, granted(events));
        }
        None => assert!(events.is_empty(), "nothing was said"),
    }
}

fn opened(domain: &Domain, of: &Enrolled) -> Vec<SessionId> {
    domain.state.nodes[&of.node].sessions.open.iter().map(|session| session.id).collect()
}

fn decommission(of: &Enrolled, force: bool) -> (Actor, Command) {
    (local(), Command::Decommission { node: of.node.clone(), force })
}

const OPENED: &[&str] = &["session.opened", "session.reported"];
const CLOSED: &[&str] = &["session.closed", "session.reported"];
const BOTH: &[&str] = &["session.opened", "session.closed", "session.reported"];

#[test]
fn a_session_is_on_record_from_its_opening_to_its_end() {
    let mut domain = Domain::founded();
    let of = domain.active();
    tell(&mut domain, &of, "one", &open(1, [1]), OPENED);
    tell(&mut domain, &of, "one", &open(1, [1]), &[]);
    assert_eq!(opened(&domain, &of), [session(1).id]);
    let over = SessionReport { ended: vec![ended(1, 2)], ..open(2, []) };
    tell(&mut domain, &of, "one", &over, CLOSED);
    tell(&mut domain, &of, "one", &over, &[]);
    assert!(opened(&domain, &of).is_empty());
}

#[test]
fn one_that_ended_before_it_was_said_is_recorded_once() {
    let mut domain = Domain::founded();
    let of = domain.active();
    let over = SessionReport { ended: vec![ended(1, 2)], ..open(2, []) };
    let command = said(&domain, &of, "one", &over).unwrap();
    check(&mut domain, command.clone(), granted(BOTH));
    // The answer was lost: said again, and asked of the rule again.
    tell(&mut domain, &of, "one", &over, &[]);
    check(&mut domain, command, granted(&[]));
    // Another start of the agent counts anew.
    let other = SessionReport { ended: vec![ended(2, 1)], ..open(1, []) };
    tell(&mut domain, &of, "two", &other, BOTH);
}

#[test]
fn an_agent_that_has_just_started_loses_nothing_yet() {
    let mut domain = Domain::founded();
    let of = domain.active();
    tell(&mut domain, &of, "one", &open(1, [1]), OPENED);
    tell(&mut domain, &of, "two", &SessionReport { complete: false, ..open(1, []) }, &[]);
    assert_eq!(opened(&domain, &of), [session(1).id]);
    let command = said(&domain, &of, "two", &open(2, [])).unwrap();
    let events = check(&mut domain, command, granted(CLOSED));
    let fields = format!("{:?}", events[0].fields());
    assert!(fields.contains("lost") && fields.contains("alice"), "{fields}");
}

#[test]
fn a_report_that_comes_late_says_nothing() {
    let mut domain = Domain::founded();
    let of = domain.active();
    let early = said(&domain, &of, "one", &open(1, [1])).unwrap();
    tell(
        &mut domain,
        &of,
        "one",
        &SessionReport { ended: vec![ended(1, 2)], ..open(2, [2]) },
        &["session.opened", "session.closed", "session.opened", "session.reported"],
    );
    check(&mut domain, early, granted(&[]));
    assert_eq!(opened(&domain, &of), [session(2).id]);
}

#[test]
fn what_there_are_no_lines_for_waits() {
    let mut domain = Domain::founded();
    let of = domain.active();
    let report = SessionReport { ended: vec![ended(1, 1), ended(2, 2), ended(3, 3)], ..open(5, [4, 5]) };
    let instance = Label::parse("one").unwrap();
    let mut rounds = 0;
    while let SessionChanges::Some { change, lines, whole } =
        report.changes(&domain.state.nodes[&of.node], &instance, 3)
    {
        assert!((1..=3).contains(&lines));
        rounds += 1;
        assert_eq!(whole, rounds == 3, "{change:?}");
        let applied = domain.give(of.actor(), Command::ReportSessions(Box::new(change)));
        assert_eq!(applied.events.iter().filter(|event| event.is_audited()).count(), lines as usize);
    }
    assert_eq!((rounds, opened(&domain, &of).len()), (3, 2));
    let other = domain.active();
    let none = report.changes(&domain.state.nodes[&other.node], &instance, 0);
    assert!(matches!(none, SessionChanges::Some { lines: 0, whole: false, .. }));
}

#[test]
fn there_are_no_more_than_there_may_be_and_none_of_the_future() {
    let mut domain = Domain::founded();
    let of = domain.active();
    let many = open(1, 0..300);
    let command = said(&domain, &of, "one", &many).unwrap();
    domain.give(command.0, command.1);
    assert_eq!(opened(&domain, &of).len(), MOST_SESSIONS);
    let next = domain.active();
    let mut ahead = open(1, [1]);
    ahead.open[0].opened_at = domain.now.plus(lifecycle::names::Span::from_days(1));
    tell(&mut domain, &next, "one", &ahead, OPENED);
    assert_eq!(domain.state.nodes[&next.node].sessions.open[0].opened_at, domain.now);
}

#[test]
fn open_sessions_stand_in_the_way_of_a_decommission_without_force() {
    let mut domain = Domain::founded();
    let (of, without) = (domain.active(), domain.active());
    check(&mut domain, decommission(&without, false), granted(&["host.decommissioned"]));
    tell(
        &mut domain,
        &of,
        "one",
        &open(1, [1, 2]),
        &["session.opened", "session.opened", "session.reported"],
    );
    check(&mut domain, decommission(&of, false), refused("active_sessions"));
    domain.silence(&of.node);
    check(&mut domain, decommission(&of, false), refused("active_sessions"));
    let forced = &["session.closed", "session.closed", "host.decommissioned"];
    check(&mut domain, decommission(&of, true), granted(forced));
    let node = &domain.state.nodes[&of.node];
    assert_eq!((node.state, node.sessions.terminated), (NodeState::Decommissioned, 2));
    assert!(node.sessions.open.is_empty());
    for force in [false, true] {
        check(&mut domain, decommission(&of, force), granted(&[]));
    }
    check(
        &mut domain,
        (local(), Command::Reinstate { node: of.node.clone(), as_registered: true }),
        granted(&["host.reinstated"]),
    );
    assert!(domain.state.nodes[&of.node].sessions.is_blank());
}

#[test]
fn a_revocation_never_asks() {
    let mut domain = Domain::founded();
    let of = domain.active();
    tell(&mut domain, &of, "one", &open(1, [1]), OPENED);
    check(&mut domain, (local(), revoke(&of.node)), granted(&["session.closed", "host.revoked"]));
    assert!(opened(&domain, &of).is_empty());
    let report = open(2, [2]);
    let late = said(&domain, &of, "one", &report).unwrap();
    check(&mut domain, late, refused("unauthenticated"));
}

#[test]
fn nobody_reports_for_another_node() {
    let mut domain = Domain::founded();
    let (of, other) = (domain.active(), domain.active());
    let (_, command) = said(&domain, &of, "one", &open(1, [1])).unwrap();
    check(&mut domain, (other.actor(), command.clone()), refused("forbidden"));
    check(&mut domain, (local(), command), refused("unauthenticated"));
}
