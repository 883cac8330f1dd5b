"""Whom a host believes before it has an identity: by the operating system's roots, or by a CA file with the lists beside it.

An issuer of the domain may lie in the operating system's store, put there for another program.
"""

import os

import pytest

import certs
from agents import enroll
from certs import x509
from impostors import Authority, built
from machine import scratch, until
from plane import ControlPlane
from rogue import Rogue, Thief
from root_lists import denied, listed

UNTRUSTED = "server_tls_untrusted"


class NodeThief(Thief):
    """Of an issuer that is for certificates of clients alone."""

    @staticmethod
    def _ca(subject, issuer, key, signer, below, digest=certs.SHA256):
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = built(subject, issuer, key).add_extension(x509.BasicConstraints(True, below), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), False)
        return builder.add_extension(usage, True).sign(signer, digest)


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as made:
        yield made


def store(*certificates) -> dict:
    """The operating system's roots."""
    file = scratch("store") / "roots.pem"
    file.write_bytes(b"".join(certs.pem(one) for one in certificates))
    return {"SSL_CERT_FILE": str(file), "SSL_CERT_DIR": "/nonexistent"}


def believed(plane, thief: Thief, directory, *options, trust, env=None) -> bool:
    """Whether a host sends its token to a thief; if not, it says why."""
    with Rogue(plane, thief) as rogue:
        rogue.spiffe = f"spiffe://{plane.domain}/tenant/default/agent/stolen-{os.urandom(4).hex()}"
        options = ("--timeout", "60s", *options)
        done = enroll(plane, directory, *options, token=plane.token(), server=rogue.url, trust=trust, env=env)
        if not rogue.heard:
            assert done.code == 4 and done.error()["code"] == UNTRUSTED, done
        return bool(rogue.heard)


def test_an_issuer_of_nodes_in_the_systems_store_is_no_control_plane(plane, place):
    """One that is for servers is what the store says; one for clients alone vouches for no server, also where its root is there."""
    by_system = ("--system-roots",)
    thief, nodes = Thief(plane), NodeThief(plane)
    assert believed(plane, thief, place / "a", trust=by_system, env=store(thief.certificate))
    assert not believed(plane, nodes, place / "b", trust=by_system, env=store(nodes.certificate, thief.certificate))
    assert not believed(plane, nodes, place / "c", trust=by_system, env=store(nodes.certificate, nodes.root))


def test_an_issuer_that_its_root_denies_is_refused_in_the_systems_store_too(plane, place):
    """By a host that has kept the list and is enrolled anew."""
    thief, other = Thief(plane), Thief(plane)
    host = place / "host"
    plane.cli("ca", "import-crl", "--file", denied(plane, thief.certificate))
    assert enroll(plane, host, token=plane.token()).code == 0
    until(lambda: (host / "recovery" / "root-crls.pem").exists(), "the host has the list")
    roots = store(thief.certificate, other.certificate)
    assert not believed(plane, thief, host, "--replace", trust=("--system-roots",), env=roots)
    assert believed(plane, other, host, "--replace", trust=("--system-roots",), env=roots), "the store is asked"


def test_lists_beside_the_ca_file_count_at_first_contact(plane, place):
    """As operators' command lines have them: also on a host that has stored nothing. Lists that cannot be read are an error."""
    thief, other, signer = Thief(plane), Thief(plane), Authority(plane)
    ca = place / "ca.pem"
    ca.write_bytes(plane.bundle)
    trust = ("--ca-file", ca)
    assert believed(plane, thief, place / "a", trust=trust)
    (place / "ca-crls.pem").write_bytes(listed(signer, 7, thief.certificate))
    assert not believed(plane, thief, place / "b", trust=trust)
    assert believed(plane, other, place / "c", trust=trust)
    assert enroll(plane, place / "d", token=plane.token(), trust=trust).code == 0
    (place / "ca-crls.pem").write_text("garbage")
    done = enroll(plane, place / "e", token=plane.token(), trust=trust)
    assert done.code == 2 and done.error()["code"] == "ca_file_unusable", done
    assert str((place / "ca-crls.pem").resolve()) in done.error()["message"], done


@pytest.mark.parametrize("kind", ["device", "pipe", "too long"])
def test_a_ca_file_is_a_regular_file_of_a_bounded_size(plane, place, kind):
    """Nothing is read without end, and nobody is waited for."""
    file = place / "ca.pem"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file = "/dev/zero"
    else:
        file.write_bytes(plane.bundle + b"\n" * 256 * 1024)
    done = enroll(plane, place / "a", token=plane.token(), trust=("--ca-file", file))
    assert done.code == 2 and done.error()["code"] == "ca_file_unusable", done
