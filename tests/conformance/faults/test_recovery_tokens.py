"""Who keeps recovery tokens, under which profile they are good, and how an operator ends them.

GPU-17, GPU-18, GPU-20, D20.
"""

import certs
import evidence
import hosts
import lost
import native
import probectl
import pytest
import workers
from faults import Patient
from machine import AGENT, run, until
from plane import ControlPlane


@pytest.fixture(scope="module")
def plane(programs):
    """A control plane that takes a second of silence for being lost, and serves every API."""
    with probectl.control_plane() as running:
        running.policy("liveness.grace", "1s")
        yield running


def lines(plane, node: str, *types) -> list[dict]:
    return [line for line in plane.audit() if line["event_type"] in types and line.get("node_id") == node]


def recovers(plane, token: str, **named):
    """Tries until the node has been silent for the grace period."""

    def tried():
        try:
            return lost.recovered(plane, token, **named)
        except native.Refused as refusal:
            assert refusal.code == "recovery_not_needed", refusal
            return None

    return until(tried, "it has been silent for long enough")


# Who keeps them.


def by_plfm(plane) -> tuple:
    host = hosts.enroll(plane)
    return host.id, host.files


def by_probectl(plane) -> tuple:
    agent = probectl.enroll(plane)
    return agent.id, agent.files


def by_taskrun(plane) -> tuple:
    worker = workers.enroll(plane)
    return worker.id, worker.files


def by_profile(name: str):
    def enrolled(plane) -> tuple:
        node = native.enroll(plane, plane.token(profile=name))
        return node.id, node.files

    return enrolled


