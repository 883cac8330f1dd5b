"""`enlist-agent status`: exit 0 says that the host is ready, and nothing else does."""

import pytest

from agents import enroll
from daemons import Daemon
from machine import AGENT, run, until


def status(directory) -> tuple[int, dict]:
    done = run(AGENT, "status", "--dir", directory, "--json")
    told = done.json()
    assert done.code == (0 if told["ready"] else 1), done
    assert told["ready"] == (not told["reasons"]), done
    return done.code, told


def test_a_host_without_a_daemon_is_not_ready(plane, place):
    """An identity that nobody uses or renews: daemon_stopped, and exit 1."""
    assert enroll(plane, place / "a", token=plane.token()).code == 0
    code, told = status(place / "a")
    assert code == 1 and told["reasons"] == ["daemon_stopped"] and told["state"] == "enrolled", told
    people = run(AGENT, "status", "--dir", place / "a")
    assert people.code == 1 and "daemon_stopped" in people.out and "enlist-agent run" in people.out, people


@pytest.fixture
def daemon(plane):
    made = Daemon(plane, plane.token()).start().wait_connected()
    yield made
    made.stop()
    made.note_secrets()


def test_a_daemon_that_stops(plane, daemon):
    """Ready while it runs; not ready from the moment it has stopped, however it stopped."""
    until(lambda: status(daemon.dir)[0] == 0, "it is ready")
    assert daemon.stop() == 0
    assert status(daemon.dir)[1]["reasons"] == ["daemon_stopped"]
    daemon.start().wait_connected()
    until(lambda: status(daemon.dir)[0] == 0, "it is ready again")
    daemon.kill()
    assert status(daemon.dir)[1]["reasons"] == ["daemon_stopped"], "its socket lies there, and nobody answers"


def test_a_node_in_quarantine(plane, daemon):
    """Every command tells it: `status` exits 1, `doctor` names its class, `recover` is refused, and `run` stays connected.

    D36.
    """
    until(lambda: status(daemon.dir)[1]["recovery_ready"], "it has what a recovery takes")
    node = daemon.node_id()
    plane.cli("node", "quarantine", node, "--reason", "a look at it")
    until(lambda: status(daemon.dir)[1]["reasons"] == ["quarantined"], "status tells it")
    code, told = status(daemon.dir)
    assert code == 1 and told["state"] == "active" and told["channel"] == "up", told
    people = run(AGENT, "status", "--dir", daemon.dir)
    assert people.code == 1 and "enlist node release" in people.out, people
    examined = run(AGENT, "doctor", "--dir", daemon.dir, "--json")
    faults = {check["name"]: check["class"] for check in examined.json()["checks"] if not check["ok"]}
    assert examined.code == 1 and faults == {"identity": "identity_revoked_or_fenced"}, examined
    assert daemon.stop() == 0
    code, told = status(daemon.dir)
    assert code == 1 and told["reasons"] == ["daemon_stopped"], told
    refused = run(AGENT, "recover", "--dir", daemon.dir, "--json", env=daemon.environment)
    assert refused.code == 3 and refused.error()["code"] == "node_quarantined", refused
    daemon.start().wait_connected()
    plane.cli("node", "release", node)
    until(lambda: status(daemon.dir)[0] == 0, "it is ready again")
