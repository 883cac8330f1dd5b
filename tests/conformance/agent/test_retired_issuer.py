"""Hosts below a root that was retired by force: no control plane knows their issuer any more, and they come back by themselves. D13, D34."""

import datetime
import time

import pytest

import certs
from daemons import lasting_port
from faults import Patient, kinds
from machine import AGENT, run, until
from plane import ControlPlane
from rolls import prepare_root, roots

GRACE = 5


@pytest.fixture
def plane(programs):
    plane = ControlPlane().found()
    plane.where = ("--listen", f"127.0.0.1:{lasting_port()}")
    plane.start(*plane.where)
    plane.policy("failures.per_minute", "0")
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", f"{GRACE}s")
    yield plane
    plane.close()


@pytest.fixture
def host(plane):
    """Connected, with a recovery token."""
    host = Patient(plane, plane.token()).start()
    host.wait_connected()
    host.wait_token()
    until(lambda: host.status()["recovery_ready"], "it has a recovery token")
    yield host
    host.stop()
    host.note_secrets()


def retire_by_force(plane) -> list:
    """The root is rolled without waiting for anybody: what its keeper sent back, the new root first."""
    answer, _ = prepare_root(plane)
    plane.cli("ca", "roll", "activate", "--force", "--yes")
    until(lambda: plane.cli("ca", "roll", "retire", "--force", "--yes", ok=False).code == 0, "the control plane itself has moved")
    assert roots(plane) == ["retired", "active"]
    return certs.certificates(answer.read_bytes())


def is_under(host, new: list) -> bool:
    """Its certificate is of a new issuer, and it trusts the new root alone."""
    leaf = certs.certificate(host.files[0].read_bytes())
    trusted = certs.certificates((host.current / "bundle.pem").read_bytes())
    by_subject = leaf.issuer in [one.subject for one in new[1:]]
    return by_subject and [certs.fingerprint(one) for one in trusted] == [certs.fingerprint(new[0])]


def came_back(plane, host, node: str, new: list) -> None:
    host.well(90)
    until(lambda: is_under(host, new), "it is under the new root")
    assert host.node_id() == node and host.keys_match()
    assert kinds(plane, node, "recovery.issued") == ["recovery.issued"], "one recovery"
    until(lambda: plane.node(node)["state"] == "active", "its node is active")
    until(lambda: host.status()["recovery_ready"], "it has the next recovery token")


def test_a_host_that_was_away_during_a_forced_retirement_comes_back_by_itself(plane, host):
    """After the grace period and no sooner, with a certificate that is far from its end; meanwhile it says what is wrong."""
    node, serial = host.node_id(), host.serial()
    leaf = certs.certificate(host.files[0].read_bytes())
    assert host.stop() == 0
    new = retire_by_force(plane)
    assert not is_under(host, new)
    began = time.monotonic()
    host.start()
    until(lambda: "does not know the issuer" in host.whole_log(), "it is told why it cannot connect")
    assert "was retired" in host.whole_log() and "`enlist-agent recover`" in host.whole_log()
    came_back(plane, host, node, new)
    assert time.monotonic() - began >= GRACE, "another replica might have known the issuer"
    assert host.serial() != serial and not (host.dir / "revoked").exists()
    assert leaf.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > datetime.timedelta(minutes=10)


def test_until_it_recovers_everybody_names_the_real_reason(plane):
    """`status`, `doctor` and `node show`: its issuer was retired, and when it recovers by itself; nobody sends anyone to the network."""
    plane.policy("liveness.grace", "1h")
    host = Patient(plane, plane.token()).start()
    try:
        host.wait_connected()
        host.wait_token()
        until(lambda: host.status()["recovery_ready"], "it has a recovery token")
        began = datetime.datetime.now(datetime.UTC)
        retire_by_force(plane)
        until(lambda: "issuer_unknown" in host.status()["reasons"], "its status names the reason")
        at = datetime.datetime.fromisoformat(host.status()["recovers_at"])
        assert datetime.timedelta(minutes=59) < at - began < datetime.timedelta(minutes=80), at
        told = " ".join(run(AGENT, "status", "--dir", host.dir, env=host.environment).out.split())
        assert "recovers by itself at" in told and "was retired" in told and "check the network" not in told, told
        (fault,) = [check for check in host.doctor()["checks"] if check["name"] == "identity"]
        assert "was retired" in fault["remedy"] and "recovers by itself at" in fault["remedy"], fault
        shown = plane.node(host.node_id())
        assert shown["health"]["reason"] == "cert_expired" and "was retired" in shown["health"]["evidence"], shown["health"]
        since = datetime.datetime.fromisoformat(shown["health"]["since"])
        assert began - datetime.timedelta(seconds=5) < since < datetime.datetime.now(datetime.UTC), "when it was retired"
        assert [held["status"] for held in shown["certificates"]] == ["issuer_retired"], shown["certificates"]
    finally:
        host.stop()
        host.note_secrets()


def test_a_host_that_was_connected_during_a_forced_retirement_comes_back_by_itself(plane, host):
    """Also if the control plane is killed after it."""
    node = host.node_id()
    new = retire_by_force(plane)
    plane.kill()
    plane.start(*plane.where)
    came_back(plane, host, node, new)
    assert not (host.dir / "revoked").exists()


def test_without_a_recovery_token_it_says_what_it_needs(plane, host):
    """After the grace period nothing but a repair bundle leads back, and its class says so."""
    assert host.stop() == 0
    host.token_file().unlink()
    retire_by_force(plane)
    host.start()
    host.told("recovery_enrollment_blocked", 60)
    assert kinds(plane, host.node_id(), "recovery.issued") == []