WITHOUT = {
    "plfm": by_plfm,
    "probectl": by_probectl,
    "taskrun": by_taskrun,
    "a native enrollment with the profile probectl": by_profile("probectl"),
    "a native enrollment with the profile taskrun": by_profile("taskrun"),
    "a native enrollment with the profile taskrun-prod": by_profile("taskrun-prod"),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_certificate_alone_does_not_turn_recovery_on(plane, name):
    """Whoever copied the key of such a node holds it for the life of the certificate, and no recovery token makes that
    longer: neither Confirm, Renew nor Live gives one. Proves GPU-17, GPU-18, D20."""
    node, files = WITHOUT[name](plane)
    with native.door(plane, files) as door:
        told = door.confirm(recovery_wanted=True).recovery
        assert told.ineligible and not told.token and not told.profile.url
        stream = door.live(node, recovery_wanted=True)
        told = stream.next("recovery")
        assert told.ineligible and not told.token
        stream.send(recovery_kept=native.pb.RecoveryKept())
        stream.next("ack")
        stream.close()
        told = door.renew(certs.good_csr(), recovery_wanted=True).recovery
        assert told.ineligible and not told.token
    assert lines(plane, node, "recovery_token.rotated") == []
    shown = plane.node(node)["recovery"]
    assert (shown["eligible"], shown["tokens"]) == (False, 0)


def test_an_enrollment_settles_it_anew(plane):
    """D20: what the node was before does not matter, and what it becomes ends the tokens it had."""
    node, grant = lost.provided(plane)
    shown = plane.node(node.id)["recovery"]
    assert (shown["eligible"], shown["tokens"]) == (True, 1)
    again = native.enroll(plane, plane.token(node=node.id, profile="probectl"))
    assert again.confirm(recovery_wanted=True).recovery.ineligible
    assert lost.refused(plane, grant.token).code == "token_revoked"
    assert plane.node(node.id)["recovery"]["eligible"] is False
    third = native.enroll(plane, plane.token(node=node.id))
    assert lost.noted(third.confirm(recovery_wanted=True).recovery).token
    assert plane.node(node.id)["recovery"]["eligible"] is True


def test_it_is_on_record_after_a_restart():
    """D20."""
    with probectl.control_plane() as plane:
        agent = probectl.enroll(plane)
        plane.kill()
        plane.start()
        with native.door(plane, agent.files) as door:
            assert door.confirm(recovery_wanted=True).recovery.ineligible


def test_the_agent_says_that_its_node_has_no_recovery_and_does_not_ask_again(plane):
    """status and doctor tell the truth and the remedy; nothing is wrong with the host. Proves GPU-18."""
    host = Patient(plane, plane.token(profile="probectl"))
    host.start().wait_connected()
    try:
        until(lambda: host.status().get("recovery_eligible") is False, "it is told")
        status = host.status()
        assert status["recovery_ready"] is False and not set(status["reasons"]), status
        (check,) = [check for check in host.doctor()["checks"] if check["name"] == "recovery"]
        assert check["ok"] and "without recovery" in check["evidence"] and "enroll" in check["warning"], check
        assert not host.token_file().exists()
        # It does not ask for what it was told that it cannot have.
        with native.door(plane, host.files) as door:
            door.confirm()
        assert "no valid recovery token" not in host.whole_log()
        human = run(AGENT, "status", "--dir", host.dir)
        assert "without recovery" in human.out and "keep the daemon running" in human.out, human
    finally:
        host.stop()
    blocked = host.agent("recover")
    assert blocked.code != 0 and blocked.error()["code"] == "recovery_enrollment_blocked", blocked
    assert "enroll" in blocked.error()["hint"]
    host.note_secrets()


# Under which profile.


def test_a_token_is_good_under_its_own_recovery_profile_only(plane):
    """Under another it is no token, and is not used up. Proves GPU-17, D20."""
    node, grant = lost.provided(plane)
    assert lost.refused(plane, grant.token, recovery_profile_id="elsewhere").code == "token_invalid"
    assert lost.refused(plane, grant.token, recovery_profile_id="x" * 200).code == "bad_request"
    back = recovers(plane, grant.token, recovery_profile_id="default")
    assert back.id == node.id
    # An agent of before names none.
    _, second = lost.provided(plane)
    recovers(plane, second.token)


def test_another_recovery_profile_comes_with_a_token_of_its_own():
    """GPU-17, GPU-20, D20: the host gets one on its stream; the one before is good under its own profile until the
    new one is kept, and no longer."""
    with ControlPlane() as plane:
        plane.policy("liveness.grace", "1s")
        node, first = lost.provided(plane)
        plane.stop()
        toml = plane.dir / "enlist.toml"
        toml.write_text(toml.read_text() + '\n[recovery]\nid = "site-b"\n')
        plane.start()
        with node.door() as door:
            stream = door.live(node.id, recovery_kept=first.token_id, recovery_wanted=True)
            second = lost.noted(stream.next("recovery"))
            assert second.token and second.profile.id == "site-b"
            stream.close()
        assert lost.refused(plane, second.token, recovery_profile_id="default").code == "token_invalid"
        assert lost.refused(plane, first.token, recovery_profile_id="site-b").code == "token_invalid"
        node.confirm(recovery_kept=second.token_id)
        assert lost.refused(plane, first.token, recovery_profile_id="default").code == "token_superseded"
        recovers(plane, second.token, recovery_profile_id="site-b")


# Ending them.


def test_an_operator_ends_the_tokens_of_a_node_that_is_well(plane):
    """A copy of one is worth nothing from then on; the host, over its own certificate, has a new one at once and works
    on. Done again it changes nothing. Proves GPU-17, GPU-20."""
    host = Patient(plane, plane.token())
    host.start().wait_connected()
    try:
        copied = host.wait_token()
        node, serial = host.node_id(), host.serial()
        until(lambda: plane.node(node)["recovery"]["token_kept"], "it is kept")
        plane.cli("node", "recovery", "revoke", node)
        assert lost.refused(plane, copied).code == "token_revoked"
        (line,) = lines(plane, node, "recovery_token.revoked")
        assert len(line["recovery_token_ids"]) == 1 and line["actor"].startswith("local:")
        until(lambda: host.token_file().read_text().strip() != copied, "the host has a new one")
        fresh = evidence.token(host.token_file().read_text().strip())
        until(lambda: plane.node(node)["recovery"]["token_kept"], "the new one is kept")
        assert host.connected() and host.serial() == serial
        assert plane.node(node)["recovery"]["tokens"] == 1
        assert lost.refused(plane, copied).code == "token_revoked"
    finally:
        host.stop()
    assert recovers(plane, fresh).id == node
    host.note_secrets()


def test_revoking_tokens_is_done_once_and_by_those_who_may(plane):
    """GPU-20."""
    from operators import make_key

    node, grant = lost.provided(plane)
    path = f"/v1/nodes/{node.id}/recovery/revoke"
    for role, status in (("viewer", 403), ("operator", 200)):
        headers = {"Authorization": f"Bearer {make_key(plane, role)['key']}"}
        assert plane.https("POST", path, {}, headers).status == status
    assert plane.https("POST", path, {}).status == 401
    assert plane.api("POST", path, {}).status == 200
    assert len(lines(plane, node.id, "recovery_token.revoked")) == 1
    assert plane.node(node.id)["recovery"]["tokens"] == 0
    missing = plane.cli("node", "recovery", "revoke", "nobody", ok=False)
    assert missing.code == 3 and missing.error()["code"] == "node_not_found", missing
    # It was not connected: it is given one when it is.
    with node.door() as door:
        stream = door.live(node.id, recovery_kept=grant.token_id, recovery_wanted=True)
        assert lost.noted(stream.next("recovery")).token
        stream.close()


def test_a_token_that_was_revoked_before_it_was_kept_is_not_waited_for(plane):
    """GPU-20: the stream gives the next one."""
    node = native.enroll(plane)
    with node.door() as door:
        stream = door.live(node.id, recovery_wanted=True)
        first = lost.noted(stream.next("recovery"))
        assert plane.api("POST", f"/v1/nodes/{node.id}/recovery/revoke", {}).status == 200
        second = lost.noted(stream.next("recovery"))
        assert second.token and second.token_id != first.token_id
        stream.close()
    assert lost.refused(plane, first.token).code == "token_revoked"
    plane.cli("node", "revoke", node.id)
    assert plane.api("POST", f"/v1/nodes/{node.id}/recovery/revoke", {}).code == "node_revoked"
