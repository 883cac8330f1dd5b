//! A machine that is registered by its hardware enrolls with nothing else.

use crate::support::{
    Domain, Enrolled, check, contact, enroll, granted, hardware, local, node, only, refused, refused_with,
    register_hardware, span, vcluster,
};
use lifecycle::names::{IdempotencyHash, KeyHash, NodeId, TenantId};
use lifecycle::registry::{
    Act, Actor, AlertKind, Command, Confirmation, Credential, Enroll, Event, HardwareIdentity, NodeState,
    Outcome, Rejection, Role, SetPolicy, Silence, may_read,
};

const REGISTERED: &[&str] = &["host.registered"];
const ENROLLED: &[&str] = &["host.enrolled", "host.active"];
const ALERT: &[&str] = &["alert.raised"];
const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";
const C: &str = "02:00:00:00:00:0c";

/// One in which hardware is enough.
fn open() -> Domain {
    let mut domain = Domain::founded();
    domain.policy("attestors", "join-token,hardware,recovery-token");
    domain
}

fn register(name: &str, macs: &[&str], serial: &str) -> (Actor, Command) {
    let register = register_hardware(name, hardware(macs, serial));
    (local(), Command::RegisterHardware(Box::new(register)))
}

/// What a machine sends that says this of itself, with a certificate prepared if it would be admitted.
fn boot(domain: &mut Domain, claimed: HardwareIdentity) -> (Actor, Command) {
    boot_with(domain, claimed, |_| ())
}

fn boot_with(
    domain: &mut Domain,
    claimed: HardwareIdentity,
    change: impl FnOnce(&mut Enroll),
) -> (Actor, Command) {
    let token = domain.mint();
    let mut request = Enroll { credential: Credential::Hardware(claimed), ..domain.request(token) };
    change(&mut request);
    enroll(domain.prepare(request))
}

#[track_caller]
fn booted(domain: &mut Domain, claimed: HardwareIdentity) -> Enrolled {
    let (actor, command) = boot(domain, claimed);
    let Command::Enroll(request) = &command else { unreachable!() };
    let request = request.as_ref().clone();
    match domain.give(actor, command).answer {
        Ok(Outcome::Enrolled { node, serial, replayed: false }) => Enrolled { node, serial, request },
        other => panic!("not enrolled: {other:?}"),
    }
}

#[track_caller]
fn falls_silent(domain: &mut Domain, node: &NodeId) {
    let listening_since = domain.now;
    domain.pass(domain.state.policy.liveness_grace);
    let silence = Silence { nodes: vec![node.clone()], listening_since };
    check(domain, (Actor::Reconciler, Command::MarkInactive(silence)), granted(&["host.inactive"]));
}

fn state_of(domain: &Domain, name: &str) -> NodeState {
    domain.state.nodes[&node(name)].state
}

#[test]
fn a_registered_machine_is_active_with_its_first_enrollment_and_seen() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A, B], "SN1"), granted(REGISTERED));
    assert_eq!(state_of(&domain, "m1"), NodeState::Registered);
    let boot = boot(&mut domain, hardware(&[B, C], "SN1"));
    let events = check(&mut domain, boot, granted(ENROLLED));
    assert!(matches!(&events[0], Event::NodeEnrolled(enrolled) if enrolled.token.is_none()));
    let record = &domain.state.nodes[&node("m1")];
    assert_eq!((record.state, record.last_seen), (NodeState::Active, Some(domain.now)));
    assert_eq!(record.identity.as_deref(), Some(&hardware(&[A, B], "SN1")), "what is registered stays");
}

#[test]
fn who_is_not_registered_or_half_matches_gets_nothing() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], "SN1"), granted(REGISTERED));
    for claimed in [hardware(&[B], "SN1"), hardware(&[A], "SN2"), hardware(&[A], ""), hardware(&[C], "")] {
        let boot = boot(&mut domain, claimed);
        check(&mut domain, boot, refused("node_not_enrolled"));
    }
    assert_eq!(state_of(&domain, "m1"), NodeState::Registered);
}

#[test]
fn hardware_is_nothing_until_policy_names_it() {
    let mut domain = Domain::founded();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let early = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, early, refused("attestor_not_allowed"));
    domain.policy("attestors", "join-token,hardware");
    let late = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, late, granted(ENROLLED));
}

