//! Rolling the root, and the revocation lists of roots.

use crate::support::{BOTH, Domain, NODE, ROOT, check, contact, granted, issuer, local, refused, span};
use lifecycle::names::{Fingerprint, IssuerId, NodeId, Serial};
use lifecycle::registry::{
    Actor, Command, Confirmation, ImportRootList, IssuerState, NodeSigner, NodeState, Rejection, RepairClock,
    Role, RootList, RootState, Tenants, Verdict,
};

fn states(domain: &Domain) -> Vec<RootState> {
    domain.state.roots.iter().map(|root| root.state).collect()
}

fn root(domain: &Domain, place: usize) -> Fingerprint {
    domain.state.roots[place].fingerprint
}

fn retire(root: Fingerprint, force: bool) -> (Actor, Command) {
    (local(), Command::RetireRoot { root, force, confirm: Confirmation::NotAsked, counts_operators: false })
}

fn crosses(domain: &Domain) -> usize {
    domain.state.cross_certificates(domain.now).count()
}

fn serial(number: u64) -> Serial {
    Serial::parse(&format!("ca{number:014x}")).unwrap()
}

/// A list that denies these, with which contents.
fn list(number: u64, denied: &[u64], contents: &str) -> RootList {
    let denied = denied.iter().map(|number| serial(*number)).collect();
    RootList { number, denied, der: contents.as_bytes().to_vec() }
}

fn import(root: Fingerprint, list: RootList) -> (Actor, Command) {
    of_issuers(root, list, &[], Confirmation::Asked(None))
}

fn of_issuers(
    root: Fingerprint,
    list: RootList,
    issuers: &[&str],
    confirm: Confirmation,
) -> (Actor, Command) {
    let issuers: Vec<IssuerId> = issuers.iter().map(|name| issuer(name)).collect();
    (
        local(),
        Command::ImportRootList(Box::new(ImportRootList {
            root,
            list,
            issuers,
            confirm,
            asks_for_nodes: false,
        })),
    )
}

#[test]
fn a_new_root_is_trusted_beside_the_old_one_and_takes_over_with_its_issuers() {
    let mut domain = Domain::divided();
    let version = domain.state.bundle_version;
    assert_eq!((states(&domain), crosses(&domain)), (vec![RootState::Active], 0));
    domain.prepare_roll(ROOT, 2);
    assert_eq!(states(&domain), [RootState::Active, RootState::Prepared]);
    let since = domain.state.roots[1].since_bundle;
    assert!(since > version && since <= domain.state.bundle_version);
    assert_eq!(domain.state.server_trust().collect::<Vec<_>>(), [&b"root"[..], b"root 2"]);
    let cross: Vec<_> = domain.state.cross_certificates(domain.now).collect();
    assert_eq!(cross, [b"root 2 by the one before"]);
    let above = |domain: &Domain, name: &str| {
        let issuer = &domain.state.issuers[&issuer(name)];
        domain.state.root_of(issuer).unwrap().certificate.clone()
    };
    assert_eq!([above(&domain, "n1"), above(&domain, "n2")], [b"root".to_vec(), b"root 2".to_vec()]);
    let activate = domain.activate_all(false);
    let events = &["ca.root_activated", "ca.activated", "ca.activated"];
    check(&mut domain, (local(), activate), granted(events));
    assert_eq!(states(&domain), [RootState::Retiring, RootState::Active]);
    assert_eq!(domain.state.active_root().unwrap().fingerprint, root(&domain, 1));
    // Two roots are enough.
    let another = Command::BeginRoll(domain.pending_roll(ROOT));
    let applied = domain.give(local(), another);
    let Err(Rejection::RollInProgress { active, .. }) = applied.answer else { panic!("{applied:?}") };
    assert!(active, "it cannot be abandoned");
    // Issuers are rolled below the new one meanwhile.
    domain.prepare_roll(NODE, 3);
    assert_eq!(above(&domain, "n3"), b"root 2");
}

