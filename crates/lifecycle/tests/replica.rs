//! Replicas: how they join, what they say of themselves, how they are removed.

use crate::support::{
    Domain, Minted, ROOT, check, create_replica_token, enroll, granted, issuer, local, refused,
    remove_replica, replica, span,
};
use lifecycle::names::{NodeId, ReplicaId, Serial, Span, SpiffeId};
use lifecycle::registry::{
    AcceptRollback, Actor, AnnounceReplica, Command, Confirmation, IssuerState, JoinReplica, MOST_REPLICAS,
    Outcome, Owner, PublishIssuer, Rejection, ServerCertificate, Verdict, check_join, check_replica_token,
    permissions,
};

fn join(join: JoinReplica) -> (Actor, Command) {
    (Actor::Stranger, Command::JoinReplica(join))
}

fn announce(announce: AnnounceReplica) -> (Actor, Command) {
    (Actor::Replica { id: announce.replica }, Command::AnnounceReplica(announce))
}

fn serial_of(domain: &Domain, number: u64) -> Serial {
    domain.state.replicas[&ReplicaId(number)].serial.clone().unwrap()
}

/// A new certificate of a replica, in use from now on.
#[track_caller]
fn renew(domain: &mut Domain, number: u64) -> Serial {
    let renewed = domain.announce(number, true);
    check(domain, announce(renewed), granted(&["cluster.announced"]));
    serial_of(domain, number)
}

/// What stands on the revocation list of the issuer that signs for replicas.
fn revoked(domain: &Domain) -> Vec<Serial> {
    let by = domain.state.server_issuer().unwrap();
    domain.state.revocations(by, domain.now).map(|entry| entry.serial).collect()
}

fn server_certificate(domain: &mut Domain, number: u64) -> ServerCertificate {
    let (_, command) = domain.server_certificate("i1");
    let Command::RecordServerCertificate(certificate) = command else { unreachable!() };
    ServerCertificate { replica: ReplicaId(number), ..certificate }
}

fn record(certificate: &ServerCertificate) -> (Actor, Command) {
    (Actor::Reconciler, Command::RecordServerCertificate(certificate.clone()))
}

#[test]
fn a_domain_becomes_a_cluster_when_its_first_replica_announces_itself() {
    let mut domain = Domain::founded();
    let stranger = domain.announce(2, true);
    check(&mut domain, announce(stranger), refused("replica_not_found"));
    let first = domain.announce(1, true);
    check(&mut domain, announce(first.clone()), granted(&["cluster.announced"]));
    let known = &domain.state.replicas[&ReplicaId::FIRST];
    assert_eq!((known.peer.as_str(), &known.urls), ("r1:8444", &first.urls));
    assert_eq!((known.joined_at, known.is_member()), (domain.now, true));
    let certificate = &domain.state.certificates[&serial_of(&domain, 1)];
    assert_eq!((&certificate.owner, &certificate.der), (&Owner::Replica(ReplicaId(1)), &None));
    check(&mut domain, announce(first), granted(&[]));
}

#[test]
fn a_token_lets_one_replica_join() {
    let mut domain = Domain::cluster(1);
    let token = domain.replica_token();
    let request = domain.join(token);
    let applied = domain.give(Actor::Stranger, Command::JoinReplica(request.clone()));
    assert_eq!(applied.answer, Ok(Outcome::ReplicaJoined { replica: ReplicaId(2) }));
    let known = &domain.state.replicas[&ReplicaId(2)];
    assert_eq!((&known.peer, &known.urls), (&request.peer, &request.urls));
    assert_eq!(known.serial, Some(request.certificate.serial));
    assert!(domain.state.is_good(known.serial.as_ref().unwrap()));
    let spent = &domain.state.replica_tokens[&token.id];
    assert_eq!((spent.used_at, spent.used_by), (Some(domain.now), Some(ReplicaId(2))));
    let again = domain.join(token);
    check(&mut domain, join(again), refused("token_used"));
}

