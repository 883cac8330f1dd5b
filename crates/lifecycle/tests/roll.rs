//! Rolling the issuers for nodes and for the control plane: begin, answer, activate, abandon.

use crate::support::{
    BOTH, Domain, ISSUER_LIFE, NODE, ROOT, SERVER, Wanted, check, contact, enroll, granted, issuer, local,
    names, operator, refused, span,
};
use lifecycle::names::{Fingerprint, IssuerId, IssuerUse, KeyHash};
use lifecycle::registry::{
    ActivateIssuer, Actor, AnswerRoll, Command, Confirmation, InitializeDomain, IssuerKind, IssuerState,
    NodeSigner, Outcome, PendingRoll, Rejection, Rewrap, Role, RootState, State, Tenants,
};
use serde_bytes::ByteBuf;

fn begin(roll: PendingRoll) -> (Actor, Command) {
    (local(), Command::BeginRoll(roll))
}

fn answer(answer: AnswerRoll) -> (Actor, Command) {
    (local(), Command::AnswerRoll(Box::new(answer)))
}

fn abandon() -> (Actor, Command) {
    (local(), Command::AbandonRoll)
}

fn revoke(name: &str) -> (Actor, Command) {
    let (issuer, reason, confirm) = (issuer(name), "lost".to_owned(), Confirmation::NotAsked);
    (local(), Command::RevokeIssuer { issuer, reason, confirm, asks_for_holders: false })
}

fn state_of(domain: &Domain, name: &str) -> IssuerState {
    domain.state.issuers[&issuer(name)].state
}

fn signs(domain: &Domain) -> (Option<&str>, Option<&str>) {
    let state = &domain.state;
    (
        state.client_issuer().map(|issuer| issuer.id.as_str()),
        state.server_issuer().map(|issuer| issuer.id.as_str()),
    )
}

fn audit_certificate(state: &State) -> &[u8] {
    &state.audit_signer.as_ref().unwrap().certificate
}

#[test]
fn a_domain_begins_with_one_issuer_or_with_one_for_each_use() {
    let domain = Domain::divided();
    assert_eq!(signs(&domain), (Some("n1"), Some("s1")));
    assert!(domain.state.is_divided());
    assert_eq!(audit_certificate(&domain.state), b"audit");
    let domain = Domain::founded();
    assert_eq!(signs(&domain), (Some("i1"), Some("i1")));
    assert!(!domain.state.is_divided());
    let bad: &[fn(&mut InitializeDomain)] = &[
        |found| found.server_issuer = None,
        |found| found.issuer.usage = IssuerUse::Both,
        |found| found.issuer.usage = IssuerUse::Server,
        |found| found.server_issuer.as_mut().unwrap().usage = IssuerUse::Both,
        |found| found.server_issuer.as_mut().unwrap().usage = IssuerUse::Node,
        |found| found.server_issuer.as_mut().unwrap().id = issuer("n1"),
        |found| found.server_issuer.as_mut().unwrap().subject = found.issuer.subject.clone(),
        |found| found.server_issuer.as_mut().unwrap().kind = IssuerKind::Ephemeral,
        |found| found.server_issuer.as_mut().unwrap().not_after = found.root_not_after.plus(span("1s")),
        |found| found.server_issuer.as_mut().unwrap().root = Some(Fingerprint::new([9; 32])),
        |found| found.issuer.root = Some(Fingerprint::new([9; 32])),
    ];
    for spoil in bad {
        let mut domain = Domain::unfounded();
        let Command::InitializeDomain(mut found) = domain.found_divided(NodeSigner::DomainIssuer) else {
            unreachable!()
        };
        spoil(&mut found);
        check(&mut domain, (local(), Command::InitializeDomain(found)), refused("try_again"));
    }
}

