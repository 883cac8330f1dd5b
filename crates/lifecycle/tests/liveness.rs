//! Who was heard of, and who has been silent for too long.

use crate::support::{Domain, Enrolled, check, contact, granted, local, node, refused, span};
use lifecycle::names::{Label, NodeId, Timestamp};
use lifecycle::registry::{Actor, Command, NodeState, Sighting, Silence};

const SEEN: &[&str] = &["host.seen"];

fn observe(sightings: Vec<Sighting>) -> (Actor, Command) {
    (Actor::Reconciler, Command::Observe(sightings))
}

fn silent(node: &NodeId, listening_since: Timestamp) -> (Actor, Command) {
    let silence = Silence { nodes: vec![node.clone()], listening_since };
    (Actor::Reconciler, Command::MarkInactive(silence))
}

fn state_of(domain: &Domain, of: &Enrolled) -> NodeState {
    domain.state.nodes[&of.node].state
}

#[test]
fn a_streaming_node_that_is_silent_for_the_grace_period_is_inactive() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let start = domain.now;
    domain.streams(&node.node);
    domain.pass(span("299s"));
    check(&mut domain, silent(&node.node, start), granted(&[]));
    domain.pass(span("1s"));
    check(&mut domain, silent(&node.node, start), granted(&["host.inactive"]));
    assert_eq!(state_of(&domain, &node), NodeState::Inactive);
    assert_eq!(domain.state.nodes[&node.node].state_since, domain.now);
    check(&mut domain, silent(&node.node, start), granted(&[]));
}

#[test]
fn a_node_that_never_streamed_does_not_fall_inactive() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let start = domain.now;
    domain.pass(span("1m"));
    let request = Sighting { instance: None, ..domain.sighting(&node.node) };
    check(&mut domain, observe(vec![request]), granted(SEEN));
    domain.pass(span("20h"));
    check(&mut domain, silent(&node.node, start), granted(&[]));
    assert_eq!(state_of(&domain, &node), NodeState::Active);
}

#[test]
fn silence_counts_from_when_anybody_could_be_heard() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.streams(&node.node);
    domain.pass(span("3h"));
    let back = domain.now;
    domain.pass(span("299s"));
    check(&mut domain, silent(&node.node, back), granted(&[]));
    domain.pass(span("1s"));
    check(&mut domain, silent(&node.node, back), granted(&["host.inactive"]));
}

#[test]
fn only_active_nodes_fall_inactive() {
    let mut domain = Domain::founded();
    let (enrolled, gone) = (domain.enroll(), domain.active());
    let start = domain.now;
    domain.streams(&enrolled.node);
    domain.streams(&gone.node);
    domain.end(&gone.node, NodeState::Revoked);
    domain.pass(span("1h"));
    for id in [&enrolled.node, &gone.node, &node("nobody")] {
        check(&mut domain, silent(id, start), granted(&[]));
    }
}

#[test]
fn the_grace_period_is_policy() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let start = domain.now;
    domain.streams(&node.node);
    domain.policy("liveness.grace", "1h");
    domain.pass(span("59m"));
    check(&mut domain, silent(&node.node, start), granted(&[]));
    domain.policy("liveness.grace", "30s");
    check(&mut domain, silent(&node.node, start), granted(&["host.inactive"]));
}

#[test]
fn a_node_that_is_named_twice_falls_and_wakes_once() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.streams(&node.node);
    let listening_since = domain.now;
    domain.pass(span("5m"));
    let silence = Silence { nodes: vec![node.node.clone(); 2], listening_since };
    let twice = (Actor::Reconciler, Command::MarkInactive(silence));
    check(&mut domain, twice, granted(&["host.inactive"]));
    let sightings = vec![domain.sighting(&node.node); 2];
    check(&mut domain, observe(sightings), granted(&["host.seen", "host.active", "host.seen"]));
}

#[test]
fn an_inactive_node_on_its_stream_is_active_again() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.silence(&node.node);
    let sighting = domain.sighting(&node.node);
    check(&mut domain, observe(vec![sighting]), granted(&["host.seen", "host.active"]));
    assert_eq!(state_of(&domain, &node), NodeState::Active);
}

