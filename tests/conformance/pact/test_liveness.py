"""Who is there, by pact's subscription alone: no heartbeat, but a connection that answers. PACT-06, PACT-18, PACT-40, D16, D21."""

import datetime
import signal

import native
import pacts
import pytest
from machine import until
from subscriber import Subscriber

GRACE = 8.0


@pytest.fixture(scope="module")
def fleet(plane):
    """A control plane with a short grace period, and an operator of it."""
    pacts.allow_hardware(plane)
    plane.policy("liveness.interval", "1s")
    plane.policy("liveness.grace", f"{GRACE:.0f}s")
    with pacts.admin(plane) as operator:
        yield plane, operator


def booted(fleet, name):
    plane, operator = fleet
    return pacts.machine(plane, operator, name, bmc_serial=f"SN-{name}")


def state(plane, machine) -> str:
    return plane.node(machine.id)["state"]


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def fell_inactive(plane, machine) -> list:
    return [line for line in plane.audit("host.inactive") if line["node_id"] == machine.id]


def seen_for(plane, machine, seconds: float) -> None:
    """Waits until the node has been seen for so long."""
    begin = moment(plane.node(machine.id)["last_seen"])
    span = datetime.timedelta(seconds=seconds)
    until(lambda: moment(plane.node(machine.id)["last_seen"]) >= begin + span, "it is seen again and again")


def test_a_subscription_that_says_nothing_keeps_its_node_active(fleet):
    """PACT-18, PACT-40, D21: the live value of last_seen rises with PINGs alone, and no transition is audited."""
    plane, operator = fleet
    machine = booted(fleet, "quiet")
    with Subscriber(plane, machine):
        seen_for(plane, machine, 2 * GRACE)
        seen = plane.node(machine.id)["last_seen"]
        inspected = operator.call("InspectNode", pacts.pb.InspectNodeRequest(node_id=machine.id))
        assert moment(inspected.last_seen) >= moment(seen), "the document's own call says the live value too"
        assert plane.node(machine.id)["connected"] is True
        assert state(plane, machine) == "active"
    assert fell_inactive(plane, machine) == []


def test_a_stopped_process_falls_inactive_and_is_active_when_it_wakes(fleet):
    """PACT-18, D16, D21: its kernel goes on acknowledging TCP, and its connection is still open when it is inactive."""
    plane, _ = fleet
    machine = booted(fleet, "stopped")
    with Subscriber(plane, machine) as host:
        seen_for(plane, machine, 1)
        host.send(signal.SIGSTOP)
        until(lambda: state(plane, machine) == "inactive", "it is inactive")
        (line,) = fell_inactive(plane, machine)
        silent = (moment(line["at"]) - moment(plane.node(machine.id)["last_seen"])).total_seconds()
        # At most grace/5 + 2 s after the grace, and some for a machine that is busy with other tests.
        assert GRACE <= silent <= GRACE + GRACE / 5 + 2 + 15
        assert line["actor"] == "system:reconciler"
        host.send(signal.SIGCONT)
        until(lambda: state(plane, machine) == "active", "it is active again")
        seen_for(plane, machine, 1)
        assert host.process.poll() is None
    assert plane.node(machine.id)["cert_serial"] == machine.serial


def test_a_stopped_machine_that_was_replaced_cannot_come_back(fleet):
    """PACT-06, D16: out of inactive the hardware enrolls again; every earlier certificate is denied in that command."""
    plane, operator = fleet
    identity = pacts.hardware(bmc_serial="SN-again")
    operator.register("again", identity)
    before = pacts.boot(plane, identity)
    with Subscriber(plane, before) as host:
        host.send(signal.SIGSTOP)
        with pacts.Door(plane) as door:
            assert door.enroll_refused(identity).status == pacts.Status.ALREADY_EXISTS
        until(lambda: state(plane, before) == "inactive", "it is inactive")
        after = pacts.boot(plane, identity)
        assert native.alert(plane, before.files), "every earlier certificate is denied with it"
        assert (after.id, state(plane, after)) == ("again", "active")
        assert after.serial != before.serial
        host.send(signal.SIGCONT)
        assert host.process.stdout.readline().startswith("ended")
    assert native.alert(plane, before.files)
    with Subscriber(plane, after):
        seen_for(plane, after, GRACE)


def test_a_reconnect_within_the_grace_never_leaves_active(fleet):
    """PACT-40."""
    plane, _ = fleet
    machine = booted(fleet, "reconnects")
    for _ in range(4):
        with Subscriber(plane, machine):
            seen_for(plane, machine, GRACE / 2)
        until(lambda: plane.node(machine.id)["connected"] is False, "its end was noticed")
        assert state(plane, machine) == "active"
    assert fell_inactive(plane, machine) == []


def test_a_machine_that_never_subscribes_falls_inactive(fleet):
    """D16: an enrollment by hardware is a sign of life, and the only one."""
    plane, _ = fleet
    machine = booted(fleet, "silent")
    assert state(plane, machine) == "active"
    until(lambda: state(plane, machine) == "inactive", "it is inactive")
    assert len(fell_inactive(plane, machine)) == 1
    with Subscriber(plane, machine):
        until(lambda: state(plane, machine) == "active", "its certificate is still good")


def test_a_shorter_grace_does_not_cost_those_who_are_connected(plane_of_its_own):
    """PACT-18, D21: five minutes, until an operator says otherwise. How often an open connection is asked cannot change, so it is judged by
    that until it is opened anew."""
    plane = plane_of_its_own
    (grace,) = [entry["value"] for entry in plane.api("GET", "/v1/policy").json()["items"] if entry["key"] == "liveness.grace"]
    assert grace == "5m"
    pacts.allow_hardware(plane)
    with pacts.admin(plane) as operator:
        connected = pacts.machine(plane, operator, "connected")
        with Subscriber(plane, connected):
            plane.policy("liveness.grace", "2s")
            alone = pacts.machine(plane, operator, "alone")
            until(lambda: state(plane, alone) == "inactive", "the grace has passed for one without a stream")
            assert state(plane, connected) == "active"
        until(lambda: state(plane, connected) == "inactive", "without its connection the new grace counts")
