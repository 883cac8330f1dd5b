"""Hardware is no secret: whoever tries it out is refused, and operators hear of it. PACT-16, PACT-39, D06, D22, D28."""

import contextlib
import os
import socket
import threading
import types

import grpc
import native
import pacts
import pytest
from listener import Proxy, shut
from machine import until

ELSEWHERE = "127.0.0.2"
KNOWN = int(os.environ.get("ENLIST_KNOWN_MACS", "300"))
"""Machines whose addresses somebody knows."""


class Elsewhere(Proxy):
    """Passes bytes on from another address."""

    def __init__(self, port: int, address: str = ELSEWHERE):
        super().__init__(port)
        self.leaves_from = address
        self.listen()

    def serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self.target), source_address=(self.leaves_from, 0))
        with self.lock:
            self.open += [client, server]
        threading.Thread(target=self.pass_on, args=(client, server), daemon=True).start()
        self.pass_on(server, client)

    def pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        shut(sink)


@contextlib.contextmanager
def door_from(plane, address: str):
    """A stranger's door, from another address."""
    relay = Elsewhere(plane.port, address)
    try:
        with pacts.Door(types.SimpleNamespace(bundle=plane.bundle, port=relay.port)) as door:
            yield door
    finally:
        relay.close()


@pytest.fixture(scope="module")
def operator(plane):
    pacts.allow_hardware(plane)
    with pacts.admin(plane) as door:
        yield door


def alerts(plane, kind: str) -> list[dict]:
    return [alert for alert in plane.items("/v1/alerts?limit=1000") if alert["kind"] == kind]


def refused_samples(plane, reason: str) -> list[str]:
    lines = plane.audit("enrollment.refused")
    return [sample for line in lines if line["reason"] == reason for sample in line["samples"]]


@pytest.mark.parametrize("request_bytes", [pacts.csr(), b"not a request"], ids=["good-csr", "garbage"])
def test_a_second_enrollment_of_an_active_machine_raises_an_alert_with_both_sources(plane, operator, request_bytes):
    """PACT-07, PACT-39, D06: also when its CSR is none; the machine itself is not touched."""
    identity = pacts.hardware()
    name = f"victim-{len(request_bytes)}"
    operator.register(name, identity)
    machine = pacts.boot(plane, identity)
    relay = Elsewhere(plane.port)
    try:
        credentials = grpc.ssl_channel_credentials(plane.bundle)
        with grpc.secure_channel(f"127.0.0.1:{relay.port}", credentials, options=native.OPTIONS) as channel:
            stub = pacts.pb_grpc.EnrollmentServiceStub(channel)
            with pytest.raises(grpc.RpcError) as refused:
                stub.Enroll(pacts.pb.EnrollRequest(hardware_identity=identity, csr=request_bytes), timeout=60)
            assert refused.value.code() == pacts.Status.ALREADY_EXISTS
    finally:
        relay.close()
    (alert,) = [alert for alert in alerts(plane, "already_active") if alert["node_id"] == name]
    assert "active_from=127.0.0.1 " in alert["detail"] + " "
    assert f"attempt_from={ELSEWHERE}" in alert["detail"]
    # The first of its kind is on record at once, the rest of its minute in one line at its end.
    if request_bytes != b"not a request":
        assert f"mac:{identity.mac_address}" in refused_samples(plane, "already_active")
    machine.used()
    assert plane.node(name)["state"] == "active"
    assert native.alert(plane, machine.files) is None


def test_five_failures_of_one_machine_raise_repeated_failures(plane, operator):
    """PACT-16, 001 repeated failures: four do not, others beside them do not count, and a flood is a few lines."""
    strange, other = pacts.hardware(), pacts.hardware()
    operator.register("half-known", pacts.hardware("02:00:00:00:aa:01", bmc_serial="SN-real"))
    half = pacts.hardware("02:00:00:00:aa:01", bmc_serial="SN-wrong")

    def named(identity) -> bool:
        return any(identity.mac_address in alert["detail"] for alert in alerts(plane, "repeated_failures"))

    lines = len(plane.audit("enrollment.refused"))
    with pacts.Door(plane) as door:
        for _ in range(4):
            assert door.enroll_refused(strange).status == pacts.Status.NOT_FOUND
            door.enroll_refused(other)
        assert door.enroll_refused(half).status == pacts.Status.NOT_FOUND
        assert not named(strange)
        door.enroll_refused(strange)
        until(lambda: named(strange), "the fifth failure raised it")
        assert not named(other)
        for _ in range(4):
            door.enroll_refused(half)
        until(lambda: named(half), "a serial that is guessed is a failure of that machine", 120)
    for alert in alerts(plane, "repeated_failures"):
        assert alert["node_id"] is None
    assert named(strange), "the one before is still named"
    assert len(plane.audit("enrollment.refused")) - lines <= 4
    assert f"mac:{strange.mac_address}" in refused_samples(plane, "node_not_enrolled")