#[test]
fn an_answer_with_a_new_root_fits_it() {
    let bad: &[fn(&mut lifecycle::registry::AnswerRoll, &Domain)] = &[
        |answer, _| answer.root = None,
        |answer, domain| answer.root.as_mut().unwrap().fingerprint = root(domain, 0),
        |answer, domain| answer.root.as_mut().unwrap().not_after = domain.state.at,
        |answer, domain| answer.root.as_mut().unwrap().not_after = domain.state.at.plus(span("1d")),
        |answer, domain| answer.issuers[0].root = Some(root(domain, 0)),
        |answer, _| answer.issuers[1].root = None,
        |answer, _| drop(answer.issuers.pop()),
    ];
    for spoil in bad {
        let mut domain = Domain::divided();
        domain.begin_roll(ROOT);
        let mut answer = domain.roll_answer(2);
        spoil(&mut answer, &domain);
        check(&mut domain, (local(), Command::AnswerRoll(Box::new(answer))), refused("issuer_invalid"));
        assert_eq!(states(&domain), [RootState::Active]);
    }
}

#[test]
fn a_root_retires_when_nothing_depends_on_it_and_its_issuers_with_it() {
    let mut domain = Domain::divided();
    let node = domain.active();
    domain.stores_bundle(&node.node);
    let own = domain.server_certificate("s1");
    check(&mut domain, own, granted(&["server_certificate.issued"]));
    let (old, unknown) = (root(&domain, 0), Fingerprint::new([9; 32]));
    check(&mut domain, retire(old, true), refused("root_in_use"));
    check(&mut domain, retire(unknown, true), refused("no_roll"));
    domain.prepare_roll(ROOT, 2);
    let new = root(&domain, 1);
    check(&mut domain, retire(new, true), refused("roll_in_progress"));
    let activate = domain.activate_all(true);
    let events = &["ca.root_activated", "ca.activated", "ca.activated"];
    check(&mut domain, (local(), activate), granted(events));
    // The control plane itself presents a certificate below it: not even by force.
    for force in [false, true] {
        check(&mut domain, retire(old, force), refused("issuer_in_use"));
    }
    // By force nobody else is waited for, and so nobody else is named.
    let said = domain.give(local(), retire(old, true).1).answer.unwrap_err().to_string();
    assert!(said.ends_with("these have not renewed yet: the control plane itself"), "{said}");
    let own = domain.server_certificate("s2");
    check(&mut domain, own, granted(&["server_certificate.issued"]));
    check(&mut domain, retire(old, false), refused("issuer_in_use"));
    let node = domain.renew(&node);
    check(&mut domain, contact(&node), granted(&["certificate.seen", "certificate.superseded"]));
    domain.pass(span("10m"));
    // Its certificate is of the new issuer, and it has not said that it has stored the new root.
    let applied = domain.give(local(), retire(old, false).1);
    let Err(Rejection::RootInUse { nodes, total, .. }) = &applied.answer else {
        panic!("{:?}", applied.answer)
    };
    assert_eq!((nodes.as_slice(), *total), (&[node.node.to_string()][..], 1));
    assert!(applied.answer.unwrap_err().to_string().ends_with(node.node.as_str()));
    domain.stores_bundle(&node.node);
    let (version, denials) = (domain.state.bundle_version, domain.state.denials);
    let events = &["ca.retired", "ca.retired", "ca.root_retired"];
    check(&mut domain, retire(old, false), granted(events));
    check(&mut domain, retire(old, false), granted(&[]));
    assert_eq!(states(&domain), [RootState::Retired, RootState::Active]);
    assert!(domain.state.bundle_version > version);
    assert_eq!(domain.state.denials, denials);
    assert_eq!(domain.state.server_trust().collect::<Vec<_>>(), [b"root 2"]);
    for name in ["n1", "s1"] {
        assert_eq!(domain.state.issuers[&issuer(name)].state, IssuerState::Retired);
    }
    check(&mut domain, retire(new, true), refused("root_in_use"));
    check(&mut domain, contact(&node), granted(&[]));
}

#[test]
fn a_refusal_names_some_of_those_that_are_left_behind() {
    let mut domain = Domain::divided();
    let nodes: Vec<_> = (0..12).map(|_| domain.active()).collect();
    domain.roll_all(ROOT, 2);
    for node in &nodes {
        // Another machine in the place of each, not seen yet.
        let token = domain.mint_pinned(&node.node);
        domain.enroll_with(token, |_| ());
    }
    domain.end(&nodes[0].node, NodeState::Revoked);
    let applied = domain.give(local(), retire(root(&domain, 0), false).1);
    let Err(Rejection::RootInUse { nodes, total, .. }) = &applied.answer else {
        panic!("{:?}", applied.answer)
    };
    assert_eq!((nodes.len(), *total), (10, 11));
    assert!(applied.answer.unwrap_err().to_string().ends_with(" and 1 more"));
}