#[test]
fn nobody_joins_a_replica_that_has_not_announced_itself() {
    let mut domain = Domain::founded();
    let token = domain.replica_token();
    let early = domain.join(token);
    check(&mut domain, join(early), refused("try_again"));
    domain.becomes_cluster(1);
    let now = domain.join(token);
    check(&mut domain, join(now), granted(&["cluster.joined"]));
}

#[test]
fn tokens_of_nodes_and_of_replicas_are_good_for_nothing_else() {
    let mut domain = Domain::cluster(1);
    let (of_node, of_replica) = (domain.mint(), domain.replica_token());
    let request = domain.request(of_replica);
    check(&mut domain, enroll(request), refused("token_invalid"));
    let request = domain.join(of_node);
    check(&mut domain, join(request), refused("token_invalid"));
    assert_eq!(check_replica_token(&domain.state, &of_node.hash), Err(Rejection::TokenInvalid));
    for (taken, id) in [(of_replica.hash, domain.drawn().token), (of_node.hash, domain.drawn().token)] {
        let again = create_replica_token(Minted { id, hash: taken }, "1h");
        check(&mut domain, (local(), again), refused("try_again"));
    }
}

#[test]
fn a_token_ends_by_the_clock() {
    let mut domain = Domain::cluster(1);
    let token = domain.replica_token();
    domain.pass(span("1h"));
    let late = domain.join(token);
    check(&mut domain, join(late), refused("token_expired"));
}

#[test]
fn a_token_lives_as_long_as_a_nodes_may() {
    let mut domain = Domain::founded();
    let mut mint = |ttl: &str, expect| {
        let drawn = domain.drawn();
        let create = create_replica_token(Minted { id: drawn.token, hash: drawn.hash }, ttl);
        check(&mut domain, (local(), create), expect);
    };
    mint("9s", refused("token_ttl_too_short"));
    mint("10s", granted(&["cluster.token_created"]));
    mint("24h", granted(&["cluster.token_created"]));
    mint("25h", refused("token_ttl_too_long"));
}

#[test]
fn tokens_that_could_be_used_are_few() {
    let mut domain = Domain::founded();
    for _ in 0..64 {
        domain.replica_token();
    }
    let drawn = domain.drawn();
    let more = || (local(), create_replica_token(Minted { id: drawn.token, hash: drawn.hash }, "1h"));
    check(&mut domain, more(), refused("too_many_tokens"));
    domain.pass(span("1h"));
    check(&mut domain, more(), granted(&["cluster.token_created"]));
}

#[test]
fn what_does_not_fit_does_not_join_and_spends_no_token() {
    let mut domain = Domain::cluster(2);
    let token = domain.replica_token();
    let name = domain.state.domain.as_ref().unwrap().name.clone();
    let (taken, now) = (serial_of(&domain, 1), domain.now);
    let end = domain.state.issuers[&issuer("i1")].not_after;
    let flaws: [&dyn Fn(&mut JoinReplica); 10] = [
        &|join| join.replica = ReplicaId(2),
        &|join| join.replica = ReplicaId(4),
        &|join| join.certificate.subject = SpiffeId::replica(&name, ReplicaId(1)),
        &|join| {
            join.certificate.subject = SpiffeId::agent(
                &name,
                &lifecycle::names::TenantId::default_tenant(),
                &NodeId::parse("3").unwrap(),
            );
        },
        &|join| join.certificate.issuer = issuer("i2"),
        &|join| join.certificate.serial = taken.clone(),
        &|join| join.certificate.not_after = now,
        &|join| join.certificate.not_after = end.plus(Span::from_millis(1)),
        &|join| join.certificate.signed_at = now.plus(Span::from_millis(60_001)),
        &|join| join.certificate.signed_at = now.minus(Span::from_millis(300_001)),
    ];
    for flaw in flaws {
        let mut request = domain.join(token);
        flaw(&mut request);
        check(&mut domain, join(request), refused("try_again"));
    }
    let good = domain.join(token);
    check(&mut domain, join(good), granted(&["cluster.joined"]));
}

