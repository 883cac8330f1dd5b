"""The recovery token of a real host: issued, hashed, rotated while the host is well, revoked; whole on disk at any moment."""

import hashlib
import os
import re
import signal

import pytest

import native
from daemons import lasting_port
from faults import Patient, kinds
from machine import need, until
from plane import ControlPlane

TOKEN = re.compile(r"recovery_[A-Za-z0-9_-]{43}")


@pytest.fixture(scope="module")
def plane(programs):
    """A control plane that takes a second of silence for being lost."""
    running = ControlPlane().found()
    # On a port that nobody is given while it is stopped.
    running.fixed = ("--listen", f"127.0.0.1:{lasting_port()}")
    try:
        running.start(*running.fixed)
        running.policy("failures.per_minute", "0")
        running.policy("liveness.interval", "1s")
        running.policy("liveness.grace", "2s")
        yield running
    finally:
        running.close()


@pytest.fixture
def patient(plane):
    made = Patient(plane, plane.token()).start().wait_connected()
    made.wait_token()
    yield made
    made.stop()
    made.note_secrets()


def lines(plane, node: str, kind: str) -> list[dict]:
    return [line for line in plane.audit(kind) if line.get("node_id") == node]


def silent(plane, node: str) -> None:
    until(lambda: plane.node(node)["state"] == "inactive", "its silence is noticed")


def recovers(plane, patient: Patient, node: str):
    """With what lies on its disk."""
    silent(plane, node)
    done = patient.agent("recover")
    patient.note_secrets()
    return done


def test_the_api_issues_hashes_rotates_and_revokes(plane, patient):
    """Proves GPU-20: rotated over mTLS while the host is well, once per renewal; the store has the hash of the newest alone
    in words, and the trail has who and which, never the value; revoking the node ends it."""
    node, first = patient.node_id(), patient.wait_token()
    before = len(lines(plane, node, "recovery_token.rotated"))
    plane.cli("node", "rotate", node)
    until(lambda: patient.wait_token() != first, "another token is on its disk")
    second = patient.wait_token()
    assert TOKEN.fullmatch(second) and patient.token_file().stat().st_mode & 0o7777 == 0o600
    until(lambda: lines(plane, node, "recovery_token.kept")[-1:] != [], "the control plane has heard that it is kept")
    rotated = lines(plane, node, "recovery_token.rotated")
    assert len(rotated) == before + 1 and rotated[-1]["actor"] == f"node:{node}"
    assert kinds(plane, node, "recovery.requested", "recovery.issued") == [], "it was well all the time"
    plane.stop()
    stored = b"".join(path.read_bytes() for path in plane.dir.iterdir() if path.is_file())
    digest = hashlib.sha256(second.encode())
    assert digest.digest() in stored or digest.hexdigest().encode() in stored
    for value in (first, second):
        assert value.encode() not in stored and value.partition("_")[2].encode() not in stored
    plane.start(*plane.fixed)
    patient.well()
    trail = str(plane.audit())
    assert first not in trail and second not in trail and digest.hexdigest() not in trail
    patient.stop()
    silent(plane, node)
    plane.cli("node", "revoke", node, "--reason", "sold")
    with native.door(plane) as door:
        import certs
        import lost

        assert lost.refused(plane, second).code == "node_revoked"
        assert lost.refused(plane, first).code in ("node_revoked", "token_superseded")
        assert door.refused(second, certs.good_csr()).code in ("token_invalid", "token_malformed")
    assert kinds(plane, node, "recovery.issued") == []


@pytest.mark.parametrize("file", ["tokens.json", "token"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_host_that_dies_while_its_token_is_rotated_has_one_that_works(plane, patient, file, moment):
    """Proves GPU-20, GPU-25: killed before and after each of the two renames; the disk holds one whole token, the old or the new,
    and the host recovers with it as it lies there."""
    need("strace")
    node, first = patient.node_id(), patient.wait_token()
    patient.stop()
    place = patient.dir / "recovery" / file
    inode = place.stat().st_ino
    # Killed as it asks for the rename, or held for as long as it takes to be killed once that is done.
    fault = "signal=SIGKILL" if moment == "before" else "delay_exit=8000000"
    fresh = place.with_name(f".{file}.new")
    watched = ("-P", fresh, "-e", "trace=rename", "-e", f"inject=rename:{fault}")
    patient.prefix = ("strace", "-f", "-qq", "-o", "/dev/null", *watched)
    patient.start().wait_connected()
    tracer = patient.process.pid
    (agent,) = map(int, open(f"/proc/{tracer}/task/{tracer}/children").read().split())
    try:
        plane.cli("node", "rotate", node)
        if moment == "after":
            until(lambda: place.stat().st_ino != inode, "the file is renamed", 60)
        else:
            until(lambda: patient.process.poll() is not None, "it is killed at that moment", 60)
    finally:
        if patient.process.poll() is None:
            os.kill(agent, signal.SIGKILL)
            patient.process.wait(60)
    assert patient.process.returncode == -9, patient.log()
    assert (place.stat().st_ino != inode) == (moment == "after")
    patient.prefix = ()
    left = patient.wait_token()
    assert TOKEN.fullmatch(left)
    assert (left == first) == ((file, moment) != ("token", "after")), "the value changes with its own rename"
    done = recovers(plane, patient, node)
    assert done.code == 0, done
    assert done.json()["node_id"] == node
    patient.start()
    patient.well()
    until(lambda: patient.wait_token() not in (first, left), "a spent token is replaced")
    assert plane.node(node)["state"] == "active"
