//! How far the trail has been forwarded.

use crate::support::{Domain, check, granted};
use lifecycle::registry::{
    Actor, AuditSink, Command, Event, Forwarded, ForwardingGapCause, SkipForwarding, State,
};

fn through(through: u64) -> (Actor, Command) {
    (Actor::Reconciler, Command::RecordForwarded(Forwarded { sink: AuditSink::Loki, through }))
}

fn skip(to: u64) -> (Actor, Command) {
    let cause = ForwardingGapCause::Missing;
    (Actor::Reconciler, Command::SkipForwarding(SkipForwarding { sink: AuditSink::Loki, to, cause }))
}

fn cursor(state: &State) -> u64 {
    state.forwarded(AuditSink::Loki)
}

#[test]
fn a_cursor_rises_and_never_falls() {
    let mut domain = Domain::founded();
    assert_eq!(cursor(&domain.state), 0);
    check(&mut domain, through(7), granted(&["audit.forwarded"]));
    check(&mut domain, through(7), granted(&[]));
    check(&mut domain, through(3), granted(&[]));
    assert_eq!(cursor(&domain.state), 7);
    check(&mut domain, through(8), granted(&["audit.forwarded"]));
    assert_eq!(cursor(&domain.state), 8);
}

#[test]
fn a_cursor_is_no_line_of_the_trail_that_it_follows() {
    let mut domain = Domain::founded();
    let revision = domain.state.revision;
    let events = check(&mut domain, through(9), granted(&["audit.forwarded"]));
    assert!(events.iter().all(|event| !event.is_audited()));
    assert_eq!(domain.state.revision, revision);
}

#[test]
fn lines_that_are_left_out_are_named_in_the_trail_once() {
    let mut domain = Domain::founded();
    check(&mut domain, through(4), granted(&["audit.forwarded"]));
    let events = check(&mut domain, skip(9), granted(&["audit.forwarding_gap"]));
    let [Event::ForwardingGapFound(gap)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((gap.from, gap.to, cursor(&domain.state)), (5, 9, 9));
    assert!(events.iter().all(Event::is_audited));
    check(&mut domain, skip(9), granted(&[]));
}