#[test]
fn each_issuer_signs_for_its_own_use_only() {
    let mut domain = Domain::divided();
    let by_server = domain.server_certificate("n1");
    check(&mut domain, by_server, refused("try_again"));
    let by_server = domain.server_certificate("s1");
    check(&mut domain, by_server, granted(&["server_certificate.issued"]));
    let token = domain.mint();
    let request = domain.request(token);
    let good = domain.prepare(request);
    let mut bad = good.clone();
    bad.prepared.as_mut().unwrap().certificate.issuer = issuer("s1");
    check(&mut domain, enroll(bad), refused("try_again"));
    check(&mut domain, enroll(good), granted(&["host.enrolled"]));
    let Command::AddOperator(good) = domain.add_operator("ann", Role::Viewer, Tenants::All) else {
        unreachable!()
    };
    let mut bad = good.clone();
    bad.certificate.as_mut().unwrap().issuer = issuer("s1");
    check(&mut domain, (local(), Command::AddOperator(bad)), refused("try_again"));
    check(&mut domain, (local(), Command::AddOperator(good)), granted(&["operator.added"]));
    let serial = domain.state.operators[&operator("ann")].serial.clone().unwrap();
    let ann = Actor::Operator { name: operator("ann"), serial };
    let Command::RenewOperator(mut renew) = domain.renew_operator("ann") else { unreachable!() };
    renew.certificate.issuer = issuer("s1");
    check(&mut domain, (ann, Command::RenewOperator(renew)), refused("try_again"));
    // What verifies clients does not hold the server issuer.
    assert_eq!(domain.state.node_issuers().map(|issuer| issuer.id.as_str()).collect::<Vec<_>>(), ["n1"]);
}

#[test]
fn with_ephemeral_issuers_the_node_issuer_signs_for_operators() {
    let mut domain = Domain::unfounded();
    let found = domain.found_divided(NodeSigner::Ephemeral);
    check(&mut domain, (local(), found), granted(&["domain.founded"]));
    domain.published("e1");
    let node = domain.active();
    assert_eq!(domain.state.certificates[&node.serial].issuer, issuer("e1"));
    domain.operator("ann", Role::Viewer, Tenants::All);
    domain.roll_all(NODE, 2);
    assert_eq!(signs(&domain), (Some("n2"), Some("s1")));
}

#[test]
fn a_domain_of_before_is_divided_by_its_next_roll() {
    for wanted in [NODE, SERVER] {
        let mut domain = Domain::founded();
        let one = domain.pending_roll(wanted);
        check(&mut domain, begin(one), refused("issuer_invalid"));
    }
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.roll_all(BOTH, 2);
    assert_eq!(signs(&domain), (Some("n2"), Some("s2")));
    assert_eq!(state_of(&domain, "i1"), IssuerState::Retiring);
    assert!(domain.state.is_divided());
    assert_eq!(audit_certificate(&domain.state), b"audit by s2");
    check(&mut domain, contact(&node), granted(&[]));
    let renewed = domain.renew(&node);
    assert_eq!(domain.state.certificates[&renewed.serial].issuer, issuer("n2"));
    domain.begin_roll(NODE);
}

/// A new root is above issuers of its own for both uses.
#[test]
fn a_roll_asks_for_what_it_needs() {
    let mut domain = Domain::divided();
    for wanted in [
        Wanted { new_root: true, ..NODE },
        Wanted { new_root: true, ..SERVER },
        Wanted { uses: &[], new_root: false },
        Wanted { uses: &[IssuerUse::Both], new_root: false },
        Wanted { uses: &[IssuerUse::Node, IssuerUse::Node], new_root: false },
        Wanted { uses: &[IssuerUse::Node, IssuerUse::Server, IssuerUse::Both], new_root: false },
    ] {
        let roll = domain.pending_roll(wanted);
        check(&mut domain, begin(roll), refused("issuer_invalid"));
    }
    let bad: &[fn(&mut PendingRoll)] = &[
        |roll| roll.requests[0].sealed_key = Vec::new(),
        |roll| roll.requests[0].kind = IssuerKind::Ephemeral,
        |roll| roll.requests[1].kind = IssuerKind::Imported,
        |roll| roll.requests[1].key = roll.requests[0].key,
    ];
    for spoil in bad {
        let mut roll = domain.pending_roll(BOTH);
        spoil(&mut roll);
        check(&mut domain, begin(roll), refused("issuer_invalid"));
    }
    for wanted in [NODE, SERVER, BOTH, ROOT] {
        domain.begin_roll(wanted);
        check(&mut domain, abandon(), granted(&["ca.abandoned"]));
    }
}

