//! What hosts say of themselves: what is written down, and what an operator is to look at.

use crate::support::{Domain, Enrolled, check, granted, span};
use lifecycle::host::Class;
use lifecycle::names::Label;
use lifecycle::registry::{
    Actor, AlertKind, Attempt, Command, FreeSpace, NodeState, Place, RaiseAlert, Report, Sighting,
};
use std::sync::Arc;

const SEEN: &[&str] = &["host.seen"];

/// A host that says something of itself, now.
fn says(domain: &Domain, of: &Enrolled, change: impl FnOnce(&mut Report)) -> (Actor, Command) {
    let mut report = Report::blank(domain.now);
    change(&mut report);
    let sighting = Sighting { report: Some(Arc::new(report)), ..domain.sighting(&of.node) };
    (Actor::Reconciler, Command::Observe(vec![sighting]))
}

fn failed(code: &str) -> Option<Attempt> {
    Some(Attempt { at: None, ok: false, code: Label::parse(code).ok(), correlation_id: None })
}

fn on_record<'a>(domain: &'a Domain, of: &Enrolled) -> Option<&'a Report> {
    domain.state.nodes[&of.node].report.as_deref()
}

fn kinds(domain: &Domain, of: &Enrolled, change: impl FnOnce(&mut Report)) -> Vec<(AlertKind, String)> {
    let mut report = Report::blank(domain.now);
    change(&mut report);
    domain.state.reported(&domain.state.nodes[&of.node], &report)
}

#[test]
fn a_report_is_written_when_it_says_something_new() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.streams(&node.node);
    let command = says(&domain, &node, |_| {});
    check(&mut domain, command, granted(SEEN));
    let room = |bytes| vec![FreeSpace { place: Place::Cert, path: String::new(), available_bytes: bytes }];
    let command = says(&domain, &node, |report| report.free_space = room(7));
    check(&mut domain, command, granted(&[]));
    let command = says(&domain, &node, |report| report.clock_offset_ms = 300_000);
    check(&mut domain, command, granted(&[]));
    let command = says(&domain, &node, |report| report.clock_offset_ms = -300_001);
    check(&mut domain, command, granted(SEEN));
    let command = says(&domain, &node, |report| report.class = Some(Class::DiskFull));
    check(&mut domain, command, granted(SEEN));
    assert_eq!(on_record(&domain, &node).and_then(|report| report.class), Some(Class::DiskFull));
}

#[test]
fn an_older_report_does_not_take_the_place_of_a_newer_one() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("1m"));
    let old = says(&domain, &node, |report| report.class = Some(Class::ClockSkew));
    domain.pass(span("1m"));
    let new = says(&domain, &node, |_| {});
    check(&mut domain, new, granted(SEEN));
    check(&mut domain, old, granted(&[]));
    assert_eq!(on_record(&domain, &node).map(|report| (report.at, report.class)), Some((domain.now, None)));
}

#[test]
fn a_report_from_a_clock_ahead_counts_from_now() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let ahead = domain.now.plus(span("1d"));
    let command = says(&domain, &node, |report| report.at = ahead);
    check(&mut domain, command, granted(SEEN));
    assert_eq!(on_record(&domain, &node).map(|report| report.at), Some(domain.now));
}

#[test]
fn a_new_life_begins_without_the_word_of_the_old_one() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("1m"));
    let late = says(&domain, &node, |report| report.class = Some(Class::DiskFull));
    check(&mut domain, late.clone(), granted(SEEN));
    domain.pass(span("1m"));
    let token = domain.mint_pinned(&node.node);
    domain.enroll_with(token, |_| {});
    assert_eq!(on_record(&domain, &node), None);
    domain.give(late.0, late.1);
    assert_eq!(on_record(&domain, &node), None, "it was said before the node enrolled");
    let heard = Arc::new(Report::blank(domain.now.minus(span("1m"))));
    assert_eq!(domain.state.nodes[&node.node].newest_report(Some(&heard)), None);
    let heard = Arc::new(Report::blank(domain.now));
    assert_eq!(domain.state.nodes[&node.node].newest_report(Some(&heard)), Some(&heard));
}

#[test]
fn each_trouble_that_a_host_tells_has_its_kind() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("1m"));
    assert_eq!(kinds(&domain, &node, |_| {}), []);
    let found = kinds(&domain, &node, |report| report.last_renewal = failed("unavailable"));
    assert_eq!(found[0].0, AlertKind::RenewalFailing);
    assert!(found[0].1.ends_with("see its evidence"), "none of the host's own words");
    assert_eq!(kinds(&domain, &node, |report| report.last_renewal = failed("clock_skew")), []);
    for (class, kind) in [
        (Class::ClockSkew, Some(AlertKind::ClockSkew)),
        (Class::EndpointProfileDrift, Some(AlertKind::EndpointProfileDrift)),
        (Class::DiskFull, Some(AlertKind::DiskFull)),
        (Class::EndpointUnreachable, None),
    ] {
        let found = kinds(&domain, &node, |report| report.class = Some(class));
        assert_eq!(found.first().map(|(kind, _)| *kind), kind, "{class}");
    }
    for (offset, word) in [(300_001, "ahead"), (-300_001, "behind"), (i64::MIN, "behind")] {
        let found = kinds(&domain, &node, |report| report.clock_offset_ms = offset);
        assert!(found[0].0 == AlertKind::ClockSkew && found[0].1.contains(word), "{offset}");
    }
    assert_eq!(kinds(&domain, &node, |report| report.clock_offset_ms = -300_000), []);
    domain.policy("clock.tolerance", "1s");
    assert_eq!(kinds(&domain, &node, |report| report.clock_offset_ms = 1001).len(), 1);
}

#[test]
fn a_renewal_that_the_control_plane_saw_ends_the_word_of_one_that_failed() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.pass(span("1m"));
    let told = Report { last_renewal: failed("unavailable"), ..Report::blank(domain.now) };
    let detail = "it could not".to_owned();
    let raise = RaiseAlert { kind: AlertKind::RenewalFailing, node: Some(node.node.clone()), detail };
    check(&mut domain, (Actor::Reconciler, Command::RaiseAlert(raise)), granted(&["alert.raised"]));
    domain.pass(span("1m"));
    domain.renew(&node);
    assert_eq!(domain.state.open_alert(AlertKind::RenewalFailing, Some(&node.node)), None);
    assert_eq!(domain.state.reported(&domain.state.nodes[&node.node], &told), []);
}

#[test]
fn what_hosts_told_is_over_when_they_enroll_again_or_are_gone() {
    for anew in [true, false] {
        let mut domain = Domain::founded();
        let node = domain.active();
        for kind in lifecycle::registry::REPORTED {
            let alert = RaiseAlert { kind, node: Some(node.node.clone()), detail: "x".to_owned() };
            domain.give(Actor::Reconciler, Command::RaiseAlert(alert));
        }
        assert_eq!(domain.state.alerts.len(), lifecycle::registry::REPORTED.len());
        if anew {
            let token = domain.mint_pinned(&node.node);
            domain.enroll_with(token, |_| {});
        } else {
            domain.end(&node.node, NodeState::Revoked);
        }
        let open: Vec<_> = domain.state.alerts.values().map(|alert| alert.kind).collect();
        assert_eq!(open, if anew { vec![AlertKind::NodeReplaced] } else { Vec::new() });
    }
}