#[test]
fn an_address_is_of_one_member() {
    let mut domain = Domain::cluster(2);
    let token = domain.replica_token();
    let mut request = domain.join(token);
    request.peer = "r2:8444".to_owned();
    let in_use = Rejection::PeerAddressInUse { peer: "r2:8444".to_owned() };
    assert_eq!(check_join(&domain.state, &token.hash, "r2:8444"), Err(in_use));
    check(&mut domain, join(request.clone()), refused("peer_address_in_use"));
    let mut moved = domain.announce(1, false);
    moved.peer = "r2:8444".to_owned();
    check(&mut domain, announce(moved), refused("peer_address_in_use"));
    // The address of one that was removed is free.
    check(&mut domain, (local(), remove_replica(2)), granted(&["cluster.removed"]));
    check(&mut domain, join(request), granted(&["cluster.joined"]));
}

#[test]
fn a_cluster_has_nine_members_at_most() {
    let mut domain = Domain::cluster(MOST_REPLICAS as u64);
    let token = domain.replica_token();
    let request = domain.join(token);
    check(&mut domain, join(request), refused("too_many_replicas"));
    check(&mut domain, (local(), remove_replica(4)), granted(&["cluster.removed"]));
    let request = domain.join(token);
    check(&mut domain, join(request), granted(&["cluster.joined"]));
}

#[test]
fn an_id_is_never_given_again() {
    let mut domain = Domain::cluster(2);
    check(&mut domain, (local(), remove_replica(2)), granted(&["cluster.removed"]));
    let token = domain.replica_token();
    let request = domain.join(token);
    assert_eq!(request.replica, ReplicaId(3));
    check(&mut domain, join(request), granted(&["cluster.joined"]));
}

#[test]
fn a_replica_says_where_it_is_reached() {
    let mut domain = Domain::cluster(2);
    let serial = serial_of(&domain, 2);
    let mut moved = domain.announce(2, false);
    check(&mut domain, announce(moved.clone()), granted(&[]));
    moved.peer = "elsewhere:8444".to_owned();
    check(&mut domain, announce(moved.clone()), granted(&["cluster.announced"]));
    moved.urls.clear();
    check(&mut domain, announce(moved), granted(&["cluster.announced"]));
    let known = &domain.state.replicas[&ReplicaId(2)];
    assert_eq!((known.peer.as_str(), known.urls.len()), ("elsewhere:8444", 0));
    assert_eq!((&known.serial, &known.previous), (&Some(serial), &None));
}

#[test]
fn a_replica_speaks_for_itself_only() {
    let mut domain = Domain::cluster(2);
    let (_, other) = announce(domain.announce(2, true));
    for actor in [replica(1), local(), Actor::Reconciler, Actor::Stranger] {
        check(&mut domain, (actor, other.clone()), refused("forbidden"));
    }
}

#[test]
fn the_certificate_before_the_one_in_use_is_good_until_the_next_renewal() {
    let mut domain = Domain::cluster(2);
    let first = serial_of(&domain, 2);
    let second = renew(&mut domain, 2);
    assert!(domain.state.is_good(&first) && domain.state.is_good(&second));
    assert_eq!(domain.state.replicas[&ReplicaId(2)].previous, Some(first.clone()));
    let third = renew(&mut domain, 2);
    assert!(domain.state.is_denied(&first));
    assert!(domain.state.is_good(&second) && domain.state.is_good(&third));
    assert_eq!(revoked(&domain), [first]);
}

