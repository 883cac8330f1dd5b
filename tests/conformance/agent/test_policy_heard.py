"""Policy that hosts live by reaches them on the connections that they have."""

import native
import pytest
from daemons import Daemon
from machine import until


@pytest.mark.parametrize("keys", [("liveness.grace",), ("liveness.grace", "liveness.interval"), ("liveness.interval",)])
def test_a_shorter_silence_makes_nobody_inactive(plane_of_its_own, keys):
    """Whatever is lowered first, connected hosts hear of it, follow it, and none is inactive for a moment. Proves PACT-18."""
    plane = plane_of_its_own
    daemons = [Daemon(plane, plane.token()).start() for _ in range(3)]
    try:
        nodes = [daemon.wait_connected().node_id() for daemon in daemons]
        began = [beats(plane, node) for node in nodes]
        for key in keys:
            plane.policy(key, {"liveness.grace": "6s", "liveness.interval": "1s"}[key])
        # By the interval of before there would be one heartbeat in this time.
        until(lambda: min(len(seen()) for seen in began) >= 6, "their heartbeats follow", 28)
        states = {plane.node(node)["state"] for node in nodes}
        assert states == {"active"} and plane.audit("host.inactive") == []
        assert all(daemon.status()["ready"] for daemon in daemons)
    finally:
        for daemon in daemons:
            daemon.stop()
            daemon.note_secrets()


def beats(plane, node: str):
    """The different moments at which a node was seen, as far as anybody looked."""
    known: set = set()

    def look() -> set:
        known.add(plane.node(node)["last_seen"])
        return known

    return look


def test_a_host_that_has_not_heard_is_judged_by_what_it_was_told(plane_of_its_own):
    """One that answers is judged by the new grace period, one that says nothing by that of its welcome."""
    plane = plane_of_its_own
    hears, deaf = native.enroll(plane), native.enroll(plane)
    with hears.door() as one, deaf.door() as other:
        first, second = one.live(hears.id), other.live(deaf.id)
        told = [live.next("welcome") for live in (first, second)]
        assert {(welcome.heartbeat_ms, welcome.grace_ms) for welcome in told} == {(30_000, 300_000)}
        plane.policy("liveness.grace", "3s")
        for live in (first, second):
            welcome = live.next("welcome")
            assert (welcome.heartbeat_ms, welcome.grace_ms) == (1_500, 3_000), welcome
        first.send(heartbeat=native.pb.Heartbeat(interval_ms=1_500))
        first.next("ack")
        second.heartbeat()
        second.next("ack")
        until(lambda: plane.node(hears.id)["state"] == "inactive", "it has heard, and was silent")
        assert plane.node(deaf.id)["state"] == "active", "it was told five minutes, and nothing else"


def test_clock_tolerance_and_drain_are_heard_too(plane_of_its_own):
    """Every span of the welcome; what hosts do not live by wakes nobody."""
    plane = plane_of_its_own
    node = native.enroll(plane)
    with node.door() as door:
        live = door.live(node.id)
        welcome = live.next("welcome")
        assert (welcome.clock_tolerance_ms, welcome.drain_ms) == (300_000, 600_000), welcome
        plane.policy("token.default_ttl", "30m")
        plane.policy("clock.tolerance", "7s")
        assert live.next("welcome").clock_tolerance_ms == 7_000
        plane.policy("renew.drain", "9s")
        assert live.next("welcome").drain_ms == 9_000