#[test]
fn there_is_one_roll_at_a_time_and_the_requests_that_are_out_stay_the_ones() {
    let mut domain = Domain::divided();
    domain.begin_roll(BOTH);
    let first = domain.state.pending_roll.clone();
    let mut again = domain.pending_roll(BOTH);
    check(&mut domain, begin(again.clone()), granted(&[]));
    again.requests.reverse();
    check(&mut domain, begin(again.clone()), granted(&[]));
    assert_eq!(domain.state.pending_roll, first);
    for other in [NODE, SERVER, ROOT] {
        let roll = domain.pending_roll(other);
        check(&mut domain, begin(roll), refused("roll_in_progress"));
    }
    again.requests[0].kind = IssuerKind::Pkcs11;
    check(&mut domain, begin(again), refused("roll_in_progress"));
    let old_form = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), old_form), refused("roll_in_progress"));
    let certificates = domain.roll_answer(2);
    check(&mut domain, answer(certificates), granted(&["ca.prepared", "ca.prepared"]));
    let roll = domain.pending_roll(BOTH);
    check(&mut domain, begin(roll), refused("roll_in_progress"));
}

#[test]
fn a_request_of_before_is_given_up_when_a_roll_begins() {
    let mut domain = Domain::founded();
    let old_form = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), old_form), granted(&["ca.requested"]));
    let late = domain.next_issuer("i2");
    domain.begin_roll(BOTH);
    assert!(domain.state.roll.is_none());
    check(&mut domain, (local(), Command::CertifyRoll(Box::new(late))), refused("no_roll"));
}

#[test]
fn certificates_that_came_back_are_trusted_and_do_not_sign() {
    let mut domain = Domain::divided();
    domain.begin_roll(BOTH);
    let version = domain.state.bundle_version;
    let certificates = domain.roll_answer(2);
    check(&mut domain, answer(certificates.clone()), granted(&["ca.prepared", "ca.prepared"]));
    check(&mut domain, answer(certificates), granted(&[]));
    assert!(domain.state.bundle_version > version && domain.state.pending_roll.is_none());
    assert_eq!(signs(&domain), (Some("n1"), Some("s1")));
    let trusted: Vec<_> = domain.state.node_issuers().map(|issuer| issuer.id.as_str()).collect();
    assert_eq!(trusted, ["n1", "n2"]);
    let by_next = domain.server_certificate("s2");
    check(&mut domain, by_next, refused("try_again"));
}

type SpoiledAnswer = fn(&mut AnswerRoll, &State);

#[test]
fn an_answer_that_does_not_fit_does_not_come_in() {
    let bad: &[(SpoiledAnswer, &str)] = &[
        // Half an answer, or more than was asked for.
        (|answer, _| drop(answer.issuers.pop()), "issuer_invalid"),
        (|answer, _| drop(answer.issuers.remove(0)), "issuer_invalid"),
        (|answer, _| answer.issuers.clear(), "issuer_invalid"),
        (|answer, _| answer.issuers.push(answer.issuers[0].clone()), "issuer_invalid"),
        (|answer, _| answer.issuers[1].usage = IssuerUse::Node, "issuer_invalid"),
        (|answer, _| answer.issuers[1].id = answer.issuers[0].id.clone(), "issuer_invalid"),
        (|answer, _| answer.issuers[1].subject = answer.issuers[0].subject.clone(), "issuer_invalid"),
        // Another root than the one above them, or one nobody asked for.
        (|answer, _| answer.issuers[0].root = None, "issuer_invalid"),
        (|answer, _| answer.issuers[0].root = Some(Fingerprint::new([9; 32])), "issuer_invalid"),
        (
            |answer, state| {
                let root = &state.roots[0];
                answer.root = Some(lifecycle::registry::NewRoot {
                    certificate: root.certificate.clone(),
                    fingerprint: root.fingerprint,
                    not_after: root.not_after,
                    cross_certificate: b"cross".to_vec(),
                    list: None,
                });
            },
            "issuer_invalid",
        ),
        (
            |answer, state| answer.issuers[1].not_after = state.roots[0].not_after.plus(span("1s")),
            "issuer_invalid",
        ),
        (|answer, state| answer.issuers[1].not_after = state.at, "issuer_invalid"),
        (|answer, _| answer.issuers[0].id = issuer("n1"), "issuer_invalid"),
        (
            |answer, state| answer.issuers[0].subject = state.issuers[&issuer("s1")].subject.clone(),
            "issuer_invalid",
        ),
        // Of another key, or of this key as it was sealed before.
        (|answer, _| answer.issuers[0].sealed_key = b"other".to_vec(), "try_again"),
        (|answer, _| answer.issuers[0].kind = IssuerKind::Pkcs11, "try_again"),
        (
            |answer, _| {
                let [one, two] = &mut answer.issuers[..] else { unreachable!() };
                std::mem::swap(&mut one.sealed_key, &mut two.sealed_key);
            },
            "try_again",
        ),
    ];
    for (number, (spoil, code)) in bad.iter().enumerate() {
        let mut domain = Domain::divided();
        domain.begin_roll(BOTH);
        let mut certificates = domain.roll_answer(2);
        spoil(&mut certificates, &domain.state);
        let applied = domain.give(local(), Command::AnswerRoll(Box::new(certificates)));
        let refused = applied.answer.as_ref().err().map(Rejection::code);
        assert_eq!(refused, Some(*code), "{number}: {:?}", applied.answer);
        assert!(domain.state.pending_roll.is_some());
    }
    let mut domain = Domain::divided();
    let certificates = domain.roll_answer(2);
    check(&mut domain, answer(certificates), refused("no_roll"));
}

