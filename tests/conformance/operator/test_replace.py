"""Who takes the place of a living node is asked before, and seen after: `node_connected`, `node_replaced`, `clone_suspected`."""

import clocks
import native
import probectl
import workers
from machine import until
from streams import Live


def active(plane) -> native.Node:
    node = native.enroll(plane)
    node.confirm()
    return node


def alerts(plane, node_id: str, kind: str) -> list[dict]:
    return plane.items(f"/v1/alerts?node={node_id}&kind={kind}")


def connected(plane, node_id: str) -> bool:
    return plane.node(node_id)["connected"]


def test_a_token_for_a_connected_node_must_be_meant_to_replace_it(plane):
    """REST: 409 `node_connected` says since when and from where; `replace` mints it, and the audit line says so."""
    node = active(plane)
    before = len(plane.items("/v1/tokens?all=true"))
    with Live(node):
        answer = plane.api("POST", "/v1/tokens", {"node": node.id})
        assert (answer.status, answer.code) == (409, "node_connected"), answer
        error = answer.json()["error"]
        assert "from 127.0.0.1" in error["message"] and "since 20" in error["message"], error
        assert "--replace" in error["hint"] and error["retryable"] is False, error
        assert len(plane.items("/v1/tokens?all=true")) == before, "a token was made all the same"
        minted = plane.mint(node=node.id, replace=True)
    until(lambda: not connected(plane, node.id), "the stream has ended")
    plain = plane.mint(node=node.id)
    lines = {line["token_id"]: line for line in plane.audit("enrollment_token.created")}
    assert lines[minted["token_id"]]["replace"] is True
    assert "replace" not in lines[plain["token_id"]]


def test_a_token_for_a_connected_node_on_the_command_line(plane):
    """CLI: exit 3 with code and remedy; `--replace` mints it, and needs `--node`."""
    node = active(plane)
    with Live(node):
        refused = plane.cli("token", "create", "--node", node.id, ok=False)
        assert (refused.code, refused.error()["code"]) == (3, "node_connected"), refused
        assert "127.0.0.1" in refused.error()["message"] and "--replace" in refused.error()["hint"], refused
        assert plane.cli("token", "create", "--node", node.id, "--replace").json()["node"] == node.id
    assert plane.cli("token", "create", "--replace", ok=False).code == 2
    assert plane.api("POST", "/v1/tokens", {"replace": True}).status == 400


def test_a_node_that_is_not_active_is_not_asked_about(plane):
    """Only a host that would lose its place is: not one that never was there, nor one that has gone."""
    node = native.enroll(plane)
    assert plane.mint(node=node.id)["node"] == node.id
    assert plane.mint(node="never-seen")["node"] == "never-seen"


def test_an_enrollment_that_evicts_a_living_node_is_reported(plane):
    """`node_replaced` names address and token; enrolling what is not living raises nothing; `ack` leaves it open."""
    node = active(plane)
    minted = plane.mint(node=node.id)
    again = native.enroll(plane, minted["token"])
    assert again.id == node.id
    (alert,) = alerts(plane, node.id, "node_replaced")
    assert alert["count"] == 1 and "127.0.0.1" in alert["detail"] and minted["token_id"] in alert["detail"], alert
    # Nobody has shown the new certificate: there is no host that loses its place.
    native.enroll(plane, plane.token(node=node.id)).confirm()
    (same,) = alerts(plane, node.id, "node_replaced")
    assert same == alert
    native.enroll(plane, plane.token(node=node.id))
    (counted,) = alerts(plane, node.id, "node_replaced")
    assert (counted["alert_id"], counted["count"]) == (alert["alert_id"], 2)
    assert plane.api("POST", f"/v1/alerts/{alert['alert_id']}/ack").json()["acknowledged"] is True
    assert len(alerts(plane, node.id, "node_replaced")) == 1
    plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "lost"})
    assert alerts(plane, node.id, "node_replaced") == []


def test_the_mints_of_other_systems_never_ask_and_the_alert_is_raised_all_the_same():
    """probectl's and TaskRun's tokens for a connected node are minted as before; redeemed, they raise `node_replaced`."""
    with probectl.control_plane() as plane:
        agent = probectl.enroll(plane)
        agent.speak()
        with Live(agent):
            token = probectl.token(plane, agent_id=agent.id)
            assert probectl.enroll(plane, token).id == agent.id
        assert len(alerts(plane, agent.id, "node_replaced")) == 1

        worker = workers.enroll(plane, id="w-1")
        with native.door(plane, worker.files) as door:
            door.confirm()
        with Live(worker):
            assert workers.enroll(plane, node=worker.id).id == worker.id
        assert len(alerts(plane, worker.id, "node_replaced")) == 1


def suspected(plane) -> native.Node:
    """A node whose identity seems to be in use twice."""
    node = active(plane)
    with node.door() as door:
        for instance in ("first", "second", "first"):
            live = door.live(node.id, instance=instance)
            live.next("welcome")
            live.close()
    until(lambda: alerts(plane, node.id, "clone_suspected"), "the copy was noticed")
    until(lambda: not connected(plane, node.id), "the streams have ended")
    return node


def test_an_enrollment_ends_no_suspicion_of_a_copy(plane):
    """`clone_suspected` stays when somebody enrolls the node again; release ends it, and so does reinstatement."""
    node = suspected(plane)
    (alert,) = alerts(plane, node.id, "clone_suspected")
    native.enroll(plane, plane.token(node=node.id)).confirm()
    assert alerts(plane, node.id, "clone_suspected") == [alert]
    plane.api("POST", f"/v1/nodes/{node.id}/release")
    assert alerts(plane, node.id, "clone_suspected") == []

    node = suspected(plane)
    plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "copied"})
    assert len(alerts(plane, node.id, "clone_suspected")) == 1
    plane.api("POST", f"/v1/nodes/{node.id}/reinstate")
    assert alerts(plane, node.id, "clone_suspected") == []


def test_a_suspicion_ends_a_quiet_day_after_it_was_acknowledged(plane_of_its_own):
    """The day begins with the acknowledgement, however old the alert is."""
    plane = plane_of_its_own
    node, other = suspected(plane), suspected(plane)

    def at(hours: float) -> None:
        plane.stop()
        clocks.sweep(plane.process.pid)
        plane.start(env=clocks.shifted(hours))

    def acknowledge(node) -> None:
        (alert,) = alerts(plane, node.id, "clone_suspected")
        assert plane.api("POST", f"/v1/alerts/{alert['alert_id']}/ack").status == 200

    def tidied() -> None:
        """Housekeeping has looked since: it expires a token that is made now."""
        minted = plane.mint(expires="10s")
        until(lambda: plane.token_state(minted["token_id"]) == "expired", "the token has expired")
        expired = lambda: any(line["token_id"] == minted["token_id"] for line in plane.audit("enrollment_token.expired"))
        until(expired, "housekeeping has looked")

    acknowledge(other)
    at(30)
    until(lambda: not alerts(plane, other.id, "clone_suspected"), "a day after its acknowledgement")
    acknowledge(node)
    tidied()
    assert len(alerts(plane, node.id, "clone_suspected")) == 1, "it was acknowledged just now"
    at(55)
    until(lambda: not alerts(plane, node.id, "clone_suspected"), "a day after its acknowledgement")