def test_a_network_that_searches_for_machines_is_named(plane, operator):
    """PACT-16: a thousand addresses that nobody registered, each tried once, raise `repeated_failures` with the network."""

    def named() -> bool:
        return any("network=127.0.0.0 unregistered_macs=" in alert["detail"] for alert in alerts(plane, "repeated_failures"))

    # A site behind one address: what is refused there costs it nothing.
    plane.policy("failures.hardware_exempt", "127.0.0.3/32")
    with door_from(plane, "127.0.0.3") as door:
        for block in range(16):
            addresses = ";".join(f"02:5e:aa:00:{block:02x}:{number:02x}" for number in range(64))
            assert door.enroll_refused(pacts.hardware(addresses)).status == pacts.Status.NOT_FOUND
    until(named, "the network is named", 120)


def test_hardware_of_two_machines_is_a_conflict_and_an_alert(plane, operator):
    """D28: a request that matches more than one record gets nothing."""
    one, two = pacts.mac(), pacts.mac()
    for name, address in (("one", one), ("two", two)):
        operator.register(name, pacts.hardware(address))
    with pacts.Door(plane) as door:
        refused = door.enroll_refused(pacts.hardware(f"{one};{two}"))
    assert refused.status == pacts.Status.FAILED_PRECONDITION
    assert refused.message.startswith("HARDWARE_IDENTITY_CONFLICT")
    assert [alert for alert in alerts(plane, "hardware_identity_conflict") if alert["node_id"] in ("one", "two")]
    assert {plane.node(name)["state"] for name in ("one", "two")} == {"registered"}


def test_the_native_api_refuses_and_reports_the_same(plane, operator):
    """D23: one core behind every API."""
    identity = pacts.hardware()
    operator.register("native-machine", identity)
    said = native.pb.HardwareIdentity(macs=[identity.mac_address.upper()])
    with native.door(plane) as door:
        answer = door.enroll("", native.certs.csr(native.certs.ec_key()), hardware_identity=said)
        assert answer.node_id == "native-machine"
        assert plane.node("native-machine")["state"] == "active"
        refused = door.refused("", native.certs.csr(native.certs.ec_key()), hardware_identity=said)
        assert refused.code == "already_active"
        unknown = native.pb.HardwareIdentity(macs=[pacts.mac()])
        assert door.refused("", "no csr", hardware_identity=unknown).code == "node_not_enrolled"
        nothing = native.pb.HardwareIdentity(macs=["ff:ff:ff:ff:ff:ff"])
        assert door.refused("", "no csr", hardware_identity=nothing).code == "mac_invalid"
    assert [alert for alert in alerts(plane, "already_active") if alert["node_id"] == "native-machine"]


def test_known_addresses_of_machines_that_are_there_grow_the_trail_by_a_bounded_number_of_lines(plane, operator):
    """PACT-14, D22: each is refused, an alert is raised once, and beyond the limit nothing is proposed."""
    plane.policy("failures.per_minute", "0")
    known = [pacts.hardware() for _ in range(KNOWN)]
    for number, identity in enumerate(known):
        operator.register(f"known-{number}", identity)
        with pacts.Door(plane) as door:
            door.enroll(identity)
    before = len(plane.audit())
    with door_from(plane, "127.0.0.4") as door:
        answers = [door.enroll_refused(identity).status for identity in known]
        assert set(answers) == {pacts.Status.ALREADY_EXISTS, pacts.Status.RESOURCE_EXHAUSTED}
        raised = len([alert for alert in alerts(plane, "already_active") if alert["node_id"].startswith("known-")])
        # The window may have ended once while they were tried.
        assert 100 <= answers.count(pacts.Status.ALREADY_EXISTS) <= 200
        assert raised <= 200
        # The same again raises nothing.
        lines = len(plane.audit())
        for identity in known[:20]:
            door.enroll_refused(identity)
    print(f"{KNOWN} known addresses left {lines - before} lines")
    assert lines - before <= 200 + 16
    assert len(plane.audit()) - lines <= 16


def test_guesses_from_one_address_are_not_answered_after_a_hundred(plane, operator):
    """PACT-14, PACT-16, D22: a right guess above the limit is refused in the same words, and another address's machine is let in meanwhile."""
    plane.policy("failures.per_minute", "0")
    right, other = pacts.hardware(), pacts.hardware()
    operator.register("guessed", right)
    operator.register("let-in", other)
    with door_from(plane, "127.0.0.5") as door:

        def guess(identity):
            refused = door.enroll_refused(identity)
            return refused.status, refused.code, refused.message

        answers = [guess(pacts.hardware()) for _ in range(120)]
        assert {status for status, _, _ in answers} == {pacts.Status.NOT_FOUND, pacts.Status.RESOURCE_EXHAUSTED}
        limited = answers[-1]
        assert limited[:2] == (pacts.Status.RESOURCE_EXHAUSTED, "rate_limited")
        assert guess(right) == limited
    pacts.boot(plane, other)
    assert (plane.node("guessed")["state"], plane.node("let-in")["state"]) == ("registered", "active")

    def named() -> bool:
        guessed = alerts(plane, "hardware_guessed")
        assert all(alert["node_id"] is None for alert in guessed)
        return any("source=127.0.0.5 refused=100 since=20" in alert["detail"] for alert in guessed)

    until(named, "operators hear of it", 180)
