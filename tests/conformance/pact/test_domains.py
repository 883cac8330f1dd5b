"""A machine that two domains share, and a boot that needs nobody else. PACT-24, PACT-43, E3."""

import contextlib
import pathlib

import certs
import pacts
import pytest
from machine import until
from pacts import Status, hardware
from plane import ControlPlane
from subscriber import Subscriber


@pytest.fixture(scope="module")
def domains(programs):
    """Two domains that know nothing of each other, each with an operator."""
    with contextlib.ExitStack() as running:
        found = []
        for name in ("alpha.example", "beta.example"):
            plane = running.enter_context(ControlPlane(domain=name))
            pacts.allow_hardware(plane)
            plane.policy("liveness.interval", "1s")
            plane.policy("liveness.grace", "3s")
            found.append((plane, running.enter_context(pacts.admin(plane))))
        yield found


def test_a_machine_of_two_domains_boots_into_either(domains):
    """Proves PACT-24: registered in both, a new key per boot, inactive where it has left, and nothing is coordinated."""
    (alpha, in_alpha), (beta, in_beta) = domains
    identity = hardware(bmc_serial="SHARED-1")
    for operator in (in_alpha, in_beta):
        assert operator.register("shared-1", identity).enrollment_state == "Registered"

    first = pacts.boot(alpha, identity)
    with Subscriber(alpha, first):
        assert alpha.node("shared-1")["state"] == "active"
        assert beta.node("shared-1")["state"] == "registered"
    until(lambda: alpha.node("shared-1")["state"] == "inactive", "it has left the first domain")

    second = pacts.boot(beta, identity)
    with Subscriber(beta, second):
        until(lambda: beta.node("shared-1")["connected"], "it is in the second domain")
        assert alpha.node("shared-1")["state"] == "inactive"
    back = pacts.boot(alpha, identity)
    assert alpha.node("shared-1")["state"] == "active"
    boots = [machine.answer.signed_cert for machine in (first, second, back)]
    keys = {certs.public_der(certs.certificates(cert)[0].public_key()) for cert in boots}
    assert len(keys) == 3


def test_a_certificate_of_one_domain_is_nothing_in_the_other(domains):
    """Proves PACT-24 and E1: what one domain signed is no credential of the other."""
    (alpha, in_alpha), (beta, _) = domains
    machine = pacts.machine(alpha, in_alpha, "alone-1")
    elsewhere = pacts.Machine(beta, machine.key, machine.answer.signed_cert, "alone-1", machine.serial)
    request = pacts.pb.RenewCertRequest(current_cert_serial=machine.serial, csr=pacts.csr())
    with elsewhere.door() as door:
        refusal = door.refused("RenewCert", request)
    assert refusal.status in (Status.UNAVAILABLE, Status.UNAUTHENTICATED)


def sockets(plane) -> set:
    """Inodes of the sockets that the process has."""
    links = []
    for link in pathlib.Path(f"/proc/{plane.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}


def local_ports(plane) -> set:
    ports, own = set(), sockets(plane)
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{plane.process.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in own:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def test_nobody_else_is_asked_while_a_machine_boots(domains):
    """Proves PACT-19, PACT-43: every TCP socket of the control plane is its listener's, while machines boot and listen."""
    (alpha, in_alpha), _ = domains
    machine = pacts.machine(alpha, in_alpha, "self-contained-1")
    with Subscriber(alpha, machine):
        until(lambda: alpha.node(machine.id)["connected"], "it listens")
        for attempt in range(5):
            pacts.machine(alpha, in_alpha, f"self-contained-{attempt + 2}")
            assert local_ports(alpha) == {alpha.port}