#[test]
fn hardware_counts_from_the_networks_that_policy_names_only() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    domain.policy("hardware.source_cidrs", "198.51.100.0/24,fd00::/8");
    let outside = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, outside, refused("attestor_not_allowed"));
    // Tests come from 192.0.2.1.
    domain.policy("hardware.source_cidrs", "::ffff:192.0.2.0/120");
    let inside = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, inside, granted(ENROLLED));
    domain.policy("hardware.source_cidrs", "");
    assert!(domain.state.policy.hardware_source_cidrs.is_empty());
}

#[test]
fn a_second_enrollment_of_an_active_machine_is_an_alert_with_both_addresses_raised_once_while_it_is_open() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    booted(&mut domain, hardware(&[A], ""));
    let second = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, second, refused_with("already_active", ALERT));
    let alert = domain.state.open_alert(AlertKind::AlreadyActive, Some(&node("m1"))).unwrap().clone();
    assert!(alert.detail.contains("active_from=192.0.2.1"), "{}", alert.detail);
    assert!(alert.detail.contains("attempt_from=192.0.2.1"), "{}", alert.detail);
    for wait in ["59s", "1s", "2h"] {
        domain.pass(span(wait));
        let again = boot(&mut domain, hardware(&[A], ""));
        check(&mut domain, again, refused("already_active"));
    }
    domain.give(Actor::Reconciler, Command::ClearAlert { alert: alert.id }).answer.unwrap();
    let later = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, later, refused_with("already_active", ALERT));
    assert_eq!(state_of(&domain, "m1"), NodeState::Active);
}

/// The log of an older version makes the lines again that the trail holds.
#[test]
fn a_command_of_an_older_version_raises_the_alert_every_minute_and_asks_for_certificates_alone() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let first = booted(&mut domain, hardware(&[A], ""));
    let old = |domain: &mut Domain| boot_with(domain, hardware(&[A], ""), |request| request.strict = false);
    for (wait, events) in [("0s", ALERT), ("59s", &[]), ("1s", ALERT)] {
        domain.pass(span(wait));
        let again = old(&mut domain);
        check(&mut domain, again, refused_with("already_active", events));
    }
    domain.pass(span("25h"));
    domain.streams(&first.node);
    let boot = old(&mut domain);
    check(&mut domain, boot, granted(ENROLLED));
}

#[test]
fn a_node_that_enrolled_with_a_token_and_has_not_confirmed_has_its_place_too() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let token = domain.mint_pinned(&node("m1"));
    domain.enroll_with(token, |_| ());
    let boot = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, boot, refused_with("already_active", ALERT));
    assert_eq!(state_of(&domain, "m1"), NodeState::Enrolled);
}

/// Whoever holds the place has to be able to prove it.
#[test]
fn a_machine_whose_certificates_have_all_ended_enrolls_again_in_any_state() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let first = booted(&mut domain, hardware(&[A], ""));
    check(&mut domain, contact(&first), granted(&["certificate.seen"]));
    domain.pass(span("25h"));
    assert_eq!(state_of(&domain, "m1"), NodeState::Active);
    let boot = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, boot, granted(ENROLLED));
}

/// The reply was lost: the same key and idempotency key, and nobody has used the certificate.
#[test]
fn a_lost_reply_is_repeated_until_the_certificate_was_used() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let (key, once) = (KeyHash::new([9; 32]), Some(IdempotencyHash::new([9; 32])));
    let ask = |domain: &mut Domain, key, idempotency, expect| {
        let ask = boot_with(domain, hardware(&[A], ""), |request| {
            (request.key, request.idempotency) = (key, idempotency);
        });
        check(domain, ask, expect)
    };
    ask(&mut domain, key, once, granted(ENROLLED));
    ask(&mut domain, key, once, granted(&[]));
    ask(&mut domain, key, None, refused_with("already_active", ALERT));
    ask(&mut domain, KeyHash::new([8; 32]), once, refused("already_active"));
    ask(&mut domain, key, Some(IdempotencyHash::new([8; 32])), refused("already_active"));
    let serial = domain.state.nodes[&node("m1")].current_serial().unwrap().clone();
    let actor = Actor::Node { id: node("m1"), serial };
    check(&mut domain, (actor, Command::Contact { node: node("m1") }), granted(&["certificate.seen"]));
    ask(&mut domain, key, once, refused("already_active"));
}

