"""What would cut off many nodes is confirmed first: 409 `confirmation_needed`, a question at a terminal, `--yes` in scripts."""

import native
import pytest

import rolls
from machine import ENLIST
from terminal import Terminal, plain, shown


@pytest.fixture
def fleet(plane_of_its_own):
    """A control plane with three nodes, one of which is gone."""
    plane = plane_of_its_own
    nodes = [native.enroll(plane) for _ in range(3)]
    for node in nodes:
        node.confirm()
    plane.api("POST", f"/v1/nodes/{nodes[2].id}/revoke", {"reason": "lost"})
    return plane


def needed(answer) -> dict:
    """The error of a request that has to be confirmed."""
    assert (answer.status, answer.code) == (409, "confirmation_needed"), answer
    error = answer.json()["error"]
    assert error["retryable"] is False and "confirm" in error["hint"], error
    return error


def issuer(plane, state: str = "active") -> dict:
    """That of nodes."""
    issuers = plane.api("GET", "/v1/ca").json()["issuers"]
    return next(item for item in issuers if (item["use"], item["state"]) == ("node", state))


def policy(plane, value: str, **more):
    return plane.api("PUT", "/v1/policy", {"key": "attestors", "value": value, **more})


def test_revoking_the_only_issuer_is_confirmed_with_its_id(fleet):
    """REST: `affected` is the number of nodes with a certificate of it; another id confirms nothing; then it is done."""
    path = f"/v1/ca/issuers/{issuer(fleet)['id']}/revoke"
    for confirm in ({}, {"confirm": "yes"}, {"confirm": ""}):
        assert needed(fleet.api("POST", path, {"reason": "stolen", **confirm}))["affected"] == 2
    assert issuer(fleet)["state"] == "active" and fleet.audit("ca.revoked") == []
    answer = fleet.api("POST", path, {"reason": "stolen", "confirm": issuer(fleet)["id"]})
    assert answer.status == 200 and answer.json()["issuers"][0]["state"] == "revoked", answer
    # Once more changes nothing, and asks nothing.
    assert fleet.api("POST", path, {}).status == 200


def test_an_issuer_that_nobody_uses_is_revoked_without_a_question(fleet):
    """A prepared one has signed nothing."""
    rolls.prepare(fleet)
    path = f"/v1/ca/issuers/{issuer(fleet, 'prepared')['id']}/revoke"
    assert fleet.api("POST", path, {"reason": "not wanted"}).status == 200


def test_attestors_that_let_nobody_in_are_confirmed_with_the_key(fleet):
    """Without `join-token` nobody can enroll; what leaves a way in, or opens one, asks nothing."""
    assert policy(fleet, "join-token").status == 200
    assert policy(fleet, "join-token,hardware").status == 200
    assert policy(fleet, "join-token,recovery-token").status == 200
    for value in ("hardware", "recovery-token", "hardware,recovery-token"):
        error = needed(policy(fleet, value))
        assert error["affected"] == (2 if value == "hardware" else error["affected"]) and error["affected"] <= 2, error
        needed(policy(fleet, value, confirm="token.max_ttl"))
    assert fleet.audit("policy.changed")[-1]["new"] == "join-token,recovery-token"
    assert policy(fleet, "hardware", confirm="attestors").json() == {"key": "attestors", "value": "hardware"}
    assert policy(fleet, "join-token,recovery-token").status == 200
    assert fleet.api("PUT", "/v1/policy", {"key": "token.max_ttl", "value": "1h"}).status == 200


def test_a_forced_activation_is_confirmed_with_the_id(fleet):
    """Asked only where it overrides something: nodes without the new trust bundle."""
    rolls.prepare(fleet)
    prepared = issuer(fleet, "prepared")["id"]
    refused = fleet.api("POST", "/v1/ca/roll/activate", {})
    assert (refused.status, refused.code) == (409, "not_adopted")
    assert needed(fleet.api("POST", "/v1/ca/roll/activate", {"force": True}))["affected"] == 2
    assert issuer(fleet, "prepared")["id"] == prepared
    assert fleet.api("POST", "/v1/ca/roll/activate", {"force": True, "confirm": prepared}).status == 200
    assert issuer(fleet)["id"] == prepared


def test_scripts_say_yes_or_are_refused(fleet):
    """CLI without a terminal: exit 3 with the remedy and the number of nodes; `--yes` does it."""
    commands = [("policy", "set", "attestors", "hardware"), ("ca", "revoke", issuer(fleet)["id"], "--reason", "stolen")]
    for command in commands:
        refused = fleet.cli(*command, ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "confirmation_needed"), refused
        assert refused.error()["affected"] == 2 and "--yes" in refused.error()["hint"], refused
        fleet.cli(*command, "--yes")
    assert fleet.cli("policy", "set", "attestors", "join-token", "--yes").json()["value"] == "join-token"


def test_a_forced_activation_in_a_script_says_yes(fleet):
    rolls.prepare(fleet)
    refused = fleet.cli("ca", "roll", "activate", "--force", ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "confirmation_needed"), refused
    fleet.cli("ca", "roll", "activate", "--force", "--yes")
    assert rolls.states(fleet) == ["active", "retiring"]


@pytest.mark.parametrize("answer", ["n", "", "yes"])
def test_a_terminal_asks_and_names_the_number_of_nodes(fleet, answer):
    """Anything but y or yes changes nothing: exit 3."""
    command = (ENLIST, "ca", "revoke", issuer(fleet)["id"], "--reason", "stolen", "--dir", fleet.dir)
    with Terminal(*command) as terminal:
        asked = terminal.until("Continue? [y/N] ")
        assert "nodes affected: 2" in " ".join(asked.split()), asked
        terminal.type(answer + "\n")
        assert terminal.end() == (0 if answer == "yes" else 3), terminal.written
    revoked = fleet.audit("ca.revoked")
    assert len(revoked) == (1 if answer == "yes" else 0)
    if answer != "yes":
        assert "nothing was changed" in terminal.read()


@pytest.mark.parametrize("columns", [80, 60])
def test_a_question_fits_the_terminal_and_is_left_with_its_line_ended(fleet, columns):
    """Ctrl-D is no answer: what is said then begins at the left."""
    rolls.prepare(fleet)
    command = (ENLIST, "ca", "roll", "activate", "--force", "--dir", fleet.dir)
    with Terminal(*command, columns=columns) as terminal:
        asked = " ".join(terminal.until("Continue? [y/N] ").split())
        assert "hosts go on as before" in asked, asked
        terminal.type("\x04")
        assert terminal.end() == 3, terminal.written
        lines = terminal.lines()
        assert not terminal.too_wide() and "Continue? [y/N] " in lines, lines
        assert [line for line in lines if line.startswith("error: confirmation_needed")], lines


@pytest.mark.parametrize("columns", [80, 60])
def test_what_follows_a_revoked_issuer_fits_the_terminal(fleet, columns):
    """Sentences are broken between words, and the command in them is not."""
    command = (ENLIST, "ca", "revoke", issuer(fleet)["id"], "--yes", "--dir", fleet.dir)
    done = shown(*command, columns=columns)
    # Only a word that is longer than a line is: the pin.
    assert all(len(line.split()) == 1 for line in done.too_wide()), done.too_wide()
    assert "`enlist ca roll prepare`" in plain(done.written), done.lines()


def test_nothing_is_asked_about_a_node(fleet):
    """Quarantining, decommissioning and revoking a node take no confirmation, all three on the command line."""
    for act in ("quarantine", "decommission", "revoke"):
        node = native.enroll(fleet)
        node.confirm()
        fleet.cli("node", act, node.id)
