//! vClusters, who is in them, and what their nodes are told.

use crate::support::{
    Domain, check, create_vcluster, granted, hardware, local, narrowed, node, only, refused,
    register_hardware, vcluster,
};
use lifecycle::names::{Checksum, NodeId, TenantId};
use lifecycle::registry::{
    Act, Actor, Command, ConfigDocument, ConfigNews, ConfigTarget, CreateOperatorKey, DOCUMENT_MAX,
    NodeState, Rejection, Role, SetConfig, Tenants, Vclusters, may_reach, permissions,
};

const CREATED: &[&str] = &["vcluster.created"];
const CONFIGURED: &[&str] = &["vcluster.configured"];

fn with(names: &[&str]) -> Domain {
    let mut domain = Domain::founded();
    for name in names {
        let create = create_vcluster(name, &TenantId::default_tenant());
        check(&mut domain, (local(), create), granted(CREATED));
    }
    domain
}

fn assign(node: &NodeId, to: &str) -> (Actor, Command) {
    (local(), Command::Assign { node: node.clone(), vcluster: vcluster(to) })
}

fn relocate(node: &NodeId, to: &str) -> (Actor, Command) {
    (local(), Command::Move { node: node.clone(), vcluster: vcluster(to) })
}

fn unassign(node: &NodeId) -> (Actor, Command) {
    (local(), Command::Unassign { node: node.clone() })
}

fn remove(name: &str) -> (Actor, Command) {
    (local(), Command::RemoveVcluster { vcluster: vcluster(name) })
}

fn set(target: ConfigTarget, text: &str) -> (Actor, Command) {
    let document = ConfigDocument { text: text.into(), checksum: Checksum::new([1; 32]) };
    (local(), Command::SetConfig(SetConfig { target, document }))
}

fn of(name: &str) -> ConfigTarget {
    ConfigTarget::Vcluster(vcluster(name))
}

/// What a node is told that has heard everything up to a sequence.
fn news(domain: &Domain, node: &NodeId, after: u64) -> Vec<String> {
    let record = &domain.state.nodes[node];
    let news = domain.state.config_news(record, after);
    let sequences: Vec<u64> = news.iter().map(ConfigNews::sequence).collect();
    assert!(sequences.is_sorted(), "{sequences:?}");
    assert!(
        sequences.iter().all(|sequence| *sequence > after && *sequence <= domain.state.config_mark(record))
    );
    let told = |news: &ConfigNews<'_>| match news {
        ConfigNews::Base(change) => format!("base {}", change.document.text),
        ConfigNews::Own(change) => format!("own {}", change.document.text),
        ConfigNews::Moved(moved) => {
            format!("in {}", moved.vcluster.as_ref().map_or("none".to_owned(), ToString::to_string))
        }
    };
    news.iter().map(told).collect()
}

#[test]
fn a_vcluster_is_created_once_in_the_domain() {
    let mut domain = with(&["blue"]);
    let acme = domain.tenant("acme");
    for tenant in [&TenantId::default_tenant(), &acme] {
        check(&mut domain, (local(), create_vcluster("blue", tenant)), refused("vcluster_exists"));
    }
    let nowhere = TenantId::parse("nowhere").unwrap();
    check(&mut domain, (local(), create_vcluster("red", &nowhere)), refused("tenant_not_found"));
}

/// Assigning is for who is in none; a move is one step, and needs to come from somewhere.
#[test]
fn a_node_is_assigned_moved_and_unassigned_and_its_certificate_stays() {
    let mut domain = with(&["blue", "red"]);
    let enrolled = domain.active();
    let id = &enrolled.node;
    for (act, expect) in [
        (relocate(id, "blue"), refused("not_assigned")),
        (unassign(id), granted(&[])),
        (assign(id, "blue"), granted(&["host.assigned"])),
        (assign(id, "blue"), granted(&[])),
        (assign(id, "red"), refused("already_assigned")),
        (relocate(id, "red"), granted(&["host.moved"])),
        (relocate(id, "red"), granted(&[])),
        (relocate(id, "nowhere"), refused("vcluster_not_found")),
        (unassign(id), granted(&["host.unassigned"])),
        (assign(id, "nowhere"), refused("vcluster_not_found")),
        (assign(&node("nobody"), "blue"), refused("node_not_found")),
    ] {
        check(&mut domain, act, expect);
    }
    assert!(domain.state.is_good(&enrolled.serial));
    assert_eq!(domain.state.nodes[id].state, NodeState::Active);
}

#[test]
fn a_vcluster_of_another_tenant_does_not_exist_for_a_node() {
    let mut domain = with(&["blue", "red"]);
    let acme = domain.tenant("acme");
    check(&mut domain, (local(), create_vcluster("theirs", &acme)), granted(CREATED));
    let id = domain.enroll().node;
    check(&mut domain, assign(&id, "theirs"), refused("vcluster_not_found"));
    check(&mut domain, assign(&id, "blue"), granted(&["host.assigned"]));
    check(&mut domain, relocate(&id, "theirs"), refused("vcluster_not_found"));
    let mut register = register_hardware("m1", hardware(&["02:00:00:00:00:01"], ""));
    register.vcluster = Some(vcluster("theirs"));
    let register = Command::RegisterHardware(Box::new(register));
    check(&mut domain, (local(), register), refused("vcluster_not_found"));
}