/// A machine that restarted without its certificate waits for the grace period; what it had before is denied.
#[test]
fn an_inactive_machine_enrolls_again_and_every_earlier_serial_is_denied() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let first = booted(&mut domain, hardware(&[A], ""));
    check(&mut domain, contact(&first), granted(&["certificate.seen"]));
    let renewed = domain.renew(&first);
    falls_silent(&mut domain, &first.node);
    let second = booted(&mut domain, hardware(&[A], ""));
    assert_eq!(state_of(&domain, "m1"), NodeState::Active);
    for old in [&first.serial, &renewed.serial] {
        assert!(domain.state.is_denied(old));
    }
    assert!(domain.state.is_good(&second.serial));
}

/// It has no stream to lose, and falls inactive all the same.
#[test]
fn a_machine_that_never_came_back_after_it_enrolled_falls_inactive() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let first = booted(&mut domain, hardware(&[A], ""));
    falls_silent(&mut domain, &first.node);
    assert_eq!(state_of(&domain, "m1"), NodeState::Inactive);
    check(&mut domain, contact(&first), granted(&["host.active", "certificate.seen"]));
}

#[test]
fn an_id_is_registered_once_and_the_same_hardware_is_said_to_be_so() {
    let mut domain = open();
    domain.tenant("acme");
    check(&mut domain, register("m1", &[A], "SN1"), granted(REGISTERED));
    let (actor, again) = register("m1", &[A], "SN1");
    let same = Rejection::NodeAlreadyEnrolled { node: node("m1"), same: true };
    assert_eq!(domain.give(actor, again).answer, Err(same));
    let (actor, other) = register("m1", &[A], "SN2");
    let other = domain.give(actor, other).answer;
    assert_eq!(other, Err(Rejection::NodeAlreadyEnrolled { node: node("m1"), same: false }));
    // Nor does another tenant learn what it is registered with.
    let mut foreign = register_hardware("m1", hardware(&[A], "SN1"));
    foreign.tenant = TenantId::parse("acme").unwrap();
    let foreign = domain.give(local(), Command::RegisterHardware(Box::new(foreign))).answer;
    assert_eq!(foreign, Err(Rejection::NodeAlreadyEnrolled { node: node("m1"), same: false }));
    // A node that was there before is not made a machine.
    let enrolled = domain.enroll();
    check(&mut domain, register(enrolled.node.as_str(), &[B], ""), refused("node_already_enrolled"));
}

#[test]
fn an_identifier_belongs_to_one_node_and_another_tenant_is_not_told_whose() {
    let mut domain = open();
    let acme = domain.tenant("acme");
    check(&mut domain, register("m1", &[A, B], "SN1"), granted(REGISTERED));
    for (macs, serial) in [(&[B, C][..], "SN2"), (&[C][..], "SN1")] {
        let (actor, command) = register("m2", macs, serial);
        let conflict = Rejection::HardwareIdentityConflict { node: Some(node("m1")) };
        assert_eq!(domain.give(actor, command).answer, Err(conflict));
        let mut foreign = register_hardware("m2", hardware(macs, serial));
        foreign.tenant = acme.clone();
        let foreign = domain.give(local(), Command::RegisterHardware(Box::new(foreign))).answer;
        assert_eq!(foreign, Err(Rejection::HardwareIdentityConflict { node: None }));
    }
    check(&mut domain, register("m2", &[C], ""), granted(REGISTERED));
}

#[test]
fn what_is_named_at_a_registration_must_exist() {
    let mut domain = open();
    let mut check_with = |change: &dyn Fn(&mut lifecycle::registry::RegisterHardware), code| {
        let mut register = register_hardware("m1", hardware(&[A], ""));
        change(&mut register);
        check(&mut domain, (local(), Command::RegisterHardware(Box::new(register))), refused(code));
    };
    check_with(&|register| register.tenant = TenantId::parse("nowhere").unwrap(), "tenant_not_found");
    check_with(&|register| register.vcluster = Some(vcluster("nowhere")), "vcluster_not_found");
    check_with(&|register| register.profile = Some(crate::support::profile("nothing")), "profile_not_found");
}

#[test]
fn a_machine_of_two_nodes_is_a_conflict_and_gets_nothing() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    check(&mut domain, register("m2", &[B], ""), granted(REGISTERED));
    let both = boot(&mut domain, hardware(&[A, B], ""));
    check(&mut domain, both, refused_with("hardware_identity_conflict", ALERT));
    assert!(domain.state.open_alert(AlertKind::HardwareIdentityConflict, Some(&node("m1"))).is_some());
    let again = boot(&mut domain, hardware(&[A, B], ""));
    check(&mut domain, again, refused("hardware_identity_conflict"));
    // One that is gone is in nobody's way.
    domain.end(&node("m2"), NodeState::Decommissioned);
    let one = boot(&mut domain, hardware(&[A, B], ""));
    check(&mut domain, one, granted(ENROLLED));
}