/// It is asked first, with the fingerprint, and the question names whom it is about.
#[test]
fn a_forced_retirement_that_leaves_nodes_behind_is_confirmed() {
    let mut domain = Domain::divided();
    let nodes: Vec<_> = (0..11).map(|_| domain.active()).collect();
    domain.operator("ann", Role::Viewer, Tenants::All);
    domain.stores_bundle(&nodes[0].node);
    domain.roll_all(ROOT, 2);
    let old = root(&domain, 0);
    // One has a certificate of the new issuer and has not said that it stored the new root; its old one drains.
    let moved = domain.renew(&nodes[0]);
    check(&mut domain, contact(&moved), granted(&["certificate.seen", "certificate.superseded"]));
    let asked = |force, confirm: Option<String>| {
        let confirm = Confirmation::Asked(confirm);
        (local(), Command::RetireRoot { root: old, force, confirm, counts_operators: true })
    };
    check(&mut domain, asked(false, None), refused("issuer_in_use"));
    for wrong in [None, Some("yes".to_owned()), Some(root(&domain, 1).pin())] {
        check(&mut domain, asked(true, wrong), refused("confirmation_needed"));
    }
    let applied = domain.give(local(), asked(true, None).1);
    let Err(Rejection::ConfirmationNeeded { affected, consequence, .. }) = &applied.answer else {
        panic!("{:?}", applied.answer)
    };
    assert_eq!(*affected, 11);
    assert!(consequence.contains("have to recover (10): "), "{consequence}");
    assert!(consequence.contains("have not stored the new root (11): "), "{consequence}");
    let operators =
        " and 1 more; operators whose certificates are below this root are refused at once (1): ann; ";
    assert!(consequence.contains(operators), "{consequence}");
    assert!(nodes.iter().all(|node| consequence.contains(node.node.as_str())), "{consequence}");
    let told = check(
        &mut domain,
        asked(true, Some(old.pin())),
        granted(&["ca.retired", "ca.retired", "ca.root_retired"]),
    );
    let lifecycle::registry::Event::RootRetired(retired) = &told[2] else { panic!("{told:?}") };
    assert_eq!((retired.left_behind, retired.without_new_root), (10, Some(11)));
    assert_eq!(retired.operators_left_behind, Some(1));
}

/// Nothing is said of nodes where none is affected.
#[test]
fn a_forced_retirement_tells_operators_that_they_are_among_those_it_ends() {
    let mut domain = Domain::divided();
    let ann = domain.operator("ann", Role::PlatformAdmin, Tenants::All);
    for number in 0..11 {
        domain.operator(&format!("bob-{number:02}"), Role::Viewer, Tenants::All);
    }
    domain.roll_all(ROOT, 2);
    let (root, confirm) = (root(&domain, 0), Confirmation::Asked(None));
    let retire = Command::RetireRoot { root, force: true, confirm, counts_operators: true };
    let asked = domain.give(ann, retire.clone()).answer.unwrap_err().to_string();
    assert!(asked.contains("(12): ann (you), bob-00, bob-01, "), "{asked}");
    assert!(asked.contains("bob-08 and 2 more; ") && asked.contains("`enlist operator renew`"), "{asked}");
    assert!(!asked.contains("node"), "{asked}");
    let other = domain.give(local(), retire).answer.unwrap_err().to_string();
    assert!(other.contains("(12): ann, bob-00, ") && !other.contains("(you)"), "{other}");
}

#[test]
fn a_forced_retirement_that_leaves_nobody_behind_asks_nothing() {
    let mut domain = Domain::divided();
    let node = domain.active();
    domain.roll_all(ROOT, 2);
    let node = domain.renew(&node);
    check(&mut domain, contact(&node), granted(&["certificate.seen", "certificate.superseded"]));
    domain.stores_bundle(&node.node);
    let retire = Command::RetireRoot {
        root: root(&domain, 0),
        force: true,
        confirm: Confirmation::Asked(None),
        counts_operators: false,
    };
    check(&mut domain, (local(), retire), granted(&["ca.retired", "ca.retired", "ca.root_retired"]));
}