#[test]
fn a_vcluster_with_nodes_in_it_is_not_removed_and_tombstones_do_not_hold_it() {
    let mut domain = with(&["blue"]);
    let (one, two) = (domain.active().node, domain.active().node);
    for id in [&one, &two] {
        check(&mut domain, assign(id, "blue"), granted(&["host.assigned"]));
    }
    let (actor, command) = remove("blue");
    let in_use = Rejection::VclusterInUse { vcluster: vcluster("blue"), nodes: 2 };
    assert_eq!(domain.give(actor, command).answer, Err(in_use));
    check(&mut domain, unassign(&one), granted(&["host.unassigned"]));
    domain.end(&two, NodeState::Revoked);
    check(&mut domain, assign(&two, "blue"), refused("node_revoked"));
    check(&mut domain, remove("blue"), granted(&["vcluster.removed"]));
    check(&mut domain, remove("blue"), refused("vcluster_not_found"));
    // Another one of the same name is another one.
    let again = create_vcluster("blue", &TenantId::default_tenant());
    check(&mut domain, (local(), again), granted(CREATED));
    check(
        &mut domain,
        (local(), Command::Reinstate { node: two.clone(), as_registered: true }),
        granted(&["host.reinstated"]),
    );
    assert_eq!(domain.state.nodes[&two].vcluster, None);
}

#[test]
fn registering_an_id_anew_clears_its_vcluster() {
    let mut domain = with(&["blue"]);
    let identity = || hardware(&["02:00:00:00:00:01"], "");
    let mut register = register_hardware("m1", identity());
    register.vcluster = Some(vcluster("blue"));
    let register = Command::RegisterHardware(Box::new(register));
    check(&mut domain, (local(), register), granted(&["host.registered"]));
    assert_eq!(domain.state.nodes[&node("m1")].vcluster, Some(vcluster("blue")));
    domain.end(&node("m1"), NodeState::Decommissioned);
    let anew = Command::RegisterHardware(Box::new(register_hardware("m1", identity())));
    check(&mut domain, (local(), anew), granted(&["host.reinstated", "host.registered"]));
    assert_eq!(domain.state.nodes[&node("m1")].vcluster, None);
}