#[test]
fn a_machine_that_is_gone_is_told_so_until_it_is_registered_anew() {
    let mut domain = open();
    for how in [NodeState::Revoked, NodeState::Decommissioned] {
        let name = how.as_str();
        check(&mut domain, register(name, &[A], "SN1"), granted(REGISTERED));
        let first = booted(&mut domain, hardware(&[A], "SN1"));
        domain.end(&first.node, how);
        let boot = boot(&mut domain, hardware(&[A], "SN1"));
        check(&mut domain, boot, refused("node_revoked"));
        // Under the same id, with other hardware: a new life, and the old serials stay denied.
        let events = &["host.reinstated", "host.registered"];
        check(&mut domain, register(name, &[B], ""), granted(events));
        let record = &domain.state.nodes[&first.node];
        assert_eq!((record.state, record.generation), (NodeState::Registered, 2));
        let second = booted(&mut domain, hardware(&[B], ""));
        assert!(domain.state.is_denied(&first.serial) && domain.state.is_good(&second.serial));
        let old = self::boot(&mut domain, hardware(&[A], "SN1"));
        check(&mut domain, old, refused("node_not_enrolled"));
        domain.end(&first.node, how);
    }
}

/// What a tombstone was known by is free for another registration, and then the tombstone cannot come back.
#[test]
fn a_tombstone_yields_its_hardware_and_cannot_be_reinstated_while_another_has_it() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A, B], "SN1"), granted(REGISTERED));
    domain.end(&node("m1"), NodeState::Revoked);
    check(&mut domain, register("m2", &[A], ""), granted(REGISTERED));
    // With an interface that only the tombstone has.
    let machine = boot(&mut domain, hardware(&[A, B], "SN1"));
    check(&mut domain, machine, granted(ENROLLED));
    assert_eq!(state_of(&domain, "m2"), NodeState::Active);
    let reinstate = || (local(), Command::Reinstate { node: node("m1"), as_registered: true });
    check(&mut domain, reinstate(), refused("hardware_identity_conflict"));
    check(&mut domain, register("m1", &[A], ""), refused("hardware_identity_conflict"));
    domain.end(&node("m2"), NodeState::Decommissioned);
    check(&mut domain, reinstate(), granted(&["host.reinstated"]));
    let back = booted(&mut domain, hardware(&[A], "SN1"));
    assert_eq!(back.node, node("m1"));
    check(
        &mut domain,
        (local(), Command::Reinstate { node: node("m2"), as_registered: true }),
        refused("hardware_identity_conflict"),
    );
}

fn require(value: &str) -> (Actor, Command) {
    let (key, value) = ("attestors.require".to_owned(), value.to_owned());
    (local(), Command::SetPolicy(SetPolicy { key, value, confirm: Confirmation::NotAsked }))
}

/// Any of the one list, and all of the other on top.
#[test]
fn a_token_alone_is_not_enough_where_the_hardware_is_demanded_too() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    check(&mut domain, register("m2", &[B], ""), granted(REGISTERED));
    check(&mut domain, require("join-token,hardware"), granted(&["policy.changed"]));
    let hardware_alone = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, hardware_alone, refused("attestor_not_allowed"));
    let with = |domain: &mut Domain, pin: Option<&str>, claimed: Option<HardwareIdentity>| {
        let token = domain.mint_with(|create| create.node = pin.map(node));
        let request = Enroll { claimed, ..domain.request(token) };
        enroll(domain.prepare(request))
    };
    for (pin, claimed, expect) in [
        (None, None, refused("attestor_not_allowed")),
        (None, Some(hardware(&[C], "")), refused("node_not_enrolled")),
        // Two machines, one token.
        (Some("m2"), Some(hardware(&[A], "")), refused("node_not_enrolled")),
        (None, Some(hardware(&[A, B], "")), refused_with("hardware_identity_conflict", ALERT)),
        (None, Some(hardware(&[A], "")), granted(&["host.enrolled"])),
        (None, Some(hardware(&[A], "")), refused_with("already_active", ALERT)),
        // An operator's token for that very node takes its place.
        (Some("m1"), Some(hardware(&[A], "")), granted(&["host.enrolled"])),
        (Some("m2"), Some(hardware(&[B], "")), granted(&["host.enrolled"])),
    ] {
        let ask = with(&mut domain, pin, claimed);
        check(&mut domain, ask, expect);
    }
    assert_eq!(domain.state.nodes.len(), 2, "a token makes no third node");
}