/// Whoever is left behind has to recover; nothing of it is good any more, and it is waited for no longer.
#[test]
fn force_retires_a_root_and_ends_what_is_below_it() {
    let mut domain = Domain::divided();
    let (node, gone) = (domain.active(), domain.active());
    let ann = domain.operator("ann", Role::Viewer, Tenants::All);
    domain.end(&gone.node, NodeState::Revoked);
    domain.roll_all(ROOT, 2);
    let old = root(&domain, 0);
    check(&mut domain, retire(old, false), refused("issuer_in_use"));
    let denials = domain.state.denials;
    let events = &["ca.retired", "ca.retired", "ca.root_retired"];
    let told = check(&mut domain, retire(old, true), granted(events));
    let lifecycle::registry::Event::RootRetired(retired) = &told[2] else { panic!("{told:?}") };
    assert_eq!((retired.forced, retired.left_behind), (true, 1));
    assert!(domain.state.denials > denials);
    assert_eq!(domain.state.verdict(&node.serial, domain.now), Verdict::Expired);
    assert!(domain.state.ended_certificate(&domain.state.nodes[&node.node]).is_some());
    check(&mut domain, contact(&node), refused("unauthenticated"));
    let Actor::Operator { serial, .. } = &ann else { unreachable!() };
    assert!(!domain.state.is_good(serial));
    assert_eq!(domain.state.adoption(), (0, 0));
    // What was revoked is revoked still, and its list can be signed until it has ended.
    assert!(domain.state.is_denied(&gone.serial) && !domain.state.is_denied(&node.serial));
    assert!(!domain.state.issuers[&issuer("n1")].sealed_key.is_empty());
    // It is no other host: an enrollment begins anew.
    let token = domain.mint_pinned(&node.node);
    let back = domain.enroll_with(token, |_| ());
    domain.confirm(&back);
}

#[test]
fn a_host_that_is_left_behind_recovers() {
    let mut domain = Domain::divided();
    let (node, mint) = domain.provided();
    domain.roll_all(ROOT, 2);
    let old = root(&domain, 0);
    check(&mut domain, retire(old, true), granted(&["ca.retired", "ca.retired", "ca.root_retired"]));
    domain.pass(span("1h"));
    let recovery = domain.recovery(mint.hash);
    let events = &["recovery.requested", "recovery.issued"];
    check(&mut domain, crate::support::recover(recovery), granted(events));
    let serial = domain.state.nodes[&node.node].serials.last().unwrap();
    assert_eq!(domain.state.certificates[serial].issuer, issuer("n2"));
}

#[test]
fn cross_certificates_are_given_while_a_host_may_come_back_by_them() {
    let mut domain = Domain::divided();
    domain.policy("recovery.ttl", "1h");
    domain.roll_all(ROOT, 2);
    domain.pass(span("30d"));
    assert_eq!(crosses(&domain), 1);
    let events = &["ca.retired", "ca.retired", "ca.root_retired"];
    let first = root(&domain, 0);
    check(&mut domain, retire(first, false), granted(events));
    domain.pass(span("59m"));
    assert_eq!(crosses(&domain), 1);
    // The next roll is already over: from the first root it takes two steps to the third.
    domain.roll_all(ROOT, 3);
    let second = root(&domain, 1);
    check(&mut domain, retire(second, false), granted(events));
    assert_eq!(crosses(&domain), 2);
    domain.pass(span("1m"));
    let cross: Vec<_> = domain.state.cross_certificates(domain.now).collect();
    assert_eq!(cross, [b"root 3 by the one before"]);
    domain.pass(span("59m"));
    assert_eq!(crosses(&domain), 0);
    assert_eq!(states(&domain), [RootState::Retired, RootState::Retired, RootState::Active]);
}

#[test]
fn a_root_that_retired_at_the_wrong_time_retired_now() {
    let mut domain = Domain::divided();
    domain.policy("recovery.ttl", "1h");
    domain.roll_all(ROOT, 2);
    let (old, right) = (root(&domain, 0), domain.now);
    domain.pass(span("300d"));
    check(&mut domain, retire(old, false), granted(&["ca.retired", "ca.retired", "ca.root_retired"]));
    let repair = Command::RepairClock(RepairClock { to: right });
    check(&mut domain, (local(), repair), granted(&["clock.repaired"]));
    domain.now = right;
    assert_eq!(crosses(&domain), 1);
    domain.pass(span("1h"));
    assert_eq!(crosses(&domain), 0);
}

#[test]
fn a_domain_of_before_gets_a_new_root_and_two_issuers_at_once() {
    let mut domain = Domain::founded();
    domain.roll_all(ROOT, 2);
    let old = root(&domain, 0);
    check(&mut domain, retire(old, false), granted(&["ca.retired", "ca.root_retired"]));
    assert_eq!(domain.state.issuers[&issuer("i1")].state, IssuerState::Retired);
}

