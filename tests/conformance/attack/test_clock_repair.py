"""A domain that a wrong clock has carried far ahead, and the act that brings it back."""

import signal
import subprocess
import time

import pytest

import certs
import native
import operators
from clocks import Clock, sweep
from daemons import lasting_port
from faults import Patient
from machine import ENLIST, clean_env, run, until
from plane import ControlPlane


@pytest.fixture
def poisoned(programs):
    """Stopped, its last entry 400 days ahead, with what is to stay refused and what is to come back."""
    plane = ControlPlane().found()
    try:
        poison(plane)
        yield plane
    finally:
        plane.close()
        if plane.process:
            sweep(plane.process.pid)


def poison(plane) -> None:
    plane.port_argument = ("--listen", f"127.0.0.1:{lasting_port()}")
    plane.start(*plane.port_argument)
    plane.policy("failures.per_minute", "0")
    plane.policy("profile.default.lifetime", "10d")
    plane.policy("renew.drain", "30d")
    plane.good = native.enroll(plane)
    plane.good.confirm()
    plane.revoked = native.enroll(plane)
    plane.revoked.confirm()
    assert plane.api("POST", f"/v1/nodes/{plane.revoked.id}/revoke", {}).status == 200
    plane.superseded = native.enroll(plane)
    plane.superseded.confirm()
    plane.successor = plane.superseded.renewed()
    plane.successor.confirm()
    assert native.alert(plane, plane.superseded.files) is None, "in its grace"
    plane.minted = plane.mint(expires="24h")
    plane.key = operators.make_key(plane, "viewer")["key"]
    plane.stop()
    # Beyond the end of the issuer it would not start.
    clock = Clock("+300d")
    plane.start(*plane.port_argument, "--accept-clock", env=clock.env)
    clock.set("+400d")
    plane.cli("server", "clock", "accept", "--yes")
    plane.policy("renew.drain", "10m")
    plane.stop()
    sweep(plane.process.pid)


def test_a_poisoned_domain_is_brought_back_and_nothing_is_revived(poisoned):
    """Hosts whose certificates are good by the calendar are in again, the issuer signs, nodes enroll and renew; what was
    denied, superseded or void stays so. The act says what it will do, and is on record.

    Proves I3, I13, D33.
    """
    refused = poisoned.run_to_end()
    assert refused.code == 1 and "clock repair" in refused.err, refused
    command = ("server", "clock", "repair", "--dir", poisoned.dir, "--json")
    unasked = run(ENLIST, *command)
    assert unasked.code == 3 and unasked.error()["code"] == "confirmation_needed", unasked
    assert "1 superseded certificates denied" in unasked.error()["message"], unasked
    assert poisoned.run_to_end().code == 1, "nothing was changed"
    done = run(ENLIST, *command, "--yes")
    assert done.code == 0, done
    told = done.json()
    assert told["repaired"] and told["superseded_denied"] == 1 and told["tokens_voided"] == 1, told
    again = run(ENLIST, *command, "--yes")
    assert again.code == 0 and not again.json()["repaired"], again

    poisoned.start(*poisoned.port_argument)
    assert poisoned.ready_line()
    assert native.alert(poisoned, poisoned.good.files) is None
    assert native.alert(poisoned, poisoned.successor.files) is None
    for refused in (poisoned.revoked, poisoned.superseded):
        assert "REVOKED" in native.alert(poisoned, refused.files), refused.id
    with native.door(poisoned) as door:
        assert door.refused(poisoned.minted["token"], certs.good_csr()).code == "token_expired"
    key = poisoned.https("GET", "/v1/nodes", headers={"Authorization": f"Bearer {poisoned.key}"})
    assert key.status == 401, key
    poisoned.good.renewed().confirm()
    native.enroll(poisoned).confirm()
    (line,) = poisoned.audit("clock.repaired")
    assert line["actor"].startswith("local:") and line["offset"].startswith("-") and line["from"] > line["to"], line
    assert poisoned.cli("audit", "verify").json()["ok"]
    poisoned.restart(*poisoned.port_argument)
    host = Patient(poisoned, poisoned.token()).start()
    try:
        host.wait_connected()
        serial = host.serial()
        assert poisoned.api("POST", f"/v1/nodes/{host.node_id()}/rotate", {}).status == 200
        until(lambda: host.serial() != serial, "a node renews")
    finally:
        host.stop()
        host.note_secrets()


def test_a_start_far_ahead_forgets_no_revoked_certificate(programs):
    """Within 30 days nobody is asked: by such a clock a revoked certificate is over, and would be forgotten; after the repair it
    would be good again, and the revocation list would not name it.

    Proves I3.
    """
    plane = ControlPlane().found()
    try:
        port = ("--listen", f"127.0.0.1:{lasting_port()}")
        plane.start(*port)
        plane.policy("profile.default.lifetime", "10d")
        stolen = native.enroll(plane)
        stolen.confirm()
        stolen.renewed().confirm()
        assert plane.api("POST", f"/v1/nodes/{stolen.id}/revoke", {}).status == 200
        plane.stop()
        plane.start(*port, env=Clock("+20d").env)
        began = time.monotonic()
        # Housekeeping comes every few seconds; that it leaves something alone shows only by its having been.
        until(lambda: time.monotonic() - began > 15, "housekeeping has been")
        assert plane.audit("registry.tidied") == []
        plane.stop()
        sweep(plane.process.pid)
        assert run(ENLIST, "server", "clock", "repair", "--dir", plane.dir, "--yes").code == 0
        plane.start(*port)
        assert "REVOKED" in native.alert(plane, stolen.files)
    finally:
        plane.close()
        sweep(plane.process.pid)


def test_a_repair_that_is_killed_is_repeated(poisoned):
    """At whatever moment it ends, the directory is repaired by the same command, and starts. Proves I10, D33."""
    command = [str(ENLIST), "server", "clock", "repair", "--dir", str(poisoned.dir), "--yes", "--json"]
    for pause in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3):
        begun = subprocess.Popen(command, env=clean_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            begun.wait(pause)
        except subprocess.TimeoutExpired:
            begun.send_signal(signal.SIGKILL)
            begun.wait()
    done = run(*command)
    assert done.code == 0, done
    poisoned.start(*poisoned.port_argument)
    assert len(poisoned.audit("clock.repaired")) == 1
    assert native.alert(poisoned, poisoned.good.files) is None
    native.enroll(poisoned).confirm()


def test_a_running_domain_is_not_repaired(plane):
    """The lock of the directory is somebody else's."""
    done = run(ENLIST, "server", "clock", "repair", "--dir", plane.dir, "--yes", "--json")
    assert done.code == 1 and done.error()["code"] == "directory_in_use", done