#[test]
fn a_token_of_another_tenant_is_not_for_this_machine() {
    let mut domain = open();
    let acme = domain.tenant("acme");
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    check(&mut domain, require("hardware"), granted(&["policy.changed"]));
    let token = domain.mint_with(|create| create.tenant = acme);
    let request = Enroll { claimed: Some(hardware(&[A], "")), ..domain.request(token) };
    let ask = enroll(domain.prepare(request));
    check(&mut domain, ask, refused("node_not_enrolled"));
    let alone = boot(&mut domain, hardware(&[A], ""));
    check(&mut domain, alone, granted(ENROLLED));
}

#[test]
fn a_machine_enrolls_within_the_limit_a_minute() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    check(&mut domain, register("m2", &[B], ""), granted(REGISTERED));
    domain.policy("enroll.max_per_minute", "1");
    booted(&mut domain, hardware(&[A], ""));
    let second = boot(&mut domain, hardware(&[B], ""));
    check(&mut domain, second, refused("rate_limited"));
    domain.pass(span("1m"));
    booted(&mut domain, hardware(&[B], ""));
}

/// What an operator decided about a node stays, whichever way it enrolls.
#[test]
fn quarantine_and_drain_survive_an_enrollment_by_hardware() {
    let mut domain = open();
    check(&mut domain, register("m1", &[A], ""), granted(REGISTERED));
    let first = booted(&mut domain, hardware(&[A], ""));
    let quarantine = Command::Quarantine { node: first.node.clone(), reason: "odd".to_owned() };
    check(&mut domain, (local(), quarantine), granted(&["host.quarantined"]));
    let drain = Command::Drain { node: first.node.clone(), within: None };
    check(&mut domain, (local(), drain), granted(&["host.draining"]));
    falls_silent(&mut domain, &first.node);
    booted(&mut domain, hardware(&[A], ""));
    let record = &domain.state.nodes[&first.node];
    assert!(record.quarantined && record.draining);
}

fn register_in(tenant: &TenantId, name: &str, macs: &[&str]) -> Command {
    let mut register = register_hardware(name, hardware(macs, ""));
    register.tenant = tenant.clone();
    Command::RegisterHardware(Box::new(register))
}

#[test]
fn a_platform_admin_of_one_tenant_registers_hardware_only_where_policy_names_the_tenant() {
    let mut domain = open();
    let (red, blue) = (domain.tenant("red"), domain.tenant("blue"));
    let admin = domain.operator("ann", Role::PlatformAdmin, only(&["red", "blue"]));
    let first = (admin.clone(), register_in(&red, "m1", &[A]));
    check(&mut domain, first.clone(), refused("forbidden"));
    assert!(may_read(&domain.state, &admin, Act::RegisterHardware).is_err());
    domain.policy("hardware.tenants", "red");
    check(&mut domain, first, granted(REGISTERED));
    check(&mut domain, (admin.clone(), register_in(&blue, "m2", &[B])), refused("forbidden"));
    assert_eq!(may_read(&domain.state, &admin, Act::RegisterHardware), Ok(only(&["red"])));
    check(&mut domain, (local(), register_in(&blue, "m2", &[B])), granted(REGISTERED));
    // A command of an older version, when every tenant's could.
    let Command::RegisterHardware(mut old) = register_in(&blue, "m3", &[C]) else { unreachable!() };
    old.alert = None;
    check(&mut domain, (admin, Command::RegisterHardware(old)), granted(REGISTERED));
}

