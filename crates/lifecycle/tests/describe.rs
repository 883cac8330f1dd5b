//! Describing a node.

use crate::support::{Domain, check, granted, local, node, refused};
use lifecycle::names::{Labels, NodeId, Title};
use lifecycle::registry::{Actor, Change, Command, Describe, NodeState};

fn title(text: &str) -> Change<Title> {
    Change::Set(Title::parse(text).unwrap())
}

fn labels(pairs: &[(&str, &str)]) -> Change<Labels> {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Change::Set(Labels::parse(pairs.collect()).unwrap())
}

fn describe(node: &NodeId, name: Change<Title>, labels: Change<Labels>) -> (Actor, Command) {
    (local(), Command::Describe(Describe { node: node.clone(), name, labels }))
}

#[test]
fn each_part_changes_by_itself_and_the_same_again_changes_nothing() {
    let mut domain = Domain::founded();
    let id = domain.enroll().node;
    let described = || granted(&["host.described"]);
    check(&mut domain, describe(&id, title("Rack 7"), Change::Keep), described());
    check(&mut domain, describe(&id, Change::Keep, labels(&[("site", "lon")])), described());
    let known = &domain.state.nodes[&id];
    assert_eq!(known.name.as_ref().map(Title::as_str), Some("Rack 7"));
    assert_eq!(known.labels.pairs()["site"], "lon");
    check(&mut domain, describe(&id, title("Rack 7"), labels(&[("site", "lon")])), granted(&[]));
    check(&mut domain, describe(&id, Change::Keep, Change::Keep), granted(&[]));
    check(&mut domain, describe(&id, Change::Forget, Change::Forget), described());
    let known = &domain.state.nodes[&id];
    assert_eq!((known.name.as_ref(), known.labels.pairs().len()), (None, 0));
}

#[test]
fn a_tombstone_may_be_described_and_a_stranger_to_the_registry_not() {
    let mut domain = Domain::founded();
    let id = domain.active().node;
    domain.end(&id, NodeState::Revoked);
    check(&mut domain, describe(&id, title("stolen"), Change::Keep), granted(&["host.described"]));
    assert_eq!(domain.state.nodes[&id].state, NodeState::Revoked);
    check(&mut domain, describe(&node("nobody"), title("x"), Change::Keep), refused("node_not_found"));
}

#[test]
fn a_token_names_the_node_that_it_makes() {
    let mut domain = Domain::founded();
    let token = domain.mint_with(|create| create.name = Some(Title::parse("Edge 1").unwrap()));
    let enrolled = domain.enroll_with(token, |_| ());
    assert_eq!(domain.state.nodes[&enrolled.node].name.as_ref().map(Title::as_str), Some("Edge 1"));
    let unnamed = domain.mint_pinned(&enrolled.node);
    domain.enroll_with(unnamed, |_| ());
    assert_eq!(domain.state.nodes[&enrolled.node].name.as_ref().map(Title::as_str), Some("Edge 1"));
}