#[test]
fn a_renewal_whose_answer_was_lost_is_not_another_renewal() {
    let mut domain = Domain::cluster(1);
    let renewed = domain.announce(1, true);
    check(&mut domain, announce(renewed.clone()), granted(&["cluster.announced"]));
    check(&mut domain, announce(renewed.clone()), granted(&[]));
    // Under the same serial, another certificate is none.
    let mut other = renewed;
    other.certificate.as_mut().unwrap().fingerprint = lifecycle::names::Fingerprint::new([9; 32]);
    check(&mut domain, announce(other), refused("try_again"));
}

#[test]
fn a_certificate_that_does_not_fit_is_not_announced() {
    let mut domain = Domain::cluster(2);
    let mut other = domain.announce(2, true);
    other.certificate = Some(domain.replica_certificate(1));
    check(&mut domain, announce(other), refused("try_again"));
}

#[test]
fn a_removed_replica_is_removed_for_good() {
    let mut domain = Domain::cluster(3);
    let (first, second) = (serial_of(&domain, 2), renew(&mut domain, 2));
    let own = server_certificate(&mut domain, 2);
    check(&mut domain, record(&own), granted(&["server_certificate.issued"]));
    check(&mut domain, (local(), remove_replica(2)), granted(&["cluster.removed"]));
    let known = &domain.state.replicas[&ReplicaId(2)];
    assert_eq!((known.is_member(), known.removed_at), (false, Some(domain.now)));
    for serial in [&first, &second] {
        assert!(domain.state.is_denied(serial));
    }
    let mut listed = revoked(&domain);
    listed.sort();
    assert_eq!(listed, [first, second]);
    assert_eq!(domain.state.server_certificate_of(ReplicaId(2)), None);
    let mut said = domain.announce(2, true);
    check(&mut domain, announce(said.clone()), refused("replica_removed"));
    said.certificate = None;
    check(&mut domain, announce(said), refused("replica_removed"));
    check(&mut domain, record(&own), refused("replica_removed"));
    check(&mut domain, (local(), remove_replica(2)), granted(&[]));
}

#[test]
fn the_last_replica_is_not_removed() {
    let mut domain = Domain::cluster(2);
    check(&mut domain, (local(), remove_replica(7)), refused("replica_not_found"));
    check(&mut domain, (local(), remove_replica(1)), granted(&["cluster.removed"]));
    check(&mut domain, (local(), remove_replica(2)), refused("would_lose_majority"));
}

#[test]
fn a_forced_removal_is_confirmed() {
    let mut domain = Domain::cluster(2);
    let forced = |repeated: Option<&str>| {
        let confirm = Confirmation::Asked(repeated.map(ToOwned::to_owned));
        (local(), Command::RemoveReplica { replica: ReplicaId(2), confirm, forced: true })
    };
    for repeated in [None, Some("1")] {
        let (actor, command) = forced(repeated);
        let applied = domain.give(actor, command);
        let Err(Rejection::ConfirmationNeeded { subject, affected, .. }) = &applied.answer else {
            panic!("{:?}", applied.answer)
        };
        assert_eq!((subject.as_str(), *affected), ("2", 0));
    }
    check(&mut domain, forced(Some("2")), granted(&["cluster.removed"]));
}

#[test]
fn what_a_removed_replica_signed_stays_good() {
    let mut domain = Domain::ephemeral();
    domain.becomes_cluster(2);
    let node = domain.active();
    let version = domain.state.ephemeral_version;
    check(&mut domain, (local(), remove_replica(1)), granted(&["cluster.removed"]));
    assert_eq!(domain.state.issuers[&issuer("e1")].state, IssuerState::Retiring);
    assert!(domain.state.ephemeral_version > version, "what verifies nodes is looked at again");
    assert!(domain.state.is_good(&node.serial));
    let publish = domain.publish("e2");
    check(&mut domain, (replica(1), publish.clone()), refused("replica_removed"));
    let Command::PublishIssuer(publish) = publish else { unreachable!() };
    let of = |number| {
        let publish = PublishIssuer { replica: ReplicaId(number), ..publish.as_ref().clone() };
        (replica(number), Command::PublishIssuer(Box::new(publish)))
    };
    check(&mut domain, of(3), refused("replica_not_found"));
    check(&mut domain, of(2), granted(&["ca.published"]));
}

