"""A stolen recovery token: worth nothing while its host is well, good once afterwards, and seen either way."""

import shutil

import pytest

import evidence
from agents import enroll
from clocks import shifted, sweep
from daemons import lasting_port
from faults import Patient, alerts, kinds
from machine import AGENT, run, until
from plane import ControlPlane

LATER = 25
"""Hours after which the host's certificate has ended."""


@pytest.fixture
def plane(programs):
    """On a port that it keeps when it is started again at another time."""
    made = ControlPlane().found()
    made.fixed = ("--listen", f"127.0.0.1:{lasting_port()}")
    made.start(*made.fixed)
    yield made
    made.close()
    sweep(made.process.pid)


@pytest.fixture
def victim(plane, place):
    """Enrolled by hand, so that its directory tells the whole story."""
    made = Patient(plane)
    done = enroll(plane, made.dir, token=plane.token())
    assert done.code == 0, done
    for name in ("ENLIST_AGENT_SERVER", "ENLIST_AGENT_CA_PIN"):
        del made.environment[name]
    made.start().wait_connected()
    made.wait_token()
    yield made
    made.stop()
    made.note_secrets()


def stolen(victim: Patient, place, name: str):
    """What a thief copies: the token, and where to go with it."""
    directory = place / name
    (directory / "recovery").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    shutil.copy2(victim.dir / "agent.toml", directory / "agent.toml")
    shutil.copy2(victim.token_file(), directory / "recovery" / "token")
    return directory


def recover(directory, env: dict | None = None):
    done = run(AGENT, "recover", "--dir", directory, "--json", env=env)
    key = directory / "identity" / "current" / "key.pem"
    if key.exists():
        evidence.private_key("agent", key.read_bytes())
    return done


def test_a_stolen_token(plane, victim, place):
    """Refused and reported while the host is well; once it is not, whoever comes first wins, once, and it shows.

    Proves GPU-04, GPU-16, GPU-17, GPU-20, GPU-22.
    """
    node, serial = victim.node_id(), victim.serial()
    first = stolen(victim, place, "a")
    done = recover(first)
    assert done.code == 3 and done.error()["code"] == "recovery_not_needed", done
    assert not (first / "identity" / "current").exists(), "a thief got something"
    until(lambda: "recovery_not_needed" in alerts(plane, node), "an alert is raised")
    assert victim.connected() and victim.serial() == serial, "the host itself never noticed"
    assert recover(first).code == 3, "it was not used up, and stays worth nothing"

    victim.stop()
    plane.stop()
    later = shifted(LATER)
    plane.env = later
    plane.start(*plane.fixed)
    first, second = stolen(victim, place, "b"), stolen(victim, place, "c")
    done = recover(first, later)
    assert done.code == 0, done
    assert done.json()["node_id"] == node
    done = recover(second, later)
    assert done.code == 3 and done.error()["code"] == "token_used", done

    # The host itself finds its token spent. It says so, and does not pretend.
    victim.environment |= later
    victim.start()
    victim.told("recovery_enrollment_blocked")
    assert "token_used" in victim.whole_log()
    victim.stop()
    sweep(victim.process.pid)

    shown = plane.cli("node", "show", node, "--timeline").lines()
    told = [line["event_type"] for line in shown]
    assert told.count("recovery.issued") == 1 and told.count("recovery.refused") >= 2, told
    refused, issued = told.index("recovery.refused"), told.index("recovery.issued")
    assert refused < issued, "in order"
    reasons = [line["reason"] for line in shown if line["event_type"] == "recovery.refused"]
    assert "recovery_not_needed" in reasons and "token_used" in reasons
    assert kinds(plane, node, "host.enrolled") == ["host.enrolled"]
