"""SPIRE is gone for good: the host is on its own certificate while its SVID is still good, and its stream has no gap."""

import time

import pytest
from daemons import Daemon
from false_spire import FalseSpire, FalseSpireAgent
from machine import until
from plane import ControlPlane
from presence import Presence
from spires import accepts

LIFE = 50.0
"""Seconds. The agent leaves it over seven seconds before its end, which is time enough on a slow machine."""


@pytest.fixture(scope="module")
def spire():
    return FalseSpire()


@pytest.fixture(scope="module")
def plane(spire, programs):
    running = ControlPlane().found()
    accepts(running, spire)
    running.start().policy("failures.per_minute", "0")
    yield running
    running.close()


def settled(plane, daemon, node: str) -> bool:
    shown = plane.node(node)
    return daemon.is_confirmed() and shown["connected"] and shown["identity_provider"] == "spire"


@pytest.mark.parametrize("how", ["its socket is removed", "it says nothing more"])
def test_the_certificate_of_the_domain_takes_over_before_the_svid_ends(spire, plane, how):
    """Proves PACT-37, PACT-42."""
    node = "web-1" if how == "its socket is removed" else "web-2"
    plane.cli("node", "register", node, "--mac", f"52:54:00:12:34:5{node[-1]}")
    api = FalseSpireAgent(spire, f"/enlist/{node}", LIFE)
    daemon = Daemon(plane, ENLIST_AGENT_SPIRE_SOCKET=f"unix://{api.path}").start()
    try:
        until(lambda: settled(plane, daemon, node), "it is connected by its SVID, and its own certificate is confirmed")
        with Presence(plane, node) as presence:
            if how == "its socket is removed":
                api.close()
            else:
                api.hang()
            fell = presence.since("control-plane", LIFE + 60)
            ends = presence.ends["spire"]
            assert fell < ends, f"{fell - ends:.1f} s after the end of the SVID"
            assert ends - fell < LIFE / 2, "it is left when it is about to end, not when SPIRE goes"
            # Nothing comes of the SVID's end.
            until(lambda: time.time() > ends + 1, "the SVID has ended")
        assert presence.longest <= 1.0, f"away for {presence.longest:.2f} s"
        assert [identity for _, identity in presence.changes] == ["spire", "control-plane"]
        status = daemon.status()
        assert (status["identity_provider"], status["channel"]) == ("control-plane", "up"), status
        assert status["spiffe_id"] == f"spiffe://test.example/tenant/default/agent/{node}"
        print(f"\n{how}: on its own certificate {ends - fell:.1f} s before the SVID's end, away for {presence.longest:.2f} s at most")
    finally:
        daemon.stop()
        daemon.note_secrets()
        api.close()
