"""A full disk: told as such, the identity still renewed, what is only told making room first."""

import pytest

from faults import Disk, Patient, alerts, kinds
from machine import scratch, until

FULL, PRESSURE = "disk_full", "node_observability_disk_pressure"
BALLAST = 256 * 1024


@pytest.fixture(scope="module", autouse=True)
def quick(plane, minute):
    """The minute of test_faults_expiry.py passes meanwhile."""
    plane.policy("liveness.interval", "1s")


@pytest.fixture
def disk():
    with Disk("4m") as made:
        yield made


def running(plane, directory=None, **named) -> Patient:
    patient = Patient(
        plane,
        plane.token(),
        ENLIST_AGENT_CHECK_INTERVAL="1s",
        ENLIST_AGENT_BALLAST_BYTES=str(BALLAST),
        **named,
    )
    if directory:
        patient.dir = directory
    patient.start().wait_connected()
    patient.wait_token()
    return patient


def rotated(plane, patient: Patient) -> None:
    before = patient.serial()
    plane.cli("node", "rotate", patient.node_id())
    until(lambda: patient.serial() != before, f"it is renewed: {patient.log()}")
    assert patient.keys_match()


def test_the_identity_is_renewed_on_a_full_disk(plane, disk):
    """The ballast is given up for it, and both sides say that the disk is full, not that the host is unreachable.

    Proves GPU-09, GPU-14, GPU-24, GPU-29, GPU-32, GPU-34.
    """
    patient = running(plane, disk.path / "a", ENLIST_AGENT_DIAGNOSTIC_PATH=str(scratch("diag")))
    try:
        node = patient.node_id()
        until(lambda: (patient.dir / "ballast").exists(), "room is kept")
        assert (patient.dir / "ballast").stat().st_blocks * 512 >= BALLAST, "the room is really taken"
        disk.fill()
        rotated(plane, patient)
        patient.told(FULL)
        until(lambda: FULL in alerts(plane, node), "the control plane raises an alert")
        shown = plane.node(node)
        assert shown["connected"] and shown["evidence"]["class"] == FULL, shown
        assert shown["health"]["reason"] == FULL
        assert FULL in shown["excluded"] and not shown["schedulable"]
        assert {space["name"] for space in shown["evidence"]["free_space"]} >= {"cert", "diagnostic"}
        assert "endpoint_unreachable" not in patient.reasons()
        disk.fill()
        assert FULL in patient.diagnosed()
        disk.free()
        patient.well()
        until(lambda: FULL not in alerts(plane, node), "the alert is cleared")
        until(lambda: (patient.dir / "ballast").exists(), "room is kept again")
    finally:
        patient.stop()
        patient.note_secrets()


def test_a_renewal_that_cannot_be_kept_is_the_disks_fault(plane, disk):
    """Not one byte is left, not even the ballast's: it fails as `disk_full`, and works as soon as there is room.

    Proves GPU-14, GPU-29, GPU-34.
    """
    patient = running(plane, disk.path / "a", ENLIST_AGENT_DIAGNOSTIC_PATH=str(scratch("diag")))
    try:
        node, serial = patient.node_id(), patient.serial()
        patient.stop()
        (patient.dir / "ballast").unlink()
        patient.environment["ENLIST_AGENT_BALLAST_BYTES"] = "0"
        patient.start().wait_connected()
        disk.fill()
        plane.cli("node", "rotate", node)
        patient.told(FULL)
        until(lambda: patient.figure(f'cert_renewal_failures_total{{reason="{FULL}"}}') >= 1, "it is counted")
        assert patient.serial() == serial and patient.keys_match(), "what it had is whole"
        until(lambda: FULL in alerts(plane, node), "the control plane knows")
        disk.free()
        until(lambda: patient.serial() != serial, "it is renewed after all")
        patient.well()
        assert kinds(plane, node, "recovery.requested") == []
    finally:
        patient.stop()
        patient.note_secrets()


def test_diagnostics_never_stand_in_the_way(plane, disk):
    """Where they are kept is full: counted, dropped, told as pressure; the host goes on.

    Proves GPU-09, GPU-24, GPU-33, GPU-34.
    """
    place = disk.path / "diagnostics"
    patient = running(plane, ENLIST_AGENT_DIAGNOSTIC_PATH=str(place))
    try:
        node = patient.node_id()
        disk.fill()
        until(lambda: PRESSURE in patient.reasons(), "it says so")
        until(lambda: patient.figure("local_diagnostic_write_failures_total{reason=") >= 1, "it is counted")
        until(lambda: plane.node(node)["evidence"]["observability_pressure"], "the control plane is told")
        assert PRESSURE in plane.node(node)["excluded"]
        rotated(plane, patient)
        disk.free()
        until(lambda: PRESSURE not in patient.reasons(), "it is over")
        until(lambda: PRESSURE not in plane.node(node)["excluded"], "and the control plane knows")
    finally:
        patient.stop()
        patient.note_secrets()