#[test]
fn no_issuer_comes_below_a_root_that_has_ended() {
    let mut domain = Domain::divided();
    domain.pass(span("3649d"));
    domain.begin_roll(NODE);
    domain.pass(span("2d"));
    let mut certificates = domain.roll_answer(2);
    certificates.issuers[0].not_after = domain.now.plus(span("1d"));
    check(&mut domain, answer(certificates), refused("issuer_invalid"));
}

#[test]
fn keys_that_were_sealed_anew_meanwhile_refuse_an_answer_of_before() {
    let mut domain = Domain::divided();
    domain.begin_roll(BOTH);
    let stale = domain.roll_answer(2);
    let anew = || ByteBuf::from(b"anew".to_vec());
    let sealed = |names: &[&str]| -> Vec<(IssuerId, ByteBuf)> {
        names.iter().map(|name| (issuer(name), anew())).collect()
    };
    let whole = Rewrap {
        issuers: sealed(&["n1", "s1"]),
        audit: b"anew".to_vec(),
        roll: None,
        pending: vec![anew(), anew()],
    };
    for bad in [
        Rewrap { pending: Vec::new(), ..whole.clone() },
        Rewrap { pending: vec![anew()], ..whole.clone() },
        Rewrap { pending: vec![anew(), anew(), anew()], ..whole.clone() },
        Rewrap { pending: vec![anew(), ByteBuf::new()], ..whole.clone() },
        Rewrap { roll: Some(anew()), ..whole.clone() },
        Rewrap { issuers: sealed(&["n1"]), ..whole.clone() },
    ] {
        check(&mut domain, (local(), Command::Rewrap(bad)), refused("try_again"));
    }
    check(&mut domain, (local(), Command::Rewrap(whole)), granted(&["ca.rewrapped"]));
    let pending = domain.state.pending_roll.as_ref().unwrap();
    assert!(pending.requests.iter().all(|request| request.sealed_key == b"anew"));
    check(&mut domain, answer(stale), refused("try_again"));
    let certificates = domain.roll_answer(2);
    check(&mut domain, answer(certificates), granted(&["ca.prepared", "ca.prepared"]));
    // Nothing is pending any more, and there are two keys more.
    let sealed = Rewrap {
        issuers: sealed(&["n1", "n2", "s1", "s2"]),
        audit: b"anew".to_vec(),
        roll: None,
        pending: Vec::new(),
    };
    check(&mut domain, (local(), Command::Rewrap(sealed)), granted(&["ca.rewrapped"]));
}

#[test]
fn the_issuers_of_a_roll_are_activated_together() {
    let mut domain = Domain::divided();
    domain.prepare_roll(BOTH, 2);
    let Command::ActivateIssuer(whole) = domain.activate_all(false) else { unreachable!() };
    let with = |change: fn(&mut ActivateIssuer)| {
        let mut activate = whole.clone();
        change(&mut activate);
        (local(), Command::ActivateIssuer(activate))
    };
    for (change, code) in [
        ((|activate| activate.other = None) as fn(&mut ActivateIssuer), "try_again"),
        (|activate| activate.other = Some(activate.issuer.clone()), "try_again"),
        (|activate| activate.other = Some(issuer("n1")), "issuer_not_prepared"),
        (|activate| activate.other = Some(issuer("nothing")), "issuer_not_found"),
        (|activate| activate.issuer = issuer("nothing"), "issuer_not_found"),
        // The audit key is certified by the next issuer of the control plane.
        (|activate| activate.audit_certificate.clear(), "try_again"),
        // As versions said it that knew one issuer for both uses.
        (|activate| activate.by_stored_bundles = false, "try_again"),
        (|activate| (activate.other, activate.by_stored_bundles) = (None, false), "try_again"),
    ] {
        check(&mut domain, with(change), refused(code));
    }
    let either = with(|activate| std::mem::swap(&mut activate.issuer, activate.other.as_mut().unwrap()));
    check(&mut domain, either.clone(), granted(&["ca.activated", "ca.activated"]));
    check(&mut domain, either, granted(&[]));
    assert_eq!(signs(&domain), (Some("n2"), Some("s2")));
    assert_eq!([state_of(&domain, "n1"), state_of(&domain, "s1")], [IssuerState::Retiring; 2]);
    assert_eq!(audit_certificate(&domain.state), b"audit by s2");
}