#[test]
fn documents_have_versions_and_the_same_again_is_none() {
    let mut domain = with(&["blue"]);
    let id = domain.active().node;
    check(&mut domain, assign(&id, "blue"), granted(&["host.assigned"]));
    assert_eq!(domain.state.config_of(&domain.state.nodes[&id]).base.version(), 0);
    let own = || ConfigTarget::Node(id.clone());
    for (command, expect) in [
        (set(of("blue"), r#"{"a":1}"#), granted(CONFIGURED)),
        (set(of("blue"), r#"{"a":1}"#), granted(&[])),
        (set(of("blue"), r#"{"a":2}"#), granted(CONFIGURED)),
        (set(ConfigTarget::Defaults, r#"{"d":1}"#), granted(CONFIGURED)),
        (set(own(), r#"{"n":1}"#), granted(&["host.configured"])),
        (set(of("nowhere"), "{}"), refused("vcluster_not_found")),
        (set(ConfigTarget::Node(node("nobody")), "{}"), refused("node_not_found")),
        (set(of("blue"), &"x".repeat(DOCUMENT_MAX + 1)), refused("too_large")),
        (set(of("blue"), &"x".repeat(DOCUMENT_MAX)), granted(CONFIGURED)),
    ] {
        check(&mut domain, command, expect);
    }
    let config = domain.state.config_of(&domain.state.nodes[&id]);
    assert_eq!((config.base.version(), config.own.version()), (3, 1));
    check(&mut domain, unassign(&id), granted(&["host.unassigned"]));
    let config = domain.state.config_of(&domain.state.nodes[&id]);
    assert_eq!((config.vcluster, config.base.version()), (None, 1));
    domain.end(&id, NodeState::Revoked);
    check(&mut domain, set(own(), "{}"), refused("node_revoked"));
}

#[test]
fn who_resumes_hears_everything_missed_in_order_and_nothing_of_others() {
    let mut domain = with(&["blue", "red"]);
    let id = domain.active().node;
    check(&mut domain, assign(&id, "blue"), granted(&["host.assigned"]));
    for (target, text) in [(of("blue"), "b1"), (of("red"), "r1"), (ConfigTarget::Defaults, "d1")] {
        check(&mut domain, set(target, text), granted(CONFIGURED));
    }
    check(&mut domain, set(ConfigTarget::Node(id.clone()), "n1"), granted(&["host.configured"]));
    check(&mut domain, set(of("blue"), "b2"), granted(CONFIGURED));
    assert_eq!(news(&domain, &id, 0), ["in blue", "base b1", "own n1", "base b2"]);
    assert_eq!(news(&domain, &id, 2), ["own n1", "base b2"]);
    let mark = domain.state.config_mark(&domain.state.nodes[&id]);
    assert_eq!(news(&domain, &id, mark), [""; 0]);
    // Something that does not concern it is no news.
    check(&mut domain, set(of("red"), "r2"), granted(CONFIGURED));
    assert_eq!(domain.state.config_mark(&domain.state.nodes[&id]), mark);
    assert_eq!(news(&domain, &id, mark), [""; 0]);
    // It misses a document of the old one, a document of the new one from before, the move, and one after it.
    check(&mut domain, set(of("blue"), "b3"), granted(CONFIGURED));
    check(&mut domain, relocate(&id, "red"), granted(&["host.moved"]));
    check(&mut domain, set(of("red"), "r3"), granted(CONFIGURED));
    check(&mut domain, set(of("blue"), "b4"), granted(CONFIGURED));
    assert_eq!(news(&domain, &id, mark), ["in red", "base r3"]);
    // Whoever has nothing is given all that is kept of where it is.
    assert_eq!(news(&domain, &id, 0), ["in blue", "base r1", "own n1", "base r2", "in red", "base r3"]);
    check(&mut domain, unassign(&id), granted(&["host.unassigned"]));
    check(&mut domain, set(ConfigTarget::Defaults, "d2"), granted(CONFIGURED));
    assert_eq!(news(&domain, &id, mark), ["in red", "in none", "base d2"]);
}

#[test]
fn where_a_node_was_put_before_it_enrolled_is_no_news() {
    let mut domain = with(&["blue"]);
    let first = domain.active();
    check(&mut domain, set(of("blue"), "b1"), granted(CONFIGURED));
    check(&mut domain, assign(&first.node, "blue"), granted(&["host.assigned"]));
    let token = domain.mint_pinned(&first.node);
    domain.enroll_with(token, |_| ());
    assert_eq!(news(&domain, &first.node, 0), ["base b1"]);
}

#[test]
fn only_the_role_operator_is_narrowed_and_to_vclusters_that_exist_in_its_tenants() {
    let mut domain = with(&["blue"]);
    let acme = domain.tenant("acme");
    check(&mut domain, (local(), create_vcluster("theirs", &acme)), granted(CREATED));
    let mut check_key = |role, tenants: Tenants, to: &[&str], expect| {
        let create = CreateOperatorKey { vclusters: narrowed(to), ..domain.key_request(role, tenants) };
        check(&mut domain, (local(), Command::CreateOperatorKey(create)), expect)
    };
    let default = || only(&["default"]);
    check_key(Role::Viewer, default(), &["blue"], refused("bad_request"));
    check_key(Role::PlatformAdmin, default(), &["blue"], refused("bad_request"));
    check_key(Role::Operator, default(), &["nowhere"], refused("vcluster_not_found"));
    check_key(Role::Operator, default(), &["theirs"], refused("vcluster_not_found"));
    check_key(Role::Operator, default(), &["blue"], granted(&["operator_key.created"]));
    check_key(Role::Operator, Tenants::All, &["blue", "theirs"], granted(&["operator_key.created"]));
}

/// Who was narrowed to the only one has none, not all; and no other of the same name.
#[test]
fn a_removed_vcluster_leaves_nothing_to_who_was_narrowed_to_it() {
    let mut domain = with(&["blue", "red"]);
    let id = domain.enroll().node;
    let actors = [domain.narrowed_operator("nora", &["blue"]), domain.narrowed_key(&["blue"])];
    let both = domain.narrowed_key(&["blue", "red"]);
    check(&mut domain, remove("blue"), granted(&["vcluster.removed"]));
    let again = create_vcluster("blue", &TenantId::default_tenant());
    check(&mut domain, (local(), again), granted(CREATED));
    for actor in &actors {
        let nothing = Vclusters::Only(std::collections::BTreeSet::new());
        assert_eq!(permissions(&domain.state, actor).unwrap().vclusters, nothing);
        let (_, command) = assign(&id, "blue");
        check(&mut domain, (actor.clone(), command), refused("forbidden"));
        let reach = may_reach(&domain.state, actor, Act::ReadNodes).unwrap();
        assert!(domain.state.nodes.values().all(|node| !reach.includes(node)));
    }
    assert_eq!(permissions(&domain.state, &both).unwrap().vclusters, narrowed(&["red"]));
}

#[test]
fn an_assignment_is_no_change_of_the_overlay() {
    let mut domain = with(&["blue"]);
    let token = domain.mint();
    let wireguard = Some(domain.wireguard());
    let enrolled = domain.enroll_with(token, |request| request.wireguard = wireguard);
    domain.confirm(&enrolled);
    let before = domain.state.overlays.clone();
    check(&mut domain, assign(&enrolled.node, "blue"), granted(&["host.assigned"]));
    assert_eq!(domain.state.overlays, before);
    assert_eq!(domain.state.unschedulable(&domain.state.nodes[&enrolled.node], None), [""; 0]);
    check(&mut domain, unassign(&enrolled.node), granted(&["host.unassigned"]));
    assert_eq!(domain.state.unschedulable(&domain.state.nodes[&enrolled.node], None), ["unassigned"]);
}