#[test]
fn an_issuer_retires_before_its_root_or_with_it() {
    let mut domain = Domain::divided();
    domain.roll_all(BOTH, 2);
    domain.roll_all(ROOT, 3);
    check(
        &mut domain,
        (local(), Command::RetireIssuer { issuer: issuer("n2"), also: Vec::new() }),
        granted(&["ca.retired"]),
    );
    let events = &["ca.retired", "ca.retired", "ca.retired", "ca.root_retired"];
    let old = root(&domain, 0);
    check(&mut domain, retire(old, false), granted(events));
}

#[test]
fn a_list_replaces_the_one_before_and_never_an_older_one() {
    let mut domain = Domain::divided();
    let above = root(&domain, 0);
    let version = domain.state.bundle_version;
    check(&mut domain, import(above, list(5, &[1], "a")), granted(&["ca.list_imported"]));
    assert_eq!(domain.state.bundle_version, version + 1);
    check(&mut domain, import(above, list(5, &[1], "a")), granted(&[]));
    for (bad, code) in [
        (list(4, &[1], "b"), "list_older"),
        (list(0, &[1, 2], "b"), "list_older"),
        (list(5, &[1, 2], "b"), "list_invalid"),
        // What was denied stays denied.
        (list(6, &[], "b"), "list_invalid"),
        (list(6, &[2], "b"), "list_invalid"),
    ] {
        check(&mut domain, import(above, bad), refused(code));
    }
    check(&mut domain, import(above, list(7, &[2, 1], "b")), granted(&["ca.list_imported"]));
    check(&mut domain, import(above, list(8, &[1, 2], "c")), granted(&["ca.list_imported"]));
    let known: Vec<_> = domain.state.root_lists().map(|list| list.number).collect();
    assert_eq!(known, [8]);
}

#[test]
fn a_list_is_of_a_root_that_hosts_trust() {
    let mut domain = Domain::divided();
    let old = root(&domain, 0);
    check(&mut domain, import(Fingerprint::new([9; 32]), list(1, &[1], "a")), refused("list_invalid"));
    domain.prepare_roll(ROOT, 2);
    let new = root(&domain, 1);
    for root in [old, new] {
        check(&mut domain, import(root, list(1, &[1], "a")), granted(&["ca.list_imported"]));
    }
    assert_eq!(domain.state.root_lists().count(), 2);
    // It goes with the root, if that is abandoned.
    check(&mut domain, (local(), Command::AbandonRoll), granted(&["ca.abandoned"]));
    assert_eq!((domain.state.root_lists().count(), domain.state.lists.len()), (1, 1));
    check(&mut domain, import(new, list(2, &[1], "b")), refused("list_invalid"));
    // Or retired.
    domain.roll_all(ROOT, 3);
    check(&mut domain, retire(old, true), granted(&["ca.retired", "ca.retired", "ca.root_retired"]));
    assert!(domain.state.lists.is_empty());
    check(&mut domain, import(old, list(2, &[1], "b")), refused("list_invalid"));
}

#[test]
fn a_list_that_denies_the_control_plane_itself_is_confirmed() {
    let mut domain = Domain::divided();
    domain.active();
    let above = root(&domain, 0);
    let asked = |repeated: Option<&str>| Confirmation::Asked(repeated.map(ToOwned::to_owned));
    let denies = |number, issuers: &[&str], confirm| {
        of_issuers(above, list(number, &[number], &number.to_string()), issuers, confirm)
    };
    // That nodes have certificates of it is nothing that hosts would look at.
    check(
        &mut domain,
        of_issuers(above, list(1, &[], "a"), &["n1"], asked(None)),
        granted(&["ca.list_imported"]),
    );
    let (actor, command) = denies(2, &["n1", "s1"], asked(None));
    let applied = domain.give(actor, command);
    let Err(Rejection::ConfirmationNeeded { subject, affected, .. }) = applied.answer else {
        panic!("{:?}", applied.answer)
    };
    assert_eq!((subject.as_str(), affected), ("s1", 1));
    check(&mut domain, denies(2, &["s1"], asked(Some("n1"))), refused("confirmation_needed"));
    check(&mut domain, denies(2, &["s1"], asked(Some("s1"))), granted(&["ca.list_imported"]));
}