#[test]
fn a_roll_for_nodes_leaves_what_the_control_plane_has() {
    let mut domain = Domain::divided();
    domain.prepare_roll(NODE, 2);
    let Command::ActivateIssuer(mut activate) = domain.activate_all(false) else { unreachable!() };
    activate.audit_certificate = b"audit by n2".to_vec();
    check(&mut domain, (local(), Command::ActivateIssuer(activate)), refused("try_again"));
    let activate = domain.activate_all(false);
    check(&mut domain, (local(), activate), granted(&["ca.activated"]));
    assert_eq!(signs(&domain), (Some("n2"), Some("s1")));
    assert_eq!(audit_certificate(&domain.state), b"audit");
    domain.roll_all(SERVER, 3);
    assert_eq!(signs(&domain), (Some("n2"), Some("s3")));
    assert_eq!(audit_certificate(&domain.state), b"audit by s3");
    let retire = |name| (local(), Command::RetireIssuer { issuer: issuer(name), also: Vec::new() });
    for name in ["n1", "s1"] {
        check(&mut domain, retire(name), granted(&["ca.retired"]));
    }
}

#[test]
fn issuers_that_retire_together_all_retire_or_none_does() {
    let mut domain = Domain::divided();
    let node = domain.active();
    domain.roll_all(NODE, 2);
    domain.roll_all(SERVER, 3);
    let both = |first: &str, also: &[&str]| {
        let also = also.iter().map(|name| issuer(name)).collect();
        (local(), Command::RetireIssuer { issuer: issuer(first), also })
    };
    // Whichever is named first.
    check(&mut domain, both("s1", &["n1"]), refused("issuer_in_use"));
    check(&mut domain, both("n1", &["s1"]), refused("issuer_in_use"));
    check(&mut domain, both("s1", &["nothing"]), refused("issuer_not_found"));
    check(&mut domain, both("s1", &["n2"]), refused("issuer_in_use"));
    assert_eq!([state_of(&domain, "n1"), state_of(&domain, "s1")], [IssuerState::Retiring; 2]);
    let node = domain.renew(&node);
    check(&mut domain, contact(&node), granted(&["certificate.seen", "certificate.superseded"]));
    domain.pass(span("10m"));
    check(&mut domain, both("n1", &["s1", "n1", "s1"]), granted(&["ca.retired", "ca.retired"]));
    check(&mut domain, both("n1", &["s1"]), granted(&[]));
    assert_eq!([state_of(&domain, "n1"), state_of(&domain, "s1")], [IssuerState::Retired; 2]);
}

/// Not of the first issuer alone: somebody may be left to renew below another one.
#[test]
fn a_refusal_to_retire_speaks_of_every_issuer_that_is_in_use() {
    let mut domain = Domain::divided();
    let first = domain.active();
    domain.roll_all(NODE, 2);
    let second = domain.active();
    domain.roll_all(NODE, 3);
    let moved = domain.renew(&first);
    check(&mut domain, contact(&moved), granted(&["certificate.seen", "certificate.superseded"]));
    for (one, other) in [("n1", "n2"), ("n2", "n1")] {
        let retire = Command::RetireIssuer { issuer: issuer(one), also: vec![issuer(other)] };
        let refused = domain.give(local(), retire).answer.unwrap_err();
        let Rejection::IssuerInUse { holders, drained_at, leaves, others, .. } = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!((&**holders, *leaves), (&[second.node.to_string()][..], 2));
        assert!(drained_at.is_some());
        assert_eq!(**others, [issuer(other)]);
        let said = refused.to_string();
        let begins = format!("issuers {one} and {other} are in use: 2 of their certificates are valid");
        assert!(said.starts_with(&begins), "{said}");
    }
}

