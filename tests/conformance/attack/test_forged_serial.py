"""Somebody else has the key of an imported CA, and forges certificates with the serials of others."""

import contextlib
import socket
import ssl

import pytest

import certs
import native
from certs import load, openssl_ca, x509
from cryptography.hazmat.primitives import hashes
from machine import PATIENCE, scratch, until
from plane import ControlPlane

LIMIT = 64
"""Connections that one certificate may have."""


class Brought:
    """A control plane with an imported CA, whose key the attacker has as well."""

    def __init__(self, plane, cert, key):
        self.plane, self.key = plane, load(key)
        self.ca = certs.certificate(cert.read_bytes())

    def forged(self, victim: x509.Certificate) -> tuple:
        """A certificate with the victim's serial and names and another key."""
        key = certs.ec_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(victim.subject)
            .issuer_name(self.ca.subject)
            .public_key(key.public_key())
            .serial_number(victim.serial_number)
            .not_valid_before(victim.not_valid_before_utc)
            .not_valid_after(victim.not_valid_after_utc)
        )
        for extension in victim.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        leaf = builder.sign(self.key, hashes.SHA256())
        return certs.identity(scratch("forged"), key, certs.pem(leaf).decode())

    def victim(self, node) -> x509.Certificate:
        return certs.certificate(node.answer.certificate)


@pytest.fixture(scope="module")
def brought(programs):
    cert, key = openssl_ca(scratch("brought"), "/CN=Brought CA")
    with ControlPlane(init=("--issuer", "imported", "--ca-cert", cert, "--ca-key", key)) as plane:
        plane.policy("failures.per_minute", "0")
        yield Brought(plane, cert, key)


def alerts(plane, node) -> list[dict]:
    return plane.items(f"/v1/alerts?node={node.id}")


def hold(plane, files):
    """An open connection that has shown a certificate."""
    raw = socket.create_connection(("127.0.0.1", plane.port), PATIENCE)
    tls = plane.context(files).wrap_socket(raw, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLError, OSError):
        tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        tls.recv(4096)
    return tls


def test_a_forged_certificate_is_refused_and_its_victim_undisturbed(brought):
    """With a live victim's serial: refused at the handshake, and the victim's open stream stays, also after more
    connections than one certificate may have."""
    plane = brought.plane
    node = native.enroll(plane)
    node.confirm()
    forged = brought.forged(brought.victim(node))
    with node.door() as door:
        stream = door.live(node.id)
        stream.next("welcome")
        assert native.alert(plane, forged) is not None, "a forged certificate was taken"
        with contextlib.ExitStack() as held:
            for _ in range(LIMIT + 8):
                held.enter_context(hold(plane, forged))
            assert native.alert(plane, node.files) is None
            stream.heartbeat()
            assert not stream.ended.wait(3), f"the victim's stream was cut: {stream.error}"
        stream.close()
    assert alerts(plane, node) == []
    assert native.alert(plane, node.files) is None


def ended(plane, kind: str) -> native.Node:
    """A node that has another certificate by now, as it was with the one before."""
    node = native.enroll(plane)
    node.confirm()
    if kind == "clone_suspected":
        node.renewed().confirm()
    else:
        native.enroll(plane, plane.mint(node=node.id, replace=True)["token"]).confirm()
    return node


@pytest.mark.parametrize("kind", ["clone_suspected", "denied_certificate_seen"])
def test_a_forged_old_certificate_raises_no_alert(brought, kind):
    """With the serial of a superseded or a denied certificate: refused, and nothing is said about the victim. The true
    ones of two other nodes, before and after, are noticed when they come back."""
    plane = brought.plane
    plane.policy("renew.drain", "1s")

    def noticed(node: native.Node) -> None:
        # In the handshake: a connection that was taken while the grace lasted is closed at its end without a word.
        taken = (None, native.CLOSED)
        until(lambda: native.alert(plane, node.files) not in taken, "the old certificate is refused")
        until(lambda: kind in [one["kind"] for one in alerts(plane, node)], f"{kind} was raised")

    victim, first, second = (ended(plane, kind) for _ in range(3))
    forged = brought.forged(brought.victim(victim))
    before = [one["kind"] for one in alerts(plane, victim)]
    noticed(first)
    for _ in range(5):
        assert native.alert(plane, forged) is not None, "a forged certificate was taken"
    noticed(second)
    assert [one["kind"] for one in alerts(plane, victim)] == before
    noticed(victim)