#[test]
fn an_old_sighting_does_not_wake() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let heard = domain.now.plus(span("1s"));
    domain.silence(&node.node);
    domain.pass(span("1m"));
    let sighting = Sighting { seen: heard, ..domain.sighting(&node.node) };
    check(&mut domain, observe(vec![sighting]), granted(SEEN));
    assert_eq!(state_of(&domain, &node), NodeState::Inactive);
}

#[test]
fn what_tells_nothing_new_is_left_out() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.streams(&node.node);
    let sighting = domain.sighting(&node.node);
    check(&mut domain, observe(vec![sighting.clone()]), granted(&[]));
    let earlier = Sighting { seen: domain.now.minus(span("1m")), ..sighting.clone() };
    check(&mut domain, observe(vec![earlier]), granted(&[]));
    let version = Sighting { agent_version: Label::parse("1.2").ok(), ..sighting };
    check(&mut domain, observe(vec![version.clone()]), granted(SEEN));
    check(&mut domain, observe(vec![version]), granted(&[]));
}

#[test]
fn a_clock_ahead_does_not_keep_a_node_alive() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let start = domain.now;
    let ahead = Sighting { seen: domain.now.plus(span("1d")), ..domain.sighting(&node.node) };
    check(&mut domain, observe(vec![ahead]), granted(SEEN));
    assert_eq!(domain.state.nodes[&node.node].last_seen, Some(domain.now));
    domain.pass(span("5m"));
    check(&mut domain, silent(&node.node, start), granted(&["host.inactive"]));
}

#[test]
fn a_bundle_that_does_not_exist_yet_is_not_believed() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let boast = Sighting { bundle: Some(u64::MAX), ..domain.sighting(&node.node) };
    check(&mut domain, observe(vec![boast]), granted(SEEN));
    assert_eq!(domain.state.adoption(), (1, 1));
    domain.prepare_issuer("i2");
    assert_eq!(domain.state.adoption(), (0, 1));
}

#[test]
fn the_dead_and_the_unknown_are_not_heard_of() {
    let mut domain = Domain::founded();
    let gone = domain.active();
    domain.end(&gone.node, NodeState::Decommissioned);
    domain.pass(span("1m"));
    let sightings = vec![domain.sighting(&gone.node), domain.sighting(&node("nobody"))];
    check(&mut domain, observe(sightings), granted(&[]));
}

#[test]
fn observations_are_not_audited_and_transitions_are() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let revision = domain.state.revision;
    domain.streams(&node.node);
    assert_eq!(domain.state.revision, revision);
    let start = domain.now;
    domain.pass(span("5m"));
    check(&mut domain, silent(&node.node, start), granted(&["host.inactive"]));
    assert_eq!(domain.state.revision, revision + 1);
    check(&mut domain, contact(&node), granted(&["host.active"]));
    assert_eq!(domain.state.revision, revision + 2);
}

#[test]
fn a_few_starts_of_an_agent_are_remembered() {
    let mut domain = Domain::founded();
    let node = domain.active();
    for start in 0..10 {
        let instance = Label::parse(&format!("start-{start}")).ok();
        let sighting = Sighting { instance, ..domain.sighting(&node.node) };
        check(&mut domain, observe(vec![sighting]), granted(SEEN));
    }
    let known: Vec<_> = domain.state.nodes[&node.node].instances.iter().map(Label::as_str).collect();
    assert_eq!(known.len(), 4);
    assert_eq!(known.last(), Some(&"start-9"));
}

#[test]
fn only_the_control_plane_observes() {
    let mut domain = Domain::founded();
    let node = domain.active();
    let (_, seen) = observe(vec![domain.sighting(&node.node)]);
    let (_, silent) = silent(&node.node, domain.now);
    for command in [seen, silent] {
        for actor in [local(), node.actor(), Actor::Stranger] {
            check(&mut domain, (actor, command.clone()), refused("forbidden"));
        }
    }
}