#[test]
fn the_certificate_of_a_replica_is_neither_a_nodes_nor_an_operators() {
    let mut domain = Domain::cluster(1);
    let (node, serial) = (domain.active(), serial_of(&domain, 1));
    let alice =
        domain.operator("alice", lifecycle::registry::Role::Viewer, lifecycle::registry::Tenants::All);
    let Actor::Operator { name, .. } = alice else { unreachable!() };
    let played = Actor::Operator { name, serial: serial.clone() };
    assert_eq!(permissions(&domain.state, &played), None);
    let played = Actor::Node { id: node.node.clone(), serial };
    check(&mut domain, (played, Command::Contact { node: node.node }), refused("unauthenticated"));
}

#[test]
fn each_replica_has_its_own_server_certificate() {
    let mut domain = Domain::cluster(2);
    let (first, second) = (server_certificate(&mut domain, 1), server_certificate(&mut domain, 2));
    for own in [&first, &second] {
        check(&mut domain, record(own), granted(&["server_certificate.issued"]));
        check(&mut domain, record(own), granted(&[]));
    }
    assert_eq!(domain.state.server_certificates().collect::<Vec<_>>(), [&first, &second]);
    assert_eq!(domain.state.server_certificate_of(ReplicaId(2)), Some(&second));
    let unknown = server_certificate(&mut domain, 3);
    check(&mut domain, record(&unknown), refused("replica_not_found"));
    // A serial is taken by whichever replica presents it.
    let again = ServerCertificate { replica: ReplicaId(1), ..second };
    check(&mut domain, record(&again), refused("try_again"));
}

