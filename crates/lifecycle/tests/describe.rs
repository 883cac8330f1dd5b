//! Describing a node.

use crate::support::{Domain, check, granted, local, node, refused};
use lifecycle::names::{LabelKey, Labels, NodeId, Title};
use lifecycle::registry::{Actor, Change, Command, Describe, NodeState, Relabel};

fn title(text: &str) -> Change<Title> {
    Change::Set(Title::parse(text).unwrap())
}

fn labels(pairs: &[(&str, &str)]) -> Change<Labels> {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Change::Set(Labels::parse(pairs.collect()).unwrap())
}

fn describe(node: &NodeId, name: Change<Title>, labels: Change<Labels>) -> (Actor, Command) {
    (local(), Command::Describe(Describe { node: node.clone(), name, labels, relabel: Relabel::default() }))
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

fn relabel(node: &NodeId, remove: &[&str], set: &[(&str, &str)]) -> (Actor, Command) {
    let remove = remove.iter().map(|key| LabelKey::parse(key).unwrap()).collect();
    let Change::Set(set) = labels(set) else { unreachable!() };
    let (actor, command) = describe(node, Change::Keep, Change::Keep);
    let Command::Describe(describe) = command else { unreachable!() };
    (actor, Command::Describe(Describe { relabel: Relabel { remove, set }, ..describe }))
}

#[test]
fn labels_change_one_by_one_and_the_others_stay() {
    let mut domain = Domain::founded();
    let id = domain.enroll().node;
    check(&mut domain, relabel(&id, &[], &[("env", "prod"), ("rack", "7")]), granted(&["host.described"]));
    check(&mut domain, relabel(&id, &["rack", "none"], &[("env", "test")]), granted(&["host.described"]));
    assert_eq!(domain.state.nodes[&id].labels.to_list(), "env=test");
    check(&mut domain, relabel(&id, &["rack"], &[("env", "test")]), granted(&[]));
    assert_eq!(domain.state.nodes[&id].name, None);
}

#[test]
fn a_node_has_no_more_labels_than_it_may() {
    let mut domain = Domain::founded();
    let id = domain.enroll().node;
    let keys: Vec<String> = (0..32).map(|n| format!("k{n}")).collect();
    let all: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    check(&mut domain, relabel(&id, &[], &all), granted(&["host.described"]));
    check(&mut domain, relabel(&id, &[], &[("more", "v")]), refused("bad_request"));
    check(&mut domain, relabel(&id, &["k0"], &[("more", "v")]), granted(&["host.described"]));
}

#[test]
fn a_token_labels_the_node_that_it_makes() {
    let mut domain = Domain::founded();
    let list = |text: &str| Labels::parse_list(text).unwrap();
    let token = domain.mint_with(|create| create.labels = list("env=prod,rack=7"));
    let id = domain.enroll_with(token, |_| ()).node;
    assert_eq!(domain.state.nodes[&id].labels, list("env=prod,rack=7"));
    // Those of another token take their place; one without labels leaves them.
    let token = domain.mint_with(|create| {
        (create.node, create.labels) = (Some(id.clone()), list("env=test"));
    });
    domain.enroll_with(token, |_| ());
    assert_eq!(domain.state.nodes[&id].labels, list("env=test"));
    let token = domain.mint_pinned(&id);
    domain.enroll_with(token, |_| ());
    assert_eq!(domain.state.nodes[&id].labels, list("env=test"));
}