/// Whatever their ids are, which follow the certificates.
#[test]
fn issuers_of_nodes_come_before_those_of_the_control_plane() {
    let mut domain = Domain::divided();
    let names = |domain: &Domain, wanted| {
        let issuers = domain.state.issuers_by_use(wanted);
        issuers.into_iter().map(|issuer| issuer.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&domain, IssuerState::Active), ["n1", "s1"]);
    for (name, usage) in [("n1", IssuerUse::Server), ("s1", IssuerUse::Node)] {
        domain.state.issuers.get_mut(&issuer(name)).unwrap().usage = usage;
    }
    assert_eq!(names(&domain, IssuerState::Active), ["s1", "n1"]);
}

/// The first of them, so that one need not ask who is meant.
#[test]
fn a_refusal_to_activate_names_nodes_that_lack_the_bundle() {
    let mut domain = Domain::divided();
    let nodes: Vec<_> = (0..12).map(|_| domain.active()).collect();
    domain.prepare_roll(NODE, 2);
    domain.stores_bundle(&nodes[0].node);
    let activate = domain.activate_all(false);
    let refused = domain.give(local(), activate).answer.unwrap_err();
    let Rejection::NotAdopted { missing, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(missing.len(), 10);
    assert!(!missing.contains(&nodes[0].node.to_string()));
    let said = refused.to_string();
    assert!(said.starts_with("1 of 12 nodes have the new trust bundle; it is missing on "), "{said}");
    assert!(said.ends_with(" and 1 more"), "{said}");
}

/// Only the issuer of the control plane signs the control plane's certificate.
#[test]
fn a_forced_activation_says_what_it_is_about() {
    for (wanted, own) in [(NODE, false), (SERVER, true), (BOTH, true)] {
        let mut domain = Domain::divided();
        domain.active();
        domain.prepare_roll(wanted, 2);
        let Command::ActivateIssuer(force) = domain.activate_all(true) else { unreachable!() };
        let asked = ActivateIssuer { confirm: Confirmation::Asked(None), ..force };
        let said = domain.give(local(), Command::ActivateIssuer(asked)).answer.unwrap_err().to_string();
        assert_eq!(said.contains("the control plane's own"), own, "{said}");
    }
}

#[test]
fn an_issuer_that_has_ended_is_not_activated() {
    let mut domain = Domain::divided();
    domain.prepare_roll(BOTH, 2);
    domain.pass(ISSUER_LIFE);
    let activate = domain.activate_all(true);
    check(&mut domain, (local(), activate), refused("issuer_not_prepared"));
}

#[test]
fn activating_waits_until_every_host_has_stored_the_bundle() {
    let mut domain = Domain::divided();
    let (native, silent) = (domain.active(), domain.active());
    domain.stores_bundle(&native.node);
    domain.prepare_roll(BOTH, 2);
    assert_eq!(domain.state.adoption(), (0, 2));
    assert_eq!(domain.state.lagging().count(), 2);
    let refusal = domain.activate_all(false);
    check(&mut domain, (local(), refusal.clone()), refused("not_adopted"));
    // Sent to both of them, and used by both.
    let (native, silent) = (domain.renew(&native), domain.renew(&silent));
    assert_eq!(domain.state.adoption(), (0, 2));
    for node in [&native, &silent] {
        check(&mut domain, contact(node), granted(&["certificate.seen", "certificate.superseded"]));
    }
    // The one says itself what it has stored: it may have refused this one.
    assert_eq!(domain.state.adoption(), (1, 2));
    let lagging: Vec<_> = domain.state.lagging().map(|node| &node.id).collect();
    assert_eq!(lagging, [&native.node]);
    check(&mut domain, (local(), refusal.clone()), refused("not_adopted"));
    domain.stores_bundle(&native.node);
    assert_eq!(domain.state.adoption(), (2, 2));
    check(&mut domain, (local(), refusal), granted(&["ca.activated", "ca.activated"]));
}

#[test]
fn a_host_whose_stream_says_nothing_counts_by_the_certificate_that_it_uses() {
    let mut domain = Domain::divided();
    let node = domain.active();
    domain.streams(&node.node);
    domain.prepare_roll(BOTH, 2);
    let version = domain.state.bundle_version;
    let node = domain.renew(&node);
    let stored = |domain: &Domain| domain.state.nodes[&node.node].stored_bundle;
    assert!(stored(&domain) < version);
    check(&mut domain, contact(&node), granted(&["certificate.seen", "certificate.superseded"]));
    assert_eq!(stored(&domain), version);
    // Another machine takes its place: what the one before had stored is not on this one's disk.
    let token = domain.mint_pinned(&node.node);
    let next = domain.enroll_with(token, |_| ());
    assert_eq!((stored(&domain), domain.state.adoption()), (0, (0, 1)));
    domain.confirm(&next);
    assert_eq!((stored(&domain), domain.state.adoption()), (version, (1, 1)));
}

#[test]
fn no_host_has_stored_a_bundle_that_does_not_exist() {
    let mut domain = Domain::divided();
    let node = domain.active();
    let claim = lifecycle::registry::Sighting { bundle: Some(u64::MAX), ..domain.sighting(&node.node) };
    check(&mut domain, (Actor::Reconciler, Command::Observe(vec![claim])), granted(&["host.seen"]));
    assert_eq!(domain.state.nodes[&node.node].stored_bundle, domain.state.bundle_version);
    domain.prepare_roll(NODE, 2);
    assert_eq!(domain.state.adoption(), (0, 1));
}

#[test]
fn force_activates_below_full_adoption_when_it_is_confirmed() {
    let mut domain = Domain::divided();
    domain.active();
    domain.prepare_roll(BOTH, 2);
    let Command::ActivateIssuer(force) = domain.activate_all(true) else { unreachable!() };
    let asked = |repeated: Option<&str>| {
        let confirm = Confirmation::Asked(repeated.map(ToOwned::to_owned));
        (local(), Command::ActivateIssuer(ActivateIssuer { confirm, ..force.clone() }))
    };
    check(&mut domain, asked(None), refused("confirmation_needed"));
    check(&mut domain, asked(Some("s2")), refused("confirmation_needed"));
    check(&mut domain, asked(Some(force.issuer.as_str())), granted(&["ca.activated", "ca.activated"]));
}

/// Nothing that is signed now may go unsigned, and nothing may be signed below a root that retires.
#[test]
fn half_of_a_roll_is_activated_only_where_nothing_depends_on_the_other_half() {
    for (wanted, divided, whole) in [(BOTH, false, false), (BOTH, true, true), (ROOT, true, false)] {
        let mut domain = if divided { Domain::divided() } else { Domain::founded() };
        domain.prepare_roll(wanted, 2);
        check(&mut domain, revoke("s2"), granted(&["ca.revoked"]));
        let activate = domain.activate_all(true);
        if whole {
            check(&mut domain, (local(), activate), granted(&["ca.activated"]));
            assert_eq!(signs(&domain), (Some("n2"), Some("s1")));
            continue;
        }
        check(&mut domain, (local(), activate), refused("issuer_invalid"));
        check(&mut domain, abandon(), granted(&["ca.abandoned"]));
        assert_eq!(domain.state.is_divided(), divided);
        domain.roll_all(wanted, 3);
        assert_eq!(signs(&domain), (Some("n3"), Some("s3")));
    }
}

#[test]
fn after_the_issuers_were_revoked_the_next_ones_take_over() {
    let mut domain = Domain::divided();
    for name in ["n1", "s1"] {
        check(&mut domain, revoke(name), granted(&["ca.revoked"]));
    }
    assert_eq!(signs(&domain), (None, None));
    domain.roll_all(SERVER, 2);
    assert_eq!(signs(&domain), (None, Some("s2")));
    domain.roll_all(NODE, 3);
    assert_eq!(signs(&domain), (Some("n3"), Some("s2")));
    let mut domain = Domain::founded();
    check(&mut domain, revoke("i1"), granted(&["ca.revoked"]));
    domain.roll_all(BOTH, 2);
    assert_eq!(signs(&domain), (Some("n2"), Some("s2")));
}

#[test]
fn a_roll_is_abandoned_at_every_stage_before_it_is_active() {
    let mut domain = Domain::divided();
    check(&mut domain, abandon(), refused("no_roll"));
    let before = (domain.state.issuers.clone(), domain.state.roots.clone());
    // Nothing that hosts trust has changed.
    let version = domain.state.bundle_version;
    domain.begin_roll(ROOT);
    check(&mut domain, abandon(), granted(&["ca.abandoned"]));
    assert_eq!(domain.state.bundle_version, version);
    for (number, wanted) in [(2, NODE), (3, BOTH), (4, ROOT)] {
        domain.prepare_roll(wanted, number);
        let version = domain.state.bundle_version;
        check(&mut domain, abandon(), granted(&["ca.abandoned"]));
        check(&mut domain, abandon(), refused("no_roll"));
        assert!(domain.state.bundle_version > version);
        assert_eq!((domain.state.issuers.clone(), domain.state.roots.clone()), before);
    }
    domain.roll_all(ROOT, 5);
    check(&mut domain, abandon(), refused("no_roll"));
    let mut domain = Domain::founded();
    let old_form = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), old_form), granted(&["ca.requested"]));
    check(&mut domain, abandon(), granted(&["ca.abandoned"]));
    assert!(domain.state.roll.is_none());
    domain.prepare_issuer("i2");
    check(&mut domain, abandon(), granted(&["ca.abandoned"]));
    assert!(!domain.state.issuers.contains_key(&issuer("i2")));
}