/// It cannot be taken back, whatever the issuer is for.
#[test]
fn a_list_that_denies_an_issuer_of_nodes_is_confirmed_while_it_signs_or_is_about_to() {
    let mut domain = Domain::divided();
    domain.active();
    domain.roll_all(NODE, 2);
    domain.active();
    domain.prepare_roll(NODE, 3);
    let above = root(&domain, 0);
    let denies = |number, name: &str, repeated: Option<&str>| {
        let confirm = Confirmation::Asked(repeated.map(ToOwned::to_owned));
        let list = list(number, &[], &number.to_string());
        let import =
            ImportRootList { root: above, list, issuers: vec![issuer(name)], confirm, asks_for_nodes: true };
        (local(), Command::ImportRootList(Box::new(import)))
    };
    check(&mut domain, denies(1, "n1", None), granted(&["ca.list_imported"]));
    for (number, name, nodes) in [(2, "n2", 1), (3, "n3", 0)] {
        let (actor, command) = denies(number, name, None);
        let applied = domain.give(actor, command);
        let Err(Rejection::ConfirmationNeeded { subject, affected, consequence }) = &applied.answer else {
            panic!("{:?}", applied.answer)
        };
        assert_eq!((subject.as_str(), *affected), (name, nodes));
        assert!(consequence.contains("cannot be taken back"), "{consequence}");
        check(&mut domain, denies(number, name, Some("s1")), refused("confirmation_needed"));
        check(&mut domain, denies(number, name, Some(name)), granted(&["ca.list_imported"]));
    }
}

#[test]
fn a_list_that_denies_what_is_still_presented_is_confirmed_too() {
    let mut domain = Domain::divided();
    let own = domain.server_certificate("s1");
    check(&mut domain, own, granted(&["server_certificate.issued"]));
    domain.roll_all(BOTH, 2);
    let above = root(&domain, 0);
    let denies = || of_issuers(above, list(1, &[1], "a"), &["s1"], Confirmation::Asked(None));
    check(&mut domain, denies(), refused("confirmation_needed"));
    let own = domain.server_certificate("s2");
    check(&mut domain, own, granted(&["server_certificate.issued"]));
    check(&mut domain, denies(), granted(&["ca.list_imported"]));
}

#[test]
fn a_new_list_counts_as_a_new_trust_bundle() {
    let mut domain = Domain::divided();
    let node = domain.active();
    domain.stores_bundle(&node.node);
    assert_eq!(domain.state.adoption(), (1, 1));
    let above = root(&domain, 0);
    check(&mut domain, import(above, list(1, &[1], "a")), granted(&["ca.list_imported"]));
    let lagging: Vec<&NodeId> = domain.state.lagging().map(|node| &node.id).collect();
    assert_eq!(lagging, [&node.node]);
}

#[test]
fn a_root_begins_with_a_list_that_denies_nobody_and_that_hosts_are_not_sent() {
    let mut domain = Domain::divided();
    let old = root(&domain, 0);
    check(&mut domain, import(old, list(0, &[], "first")), granted(&["ca.list_imported"]));
    domain.begin_roll(ROOT);
    let mut answered = domain.roll_answer(2);
    if let Some(root) = &mut answered.root {
        root.list = Some(list(0, &[], "of the new root"));
    }
    let prepared = granted(&["ca.root_prepared", "ca.prepared", "ca.prepared"]);
    check(&mut domain, (local(), Command::AnswerRoll(Box::new(answered))), prepared);
    let told = |domain: &Domain| domain.state.denying_lists().map(|list| list.number).collect::<Vec<_>>();
    assert_eq!(domain.state.root_lists().count(), 2);
    assert!(told(&domain).is_empty());
    // Whatever the clock says where the next one is signed, it follows.
    let new = root(&domain, 1);
    check(&mut domain, import(new, list(1, &[1], "next")), granted(&["ca.list_imported"]));
    assert_eq!(told(&domain), [1]);
}

#[test]
fn a_domain_is_initialized_with_the_list_of_its_root() {
    let mut domain = Domain::unfounded();
    let Command::InitializeDomain(mut found) = domain.found_divided(NodeSigner::DomainIssuer) else {
        unreachable!()
    };
    found.root_list = Some(list(0, &[], "first"));
    check(&mut domain, (local(), Command::InitializeDomain(found)), granted(&["domain.founded"]));
    assert_eq!(domain.state.root_lists().map(|list| list.number).collect::<Vec<_>>(), [0]);
    assert_eq!(domain.state.denying_lists().count(), 0);
}