/// What was registered once is reinstated by the same right, and counts.
#[test]
fn a_machine_is_reinstated_by_whoever_may_register_it() {
    let mut domain = open();
    let red = domain.tenant("red");
    let admin = domain.operator("ann", Role::PlatformAdmin, only(&["red"]));
    domain.policy("hardware.tenants", "red");
    domain.policy("hardware.max_per_tenant", "1");
    check(&mut domain, (admin.clone(), register_in(&red, "m1", &[A])), granted(REGISTERED));
    domain.end(&node("m1"), NodeState::Decommissioned);
    check(&mut domain, (admin.clone(), register_in(&red, "m2", &[B])), granted(REGISTERED));
    let reinstate = |as_registered| Command::Reinstate { node: node("m1"), as_registered };
    check(&mut domain, (admin.clone(), reinstate(true)), refused("hardware_quota"));
    domain.policy("hardware.max_per_tenant", "0");
    domain.policy("hardware.tenants", "");
    check(&mut domain, (admin.clone(), reinstate(true)), refused("forbidden"));
    check(&mut domain, (local(), reinstate(true)), granted(&["host.reinstated"]));
    domain.end(&node("m1"), NodeState::Decommissioned);
    // A command of an older version, when every tenant's could.
    check(&mut domain, (admin, reinstate(false)), granted(&["host.reinstated"]));
}

#[test]
fn the_platform_admins_of_a_tenant_register_as_many_machines_as_policy_allows() {
    let mut domain = open();
    let red = domain.tenant("red");
    let admin = domain.operator("ann", Role::PlatformAdmin, only(&["red"]));
    domain.policy("hardware.tenants", "red");
    domain.policy("hardware.max_per_tenant", "2");
    for (name, address) in [("m1", A), ("m2", B)] {
        check(&mut domain, (admin.clone(), register_in(&red, name, &[address])), granted(REGISTERED));
    }
    let third = || register_in(&red, "m3", &[C]);
    check(&mut domain, (admin.clone(), third()), refused("hardware_quota"));
    domain.end(&node("m1"), NodeState::Decommissioned);
    assert_eq!(domain.state.machines_of(&red), 1);
    check(&mut domain, (admin.clone(), third()), granted(REGISTERED));
    // One that begins a new life counts again, and does not bind operators of all tenants.
    let anew = register_in(&red, "m1", &[A]);
    check(&mut domain, (admin.clone(), anew.clone()), refused("hardware_quota"));
    check(&mut domain, (local(), anew), granted(&["host.reinstated", "host.registered"]));
    assert_eq!(domain.state.machines_of(&red), 3);
    domain.policy("hardware.max_per_tenant", "0");
    check(&mut domain, (admin, register_in(&red, "m4", &["02:00:00:00:00:0d"])), granted(REGISTERED));
}

#[test]
fn hardware_of_another_tenant_is_an_alert_in_both_that_names_neither_and_is_raised_once() {
    let mut domain = open();
    let (red, blue) = (domain.tenant("red"), domain.tenant("blue"));
    domain.policy("hardware.tenants", "red,blue");
    let admin = domain.operator("ann", Role::PlatformAdmin, only(&["blue"]));
    check(&mut domain, (local(), register_in(&red, "red-1", &[A])), granted(REGISTERED));
    let both = refused_with("hardware_identity_conflict", &["alert.raised", "alert.raised"]);
    check(&mut domain, (admin.clone(), register_in(&blue, "blue-1", &[A, B])), both);
    let detail = |domain: &Domain, tenant: &TenantId| {
        let alert = domain.state.alerts.with_subject(AlertKind::HardwareConflict, None, Some(tenant));
        alert.expect("an alert").detail.clone()
    };
    let (ours, theirs) = (detail(&domain, &blue), detail(&domain, &red));
    assert!(ours.contains("blue-1") && !ours.contains("red-1") && !ours.contains("02:"), "{ours}");
    assert!(theirs.contains("red-1") && !theirs.contains("blue") && !theirs.contains("02:"), "{theirs}");
    let again = register_in(&blue, "blue-2", &[A]);
    check(&mut domain, (admin.clone(), again), refused("hardware_identity_conflict"));
    // In one's own tenant it is a mistake, and the answer names the node.
    check(&mut domain, (local(), register_in(&red, "red-2", &[A])), refused("hardware_identity_conflict"));
    // Each tenant's operators acknowledge their own.
    let id = |domain: &Domain, tenant: &TenantId| {
        domain
            .state
            .alerts
            .with_subject(AlertKind::HardwareConflict, None, Some(tenant))
            .expect("an alert")
            .id
    };
    let (own, foreign) = (id(&domain, &blue), id(&domain, &red));
    let acknowledge = |alert| Command::AcknowledgeAlert { alert, dated: true };
    check(&mut domain, (admin.clone(), acknowledge(foreign)), refused("alert_not_found"));
    check(&mut domain, (admin, acknowledge(own)), granted(&["alert.acknowledged"]));
}
