"""A node that has been silent for long is reported: `node_silent`, policy `liveness.silent_after` (D33)."""

import clocks
import native
from machine import until
from streams import Live


def silent(plane, node) -> list[dict]:
    return plane.items(f"/v1/alerts?node={node.id}&kind=node_silent")


def streamed(plane, instance: str = "first-start") -> native.Node:
    """A node that had a live stream."""
    node = native.enroll(plane)
    node.confirm()
    with Live(node, instance):
        until(lambda: plane.node(node.id)["connected"], "it is connected")
    return node


def inactive(plane, node) -> None:
    until(lambda: plane.node(node.id)["state"] == "inactive", "it has fallen silent")


def test_long_silence_is_reported_until_the_node_is_there_again(plane_of_its_own):
    """Raised once after `liveness.silent_after`, cleared by a contact, by the end of the node, by a longer limit, by 0."""
    plane = plane_of_its_own
    listed = {item["key"]: item["value"] for item in plane.api("GET", "/v1/policy").json()["items"]}
    assert listed["liveness.silent_after"] == "1d"
    plane.policy("liveness.grace", "1s")
    nodes = [streamed(plane) for _ in range(4)]
    back, revoked, enrolled, left = nodes
    for node in nodes:
        inactive(plane, node)
        assert silent(plane, node) == []
    plane.policy("liveness.silent_after", "2s")
    for node in nodes:
        (alert,) = until(lambda node=node: silent(plane, node), "the silence was noticed")
        assert alert["count"] == 1 and "inactive since" in alert["detail"], alert
    back.confirm()
    assert silent(plane, back) == []
    plane.api("POST", f"/v1/nodes/{revoked.id}/revoke", {"reason": "lost"})
    assert silent(plane, revoked) == []
    native.enroll(plane, plane.token(node=enrolled.id))
    assert silent(plane, enrolled) == []
    assert len(silent(plane, left)) == 1
    plane.policy("liveness.silent_after", "0")
    until(lambda: not silent(plane, left), "it is switched off")
    plane.policy("liveness.silent_after", "2s")
    until(lambda: silent(plane, left), "it is noticed again")
    for wrong in ("off", "-1", "1ms", ""):
        answer = plane.api("PUT", "/v1/policy", {"key": "liveness.silent_after", "value": wrong})
        assert (answer.status, answer.code) == (400, "policy_value_invalid"), wrong


def test_an_outage_of_the_site_raises_nothing_and_a_daily_restart_hides_nothing(plane_of_its_own):
    """D33: silence counts from when the node could have been heard; what was found before a restart stays found."""
    plane = plane_of_its_own
    plane.policy("liveness.grace", "1s")
    gone, there = streamed(plane), streamed(plane)
    inactive(plane, gone)
    inactive(plane, there)
    plane.policy("liveness.grace", "10m")
    there.confirm()
    assert plane.node(there.id)["state"] == "active"

    def at(hours: float) -> None:
        plane.stop()
        clocks.sweep(plane.process.pid)
        plane.start(env=clocks.shifted(hours))

    at(13)
    plane.policy("liveness.grace", "2s")
    # Nobody heard the one that was there for half a day, because nobody listened.
    inactive(plane, there)
    assert silent(plane, gone) == []
    at(25)
    until(lambda: silent(plane, gone), "a day of silence, in which no process ran for a whole day")
    assert plane.node(there.id)["state"] == "inactive" and silent(plane, there) == []
    at(38)
    until(lambda: silent(plane, there), "its own day is over")
