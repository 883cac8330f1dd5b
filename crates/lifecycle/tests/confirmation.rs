//! What has to be confirmed, and with what.

use crate::support::{
    Domain, NODE, activate, check, contact, granted, hardware, issuer, local, node, refused,
    register_hardware,
};
use lifecycle::names::OperatorName;
use lifecycle::registry::{
    Actor, Applied, Command, Confirmation, NodeState, Rejection, Role, SetPolicy, Tenants,
};

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
    (
        local(),
        Command::RevokeIssuer {
            issuer: issuer("i1"),
            reason: "lost".to_owned(),
            confirm,
            asks_for_holders: false,
        },
    )
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

/// A retiring issuer too has holders that are cut off; one that nobody uses any more is revoked at once.
#[test]
fn an_issuer_in_any_state_is_asked_about_while_somebody_uses_it() {
    let mut domain = Domain::founded();
    let (stays, moves) = (domain.active(), domain.active());
    domain.operator("ann", Role::Viewer, Tenants::All);
    domain.roll("i2");
    let revoke = |confirm, asks_for_holders| {
        let (issuer, reason) = (issuer("i1"), "lost".to_owned());
        (local(), Command::RevokeIssuer { issuer, reason, confirm, asks_for_holders })
    };
    // A renewed node holds its previous certificate, and needs it no more.
    let moved = domain.renew(&moves);
    check(&mut domain, contact(&moved), granted(&["certificate.seen", "certificate.superseded"]));
    for repeated in [None, Some("i2")] {
        let (actor, command) = revoke(asked(repeated), true);
        let applied = domain.give(actor, command);
        assert_eq!(affected(&applied), 1);
        let said = applied.answer.unwrap_err().to_string();
        assert!(said.contains("i1 is retiring") && said.contains("operators affected (1): ann; "), "{said}");
    }
    // Commands of before were not asked about it.
    check(&mut domain.clone(), revoke(asked(None), false), granted(&["ca.revoked"]));
    check(&mut domain.clone(), revoke(asked(Some("i1")), true), granted(&["ca.revoked"]));
    // An operator alone is enough.
    domain.end(&stays.node, NodeState::Revoked);
    let (actor, command) = revoke(asked(None), true);
    assert_eq!(affected(&domain.give(actor, command)), 0);
    let remove = Command::RemoveOperator { name: OperatorName::parse("ann").unwrap(), keys_made: true };
    check(&mut domain, (local(), remove), granted(&["operator.removed"]));
    check(&mut domain, revoke(asked(None), true), granted(&["ca.revoked"]));
}

/// Who verifies the control plane goes by lists of the root, not by the registry.
#[test]
fn the_question_about_a_server_issuer_says_that_nobody_refuses_it_yet() {
    let mut domain = Domain::divided();
    domain.active();
    for (name, at_once) in [("n1", true), ("s1", false)] {
        let (issuer, reason, confirm) = (issuer(name), "lost".to_owned(), asked(None));
        let revoke = Command::RevokeIssuer { issuer, reason, confirm, asks_for_holders: true };
        let said = domain.give(local(), revoke).answer.unwrap_err().to_string();
        assert_eq!(said.contains("refused at once"), at_once, "{said}");
        assert_eq!(said.contains("refuse nothing by this"), !at_once, "{said}");
        assert_eq!(said.contains("nodes affected: "), at_once, "{said}");
    }
}

#[test]
fn giving_up_certificates_that_came_back_is_confirmed_and_giving_up_a_csr_is_not() {
    let mut domain = Domain::divided();
    domain.begin_roll(NODE);
    assert_eq!(domain.state.check_abandon(&asked(None)), Ok(()));
    check(&mut domain, (local(), Command::AbandonRoll), granted(&["ca.abandoned"]));
    domain.prepare_roll(NODE, 2);
    for (repeated, granted) in [(None, false), (Some("n1"), false), (Some("n2"), true)] {
        assert_eq!(domain.state.check_abandon(&asked(repeated)).is_ok(), granted, "{repeated:?}");
    }
    let said = domain.state.check_abandon(&asked(None)).unwrap_err().to_string();
    assert!(said.starts_with("issuer n2 is prepared already") && !said.contains("new root"), "{said}");
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