/// The certificates of a roll that was abandoned are no answer to the next one.
#[test]
fn what_was_abandoned_does_not_come_back() {
    let mut domain = Domain::divided();
    domain.begin_roll(BOTH);
    let certificates = domain.roll_answer(2);
    check(&mut domain, answer(certificates.clone()), granted(&["ca.prepared", "ca.prepared"]));
    check(&mut domain, abandon(), granted(&["ca.abandoned"]));
    check(&mut domain, answer(certificates.clone()), refused("no_roll"));
    domain.begin_roll(BOTH);
    check(&mut domain, answer(certificates), refused("try_again"));
}

#[test]
fn a_roll_with_a_new_root_whose_issuers_were_revoked_is_abandoned_before_the_next() {
    let mut domain = Domain::divided();
    domain.prepare_roll(ROOT, 2);
    for name in ["n2", "s2"] {
        check(&mut domain, revoke(name), granted(&["ca.revoked"]));
    }
    for wanted in [NODE, ROOT] {
        let roll = domain.pending_roll(wanted);
        check(&mut domain, begin(roll), refused("roll_in_progress"));
    }
    let version = domain.state.bundle_version;
    check(&mut domain, abandon(), granted(&["ca.abandoned"]));
    assert!(domain.state.root_in(RootState::Prepared).is_none() && domain.state.bundle_version > version);
    domain.roll_all(ROOT, 3);
}

