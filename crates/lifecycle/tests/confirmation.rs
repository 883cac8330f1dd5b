//! What has to be confirmed, and with what.

use crate::support::{
    Domain, activate, check, granted, hardware, issuer, local, node, refused, register_hardware,
};
use lifecycle::registry::{Actor, Applied, Command, Confirmation, NodeState, Rejection, SetPolicy};

fn asked(repeated: Option<&str>) -> Confirmation {
    Confirmation::Asked(repeated.map(ToOwned::to_owned))
}

fn attestors(value: &str, confirm: Confirmation) -> (Actor, Command) {
    let (key, value) = ("attestors".to_owned(), value.to_owned());
    (local(), Command::SetPolicy(SetPolicy { key, value, confirm }))
}

fn require(value: &str, confirm: Confirmation) -> (Actor, Command) {
    let (key, value) = ("attestors.require".to_owned(), value.to_owned());
    (local(), Command::SetPolicy(SetPolicy { key, value, confirm }))
}

fn revoke(confirm: Confirmation) -> (Actor, Command) {
    (local(), Command::RevokeIssuer { issuer: issuer("i1"), reason: "lost".to_owned(), confirm })
}

fn affected(applied: &Applied) -> u64 {
    match &applied.answer {
        Err(Rejection::ConfirmationNeeded { affected, .. }) => *affected,
        other => panic!("not asked: {other:?}"),
    }
}

#[test]
fn the_only_issuer_that_signs_is_revoked_by_whoever_names_it_twice() {
    let mut domain = Domain::founded();
    let (_, gone) = (domain.active(), domain.active());
    domain.end(&gone.node, NodeState::Revoked);
    for repeated in [None, Some(""), Some("i2")] {
        let (actor, command) = revoke(asked(repeated));
        assert_eq!(affected(&domain.give(actor, command)), 1);
    }
    check(&mut domain, revoke(asked(Some("i1"))), granted(&["ca.revoked"]));
    check(&mut domain, revoke(asked(None)), granted(&[]));
}

#[test]
fn attestors_that_let_nobody_in_are_confirmed() {
    let mut domain = Domain::founded();
    domain.active();
    for (value, confirm, expect) in [
        ("join-token", asked(None), granted(&["policy.changed"])),
        ("join-token,recovery-token", asked(None), granted(&["policy.changed"])),
        ("recovery-token", asked(None), refused("confirmation_needed")),
        ("hardware", asked(Some("clone")), refused("confirmation_needed")),
        ("recovery-token", asked(Some("attestors")), granted(&["policy.changed"])),
        // Who could recover cannot do that either.
        ("hardware", asked(None), refused("confirmation_needed")),
        ("hardware", asked(Some("attestors")), granted(&["policy.changed"])),
        ("hardware,recovery-token", asked(None), granted(&["policy.changed"])),
        ("join-token", asked(None), granted(&["policy.changed"])),
    ] {
        check(&mut domain, attestors(value, confirm), expect);
    }
}

/// Hardware is a way in for machines that are registered; what every enrollment must bring can close it again.
#[test]
fn hardware_lets_hosts_in_once_a_machine_is_registered() {
    let mut domain = Domain::founded();
    check(&mut domain, require("hardware", asked(None)), refused("confirmation_needed"));
    check(&mut domain, attestors("hardware", asked(None)), refused("confirmation_needed"));
    let register = register_hardware("m1", hardware(&["02:00:00:00:00:01"], ""));
    let register = Command::RegisterHardware(Box::new(register));
    check(&mut domain, (local(), register), granted(&["host.registered"]));
    for (change, expect) in [
        (require("hardware", asked(None)), granted(&["policy.changed"])),
        (attestors("hardware", asked(None)), granted(&["policy.changed"])),
        // With a token and the hardware.
        (require("join-token,hardware", asked(None)), granted(&["policy.changed"])),
        (require("", asked(None)), granted(&["policy.changed"])),
        (attestors("recovery-token", asked(None)), refused("confirmation_needed")),
    ] {
        check(&mut domain, change, expect);
    }
    // The only machine that could come is gone: nothing is lost by another list that lets nobody in.
    domain.end(&node("m1"), NodeState::Revoked);
    check(&mut domain, attestors("recovery-token", asked(None)), granted(&["policy.changed"]));
    check(&mut domain, attestors("hardware", asked(None)), refused("confirmation_needed"));
}

#[test]
fn a_forced_activation_is_confirmed_where_nodes_cannot_follow() {
    let mut domain = Domain::founded();
    domain.active();
    domain.prepare_issuer("i2");
    let force = |confirm| match activate("i2", true) {
        Command::ActivateIssuer(mut command) => {
            command.confirm = confirm;
            (local(), Command::ActivateIssuer(command))
        }
        other => panic!("{other:?}"),
    };
    let (actor, command) = force(asked(None));
    assert_eq!(affected(&domain.give(actor, command)), 1);
    check(&mut domain, force(asked(Some("i2"))), granted(&["ca.activated"]));
}

#[test]
fn commands_of_older_versions_were_never_asked() {
    let mut domain = Domain::founded();
    domain.active();
    check(&mut domain, attestors("hardware", Confirmation::NotAsked), granted(&["policy.changed"]));
    check(&mut domain, revoke(Confirmation::NotAsked), granted(&["ca.revoked"]));
}
