"""RenewCert: by the client certificate alone. PACT-20, PACT-21, D11, D32."""

import certs
import native
import pacts
import pytest
from machine import until
from pacts import Status
from plane import ControlPlane


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        pacts.allow_hardware(running)
        yield running


@pytest.fixture(scope="module")
def operator(plane):
    with pacts.admin(plane) as door:
        yield door


def refusal(machine, **named):
    with pytest.raises(pacts.Refused) as refused:
        machine.renew(**named)
    return refused.value


def test_a_node_renews_with_its_certificate_and_a_bearer_that_means_nothing(plane, operator):
    """Proves PACT-21: its own serial, a new key, the next certificate; the bearer of real agents is ignored."""
    machine = pacts.machine(plane, operator, "renew-1")
    key = certs.ec_key()
    answer = machine.renew(key, node_id="renew-1")
    leaf = certs.certificates(answer.signed_cert)[0]
    assert certs.serial(leaf) == answer.cert_serial != machine.serial
    assert certs.public_der(leaf.public_key()) == certs.public_der(key)
    assert plane.node("renew-1")["cert_serial"] == answer.cert_serial
    assert len(certs.certificates(answer.ca_chain)) >= 2
    assert answer.cert_expires_at.endswith("Z")


def test_either_live_serial_will_do(plane, operator):
    """Proves D32: after a renewal whose answer may be lost, both serials match."""
    machine = pacts.machine(plane, operator, "either-1")
    newer = machine.renewed()
    assert machine.renew(serial=newer.serial.upper()).cert_serial
    lost = pacts.machine(plane, operator, "either-2")
    lost.renew()
    assert lost.renew(serial=lost.serial).cert_serial


def test_another_serial_is_a_mismatch(plane, operator):
    """Proves PACT-21: SERIAL_MISMATCH for another node's serial, an unknown one and none."""
    machine, other = (pacts.machine(plane, operator, f"serial-{number}") for number in (1, 2))
    for serial in (other.serial, "abcdef", "not hex", " "):
        refused = refusal(machine, serial=serial)
        assert (refused.status, refused.code) == (Status.FAILED_PRECONDITION, "serial_mismatch")
        assert refused.message.startswith("SERIAL_MISMATCH: ")
    assert machine.renew().cert_serial


def test_a_node_renews_for_itself_alone(plane, operator):
    """Proves PACT-21: the caller's identity must be node_id; without a certificate, or with an operator's key, nobody renews."""
    machine = pacts.machine(plane, operator, "self-1")
    pacts.machine(plane, operator, "self-2")
    assert refusal(machine, node_id="self-2").status == Status.PERMISSION_DENIED
    request = pacts.pb.RenewCertRequest(current_cert_serial=machine.serial, csr=pacts.csr())
    assert operator.refused("RenewCert", request).status == Status.UNAUTHENTICATED


def test_a_bad_request_leaves_the_certificate_as_it_is(plane, operator):
    """INVALID_ARGUMENT, and the good one works afterwards."""
    machine = pacts.machine(plane, operator, "badcsr-1")
    with machine.door() as door:
        request = pacts.pb.RenewCertRequest(current_cert_serial=machine.serial, csr=b"garbage")
        refused = door.refused("RenewCert", request)
    assert (refused.status, refused.code) == (Status.INVALID_ARGUMENT, "csr_invalid")
    assert machine.renewed().serial != machine.serial


def test_a_superseded_certificate_does_not_renew(programs):
    """D32: once the new one was seen and the old one has drained, the old one is refused at the handshake."""
    with ControlPlane() as plane, pacts.admin(plane) as operator:
        pacts.allow_hardware(plane)
        plane.policy("renew.drain", "1s")
        old = pacts.machine(plane, operator, "drain-1").used()
        new = old.renewed().used()
        until(lambda: native.alert(plane, old.files) is not None, "the old certificate is refused")
        with pytest.raises(pacts.Refused):
            old.renew()
        refused = refusal(new, serial=old.serial)
        assert (refused.status, refused.code) == (Status.FAILED_PRECONDITION, "serial_mismatch")
        assert new.renew().cert_serial


def test_an_expired_certificate_does_not_renew(programs):
    """Alert 45 at the handshake; enrolling by hardware again is what is left."""
    with ControlPlane() as plane, pacts.admin(plane) as operator:
        pacts.allow_hardware(plane)
        plane.policy("profile.pact.lifetime", "60s")
        machine = pacts.machine(plane, operator, "expired-1")
        until(lambda: native.alert(plane, machine.files) is not None, "the certificate has expired", 90)
        assert "EXPIRED" in native.alert(plane, machine.files).upper()
        with pytest.raises(pacts.Refused):
            machine.renew()