/// In a log of before there is one issuer for both uses, and what hosts were sent counts.
#[test]
fn commands_of_before_are_judged_as_they_were() {
    let mut domain = Domain::founded();
    let node = domain.active();
    domain.prepare_issuer("i2");
    domain.renew(&node);
    // Sent, and not seen in use.
    assert_eq!(domain.state.adoption(), (0, 1));
    check(&mut domain, (local(), crate::support::activate("i2", false)), granted(&["ca.activated"]));
    assert_eq!(signs(&domain), (Some("i2"), Some("i2")));
    // One that was prepared then is activated by today's command.
    domain.prepare_issuer("i3");
    let activate = domain.activate_all(true);
    check(&mut domain, (local(), activate), granted(&["ca.activated"]));
    // Once the domain is divided they are refused.
    domain.roll_all(BOTH, 4);
    let prepare = Command::PrepareRoll(domain.roll_request());
    check(&mut domain, (local(), prepare), refused("roll_in_progress"));
    let next = domain.next_issuer("i5");
    check(&mut domain, (local(), Command::CertifyRoll(Box::new(next))), refused("no_roll"));
    domain.prepare_roll(NODE, 6);
    check(&mut domain, (local(), crate::support::activate("n6", true)), refused("try_again"));
}

#[test]
fn two_requests_are_for_two_keys() {
    let mut domain = Domain::divided();
    let mut roll = domain.pending_roll(BOTH);
    roll.requests.iter_mut().for_each(|request| request.key = KeyHash::new([1; 32]));
    let applied = domain.give(local(), Command::BeginRoll(roll));
    let why = applied.answer.unwrap_err().to_string();
    assert!(why.contains("keys of their own"), "{why}");
}

#[test]
fn a_whole_roll_of_everything_tells_its_steps() {
    let mut domain = Domain::founded();
    domain.begin_roll(ROOT);
    let certificates = domain.roll_answer(2);
    let applied = domain.give(local(), Command::AnswerRoll(Box::new(certificates)));
    assert_eq!(names(&applied.events), ["ca.root_prepared", "ca.prepared", "ca.prepared"]);
    let activate = domain.activate_all(false);
    let applied = domain.give(local(), activate);
    assert_eq!(applied.answer, Ok(Outcome::Done));
    assert_eq!(names(&applied.events), ["ca.root_activated", "ca.activated", "ca.activated"]);
    assert_eq!(state_of(&domain, "i1"), IssuerState::Retiring);
}