#[test]
fn an_issuer_retires_when_every_replica_has_renewed() {
    let mut domain = Domain::cluster(2);
    let own = server_certificate(&mut domain, 2);
    check(&mut domain, record(&own), granted(&["server_certificate.issued"]));
    domain.roll_all(crate::support::BOTH, 2);
    let retire = || (local(), Command::RetireIssuer { issuer: issuer("i1"), also: Vec::new() });
    let holders = |domain: &mut Domain| match domain.give(local(), retire().1).answer {
        Err(Rejection::IssuerInUse { holders, own, drained_at, .. }) => {
            (holders.join(", "), own, drained_at.is_some())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(holders(&mut domain), ("replica 1, replica 2".to_owned(), false, false));
    let own = ServerCertificate { serial: domain.serial(), issuer: issuer("s2"), ..own };
    check(&mut domain, record(&own), granted(&["server_certificate.issued"]));
    (1..=2).for_each(|number| drop(renew(&mut domain, number)));
    // What they had before is good beside it until they renew again, however long that takes.
    assert_eq!(holders(&mut domain), ("replica 1, replica 2".to_owned(), false, false));
    renew(&mut domain, 1);
    assert_eq!(holders(&mut domain), ("replica 2".to_owned(), false, false));
    renew(&mut domain, 2);
    check(&mut domain, retire(), granted(&["ca.retired"]));
}

#[test]
fn a_replica_that_presents_a_certificate_of_an_issuer_is_named() {
    let mut domain = Domain::cluster(2);
    let own = server_certificate(&mut domain, 2);
    check(&mut domain, record(&own), granted(&["server_certificate.issued"]));
    domain.roll_all(crate::support::BOTH, 2);
    for number in [1, 2, 1, 2] {
        renew(&mut domain, number);
    }
    let retire = Command::RetireIssuer { issuer: issuer("i1"), also: Vec::new() };
    let refused = domain.give(local(), retire).answer.expect_err("one is presented").to_string();
    assert!(
        refused.ends_with("1 of its certificates is valid; these have not renewed yet: replica 2"),
        "{refused}"
    );
}

#[test]
fn a_root_is_not_retired_under_the_replicas_even_by_force() {
    let mut domain = Domain::cluster(2);
    let old = domain.state.roots[0].fingerprint;
    domain.roll_all(ROOT, 2);
    let confirm = || Confirmation::Asked(Some(old.pin()));
    let retire = || {
        (local(), Command::RetireRoot { root: old, force: true, confirm: confirm(), counts_operators: true })
    };
    check(&mut domain, retire(), refused("issuer_in_use"));
    renew(&mut domain, 1);
    check(&mut domain, retire(), refused("issuer_in_use"));
    renew(&mut domain, 2);
    check(&mut domain, retire(), granted(&["ca.retired", "ca.root_retired"]));
}

#[test]
fn whoever_revokes_an_issuer_learns_that_replicas_use_it() {
    let mut domain = Domain::cluster(2);
    let revoke = Command::RevokeIssuer {
        issuer: issuer("i1"),
        reason: "lost".to_owned(),
        confirm: Confirmation::Asked(None),
        asks_for_holders: true,
    };
    let Err(Rejection::ConfirmationNeeded { consequence, .. }) = domain.give(local(), revoke).answer else {
        panic!("not asked")
    };
    assert!(consequence.ends_with("; replicas affected: 2"), "{consequence}");
}

#[test]
fn what_has_ended_of_replicas_is_forgotten() {
    let mut domain = Domain::cluster(3);
    let (spent, unused) = (domain.state.replica_tokens.len(), domain.replica_token());
    let before = serial_of(&domain, 2);
    domain.pass(span("1d"));
    let current = renew(&mut domain, 2);
    check(&mut domain, (local(), remove_replica(3)), granted(&["cluster.removed"]));
    let removed = serial_of(&domain, 3);
    domain.pass(span("29d"));
    check(&mut domain, (Actor::Reconciler, Command::Tidy), granted(&["registry.tidied"]));
    assert_eq!((domain.state.replica_tokens.len(), spent), (0, 2));
    assert!(check_replica_token(&domain.state, &unused.hash).is_err());
    for gone in [&before, &removed] {
        assert_eq!(domain.state.verdict(gone, domain.now), Verdict::Unknown);
    }
    let known = &domain.state.replicas[&ReplicaId(2)];
    assert_eq!((&known.serial, &known.previous), (&Some(current.clone()), &None));
    assert_eq!(domain.state.replicas[&ReplicaId(3)].serial, None);
    // The last one of a member says when it ended.
    domain.pass(span("30d"));
    domain.give(Actor::Reconciler, Command::Tidy);
    assert_eq!(domain.state.verdict(&current, domain.now), Verdict::Expired);
}

#[test]
fn a_directory_that_is_older_than_its_anchor_lets_no_replica_join_with_an_old_token() {
    let mut domain = Domain::cluster(1);
    let token = domain.replica_token();
    domain.pass(span("1m"));
    let accept = AcceptRollback { directory_seq: 1, anchor_seq: Some(2), voids_recovery: true };
    let accept = (Actor::Reconciler, Command::AcceptRollback(accept));
    check(&mut domain, accept, granted(&["directory.rollback_accepted"]));
    assert_eq!(check_replica_token(&domain.state, &token.hash), Err(Rejection::TokenExpired));
}

#[test]
fn a_replica_that_issues_nothing_needs_no_time() {
    let mut domain = Domain::cluster(1);
    let token = domain.drawn();
    let mint = create_replica_token(Minted { id: token.token, hash: token.hash }, "1h");
    for (command, needs) in [
        (Command::AnnounceReplica(domain.announce(1, true)), true),
        (Command::AnnounceReplica(domain.announce(1, false)), false),
        (remove_replica(1), false),
        (mint, true),
    ] {
        assert_eq!(command.needs_time(), needs, "{command:?}");
    }
}
