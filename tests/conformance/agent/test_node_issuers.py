"""What verifies nodes, on the host: `identity/current/node-issuers.pem`, by which nobody trusts the control plane. D13, GPU-10."""

import os

import pytest

import certs
import ephemeral
import native
from agents import enroll
from daemons import Daemon
from impostors import Crossing
from linked import mode
from machine import until
from rolls import prepare, states


@pytest.fixture
def running(plane):
    made = []

    def make(of=None, **environment) -> Daemon:
        made.append(Daemon(of or plane, (of or plane).token(), **environment))
        return made[-1].start().wait_connected()

    yield make
    for daemon in made:
        daemon.stop()
        daemon.note_secrets()


def held(daemon, name: str = "node-issuers.pem") -> list[str]:
    """Fingerprints, in their order."""
    return [certs.fingerprint(one) for one in certs.certificates((daemon.current / name).read_bytes())]


def generation(daemon) -> int:
    return int(os.readlink(daemon.dir / "identity/current"))


def test_a_host_has_what_verifies_nodes_beside_what_verifies_the_control_plane(plane, place):
    """Proves GPU-10: the variable's path leads there, and openssl verifies the host's own certificate by it."""
    link = place / "gpu" / "nodes.pem"
    done = enroll(plane, place / "a", token=plane.token(), env={"GPUAAS_NODE_CERT_CA_BUNDLE_PATH": str(link)})
    assert done.code == 0, done
    current = place / "a/identity/current"
    assert os.readlink(link) == str(current / "node-issuers.pem") and mode(link) == 0o644
    leaf = (current / "cert.pem").read_bytes()
    assert certs.verifies(leaf, link.read_bytes(), "-purpose", "sslclient")
    own, issuer, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    assert own not in certs.certificates(link.read_bytes()) and issuer not in certs.certificates(link.read_bytes())
    assert certs.certificates((current / "bundle.pem").read_bytes()) == certs.certificates(plane.bundle), "roots alone"


def test_the_next_issuer_of_nodes_is_there_before_it_signs_and_one_change_is_one_generation(plane_of_its_own, running):
    """And what was retired is gone."""
    plane = plane_of_its_own
    daemon = running(plane)
    before, written = held(daemon), generation(daemon)
    next_one = certs.fingerprint(certs.certificate(prepare(plane).read_bytes()))
    until(lambda: next_one in held(daemon), "the prepared issuer is on the host")
    assert set(held(daemon)) == {*before, next_one} and held(daemon)[-1] == before[-1]
    assert generation(daemon) == written + 1
    assert held(daemon, "bundle.pem") == before[-1:]
    assert states(plane) == ["active", "prepared"]


def test_an_issuer_in_memory_that_is_replaced_costs_each_host_one_generation(running):
    """A restart of the control plane makes another; the host follows on its next stream, and trusts neither for the control plane."""
    with Crossing() as crossing, ephemeral.control_plane(init=("--advertise", f"https://127.0.0.1:{crossing.port}")) as plane:
        crossing.lead(plane.port)
        daemon = running(plane, ENLIST_AGENT_SERVER=f"https://127.0.0.1:{crossing.port}")
        first = certs.fingerprint(ephemeral.anchor(plane))
        until(lambda: first in held(daemon), "the issuer is on the host")
        written = generation(daemon)
        plane.restart()
        crossing.lead(plane.port)
        second = certs.fingerprint(ephemeral.anchor(plane))
        until(lambda: second in held(daemon), "the next issuer is on the host", 60)
        daemon.wait_connected()
        assert first in held(daemon), "certificates of it are good still"
        assert generation(daemon) == written + 1
        assert set(held(daemon, "bundle.pem")) == {certs.fingerprint(one) for one in certs.certificates(plane.bundle)}


def test_a_host_of_an_older_version_is_sent_a_bundle_once_per_change(plane_of_its_own):
    """It says nothing of issuers of nodes, so it is sent none when it connects. One that has others is sent them once."""
    plane = plane_of_its_own
    node = native.enroll(plane, plane.token())
    node.confirm()
    assert node.answer.node_issuers_version and node.answer.node_issuers
    with node.door() as door:
        older = door.live(node.id, bundle=node.answer.bundle_version)
        assert count_bundles(older) == 0, "it keeps no issuers of nodes"
        prepare(plane)
        changed = older.next("bundle")
        assert changed.version > node.answer.bundle_version and changed.node_issuers != node.answer.node_issuers
        assert count_bundles(older) == 0
        older.close()
        for known, sent in ((0, 1), (changed.node_issuers_version, 0)):
            newer = door.live(node.id, bundle=changed.version, node_issuers_version=known)
            assert count_bundles(newer) == sent
            newer.close()


def count_bundles(stream) -> int:
    """How many come while five heartbeats are answered, one after the other: what was due before one comes before its answer's next."""
    found = 0
    for _ in range(5):
        stream.heartbeat()
        kind = ""
        while kind != "ack":
            kind, _ = stream.down.get(timeout=30)
            assert kind is not None, stream.error
            found += kind == "bundle"
    return found
