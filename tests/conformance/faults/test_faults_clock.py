"""A host with a wrong clock: told as such, asking for nothing, well as soon as the clock is right."""

import time

import pytest

from agents import enroll
from clocks import Clock, sweep
from faults import Patient, alerts, asked
from machine import until

SKEW = "clock_skew"


@pytest.fixture(scope="module", autouse=True)
def quick(plane, minute):
    """The minute of test_faults_expiry.py passes meanwhile."""
    plane.policy("liveness.interval", "1s")


@pytest.fixture
def patients(plane):
    made: list[Patient] = []

    def make(clock: Clock) -> Patient:
        made.append(Patient(plane, plane.token(), clock=clock))
        made[-1].start().wait_connected()
        made[-1].wait_token()
        return made[-1]

    yield make
    for patient in made:
        patient.stop()
        sweep(patient.process.pid)
        patient.note_secrets()


@pytest.mark.parametrize("offset", ["+400d", "-400d"])
def test_a_start_with_a_wrong_clock(plane, patients, offset):
    """By that clock every certificate is out of date, its own and the control plane's; yet it is the clock's fault.

    Proves GPU-14, GPU-29.
    """
    clock = Clock()
    patient = patients(clock)
    node, serial, token = patient.node_id(), patient.serial(), patient.wait_token()
    before = asked(plane, node)
    patient.stop()
    sweep(patient.process.pid)
    clock.set(offset)
    patient.start()
    patient.told(SKEW)
    assert SKEW in patient.diagnosed()
    assert not set(patient.reasons()) & {"cert_expired", "server_tls_untrusted"}, "the clock's word wins"
    clock.set("+0")
    patient.well(90)
    assert asked(plane, node) == before, "certificates were asked for with a wrong clock"
    assert patient.serial() == serial and patient.token_file().read_text().strip() == token
    assert patient.doctor()["ok"], patient.doctor()


def test_a_clock_that_jumps(plane, patients):
    """The connection stays, the control plane knows, no certificate is asked for, and setting it right is the cure.

    Proves GPU-14, GPU-24, GPU-29.
    """
    hosts = {offset: patients(Clock()) for offset in ("+400d", "-400d", "+10m")}
    before = {offset: (asked(plane, host.node_id()), host.serial()) for offset, host in hosts.items()}
    for offset, host in hosts.items():
        host.clock.set(offset)
    for host in hosts.values():
        node = host.node_id()
        host.told(SKEW)
        until(lambda node=node: SKEW in alerts(plane, node), "the control plane raises an alert")
        shown = plane.node(node)
        assert shown["connected"] and shown["evidence"]["class"] == SKEW, shown
        assert abs(shown["evidence"]["clock_offset_ms"]) > 300_000
        assert shown["health"]["reason"] == SKEW
        assert SKEW in shown["excluded"] and not shown["schedulable"]
        assert SKEW in host.diagnosed()
    metrics = plane.api("GET", "/metrics").body.decode()
    assert f'enlist_node_failures{{class="{SKEW}"}} {len(hosts)}' in metrics, metrics
    for host in hosts.values():
        host.clock.set("+0")
    for offset, host in hosts.items():
        node = host.node_id()
        host.well()
        until(lambda node=node: SKEW not in alerts(plane, node), "the alert is cleared")
        until(lambda node=node: plane.node(node)["health"]["reason"] is None, "it is in good health")
        assert (asked(plane, node), host.serial()) == before[offset]
        raised = [line["kind"] for line in plane.audit("alert.raised") if line.get("node_id") == node]
        assert raised == [SKEW]


def test_the_tolerance_is_the_domains(plane, patients):
    """`clock.tolerance` decides what counts as wrong. Proves GPU-29."""
    plane.policy("clock.tolerance", "30s")
    try:
        clock = Clock()
        patient = patients(clock)
        clock.set("+60s")
        patient.told(SKEW)
        clock.set("+10s")
        patient.well()
    finally:
        plane.policy("clock.tolerance", "5m")


@pytest.mark.parametrize("offset", ["+400d", "-400d"])
def test_an_enrollment_with_a_wrong_clock(plane, place, offset):
    """It ends at once and names the clock; the token is not sent, so that it serves once the clock is right.

    Proves GPU-14, GPU-29.
    """
    clock, minted = Clock(offset), plane.mint()
    begun = time.monotonic()
    done = enroll(plane, place / "a", token=minted["token"], env=clock.env)
    # It would be tried for five minutes.
    assert time.monotonic() - begun < 45, done
    assert done.code == 1 and done.error()["code"] == SKEW, done
    assert plane.token_state(minted["token_id"]) == "unused"
    clock.set("+0")
    assert enroll(plane, place / "a", token=minted["token"], env=clock.env).code == 0


def test_a_daemon_without_an_identity_waits_for_its_clock(plane):
    """`run` names the clock and goes on trying: a clock that is set late must not cost the enrollment. Proves GPU-29."""
    clock = Clock("+400d")
    patient = Patient(plane, plane.token(), clock=clock).start()
    try:
        until(lambda: SKEW in patient.whole_log(), "it names the clock")
        clock.set("+0")
        patient.wait_connected(90)
    finally:
        patient.stop()
        sweep(patient.process.pid)
        patient.note_secrets()
