"""What listens on the socket of the Workload API may be anything: it costs the agent nothing and takes nothing away from it."""

import os
import pathlib
import socket
import threading

import grpc
import pytest
from certs import x509
from daemons import Daemon
from false_spire import WorkloadApi, answer, pb, pkcs8, signed
from machine import scratch, until

import certs
import evidence


def path() -> pathlib.Path:
    return scratch("sock") / "api.sock"


def svid(uri: str, key_of_another: bool = False):
    """Signed by a CA that nobody knows."""
    key = certs.ec_key()
    nobody = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "SPIFFE")])
    leaf = signed(key.public_key(), uri, nobody, certs.ec_key(), 3600)
    shown = certs.ec_key() if key_of_another else key
    return pb.X509SVID(spiffe_id=uri, x509_svid=certs.der(leaf), x509_svid_key=pkcs8(shown))


def endless(context):
    one = answer(svid("spiffe://spire.example/enlist/n"))
    while context.is_active():
        yield one


STUBS = {
    "another trust domain": lambda context: iter([answer(svid("spiffe://nowhere.example/enlist/n"))]),
    "our own trust domain": lambda context: iter([answer(svid("spiffe://test.example/tenant/default/agent/n"))]),
    "a key of another": lambda context: iter([answer(svid("spiffe://spire.example/enlist/n", key_of_another=True))]),
    "garbage": lambda context: iter([answer(pb.X509SVID(spiffe_id="x" * 9000, x509_svid=b"\x30\x82", x509_svid_key=b"k"))]),
    "nothing": lambda context: iter([answer()]),
    "huge": lambda context: iter([answer(pb.X509SVID(x509_svid=b"\x00" * (8 << 20)))]),
    "endless": endless,
    "refuses": lambda context: context.abort(grpc.StatusCode.PERMISSION_DENIED, "no identity issued\x1b[31m"),
}


def living_on_its_own(daemon, seconds: float = 4.0) -> None:
    """Connected and ready by its own certificate, and it stays so."""
    daemon.wait_connected()
    first = daemon.status()
    assert (first["identity_provider"], first["ready"]) == ("control-plane", True), first


@pytest.fixture
def host(plane):
    made = []

    def start(address) -> Daemon:
        token = plane.token()
        daemon = Daemon(plane, token=token, ENLIST_AGENT_SPIRE_SOCKET=str(address))
        made.append(daemon)
        return daemon.start()

    yield start
    for daemon in made:
        daemon.stop()
        daemon.note_secrets()


@pytest.mark.parametrize("kind", STUBS)
def test_whatever_is_served_there_the_host_lives_on_its_own_certificate(host, plane, kind):
    stub = WorkloadApi(STUBS[kind])
    try:
        daemon = host(stub.path)
        living_on_its_own(daemon)
        asked = stub.asked
        until(lambda: stub.asked > asked or kind in ("endless", "another trust domain"), "it is asked again")
        living_on_its_own(daemon)
        assert daemon.memory_kib() < 80_000
        assert plane.node(daemon.node_id())["identity_provider"] == "control-plane"
        assert "\x1b" not in daemon.log()
    finally:
        stub.close()


def listener(serve) -> pathlib.Path:
    """A socket that is no gRPC at all."""
    place = path()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place))
    listening.listen(8)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return place


def silent(connection) -> None:
    while connection.recv(4096):
        pass


def babble(connection) -> None:
    try:
        while True:
            connection.sendall(os.urandom(4096))
    except OSError:
        pass


@pytest.mark.parametrize("serve", [silent, babble])
def test_a_socket_that_is_not_spire(host, serve):
    daemon = host(listener(serve))
    living_on_its_own(daemon)
    assert daemon.memory_kib() < 80_000


def test_a_file_that_is_no_socket(host):
    place = path()
    place.write_text("not a socket")
    living_on_its_own(host(place))


def test_an_address_that_is_no_socket_of_this_host_is_a_mistake(plane):
    daemon = Daemon(plane, token=plane.token(), ENLIST_AGENT_SPIRE_SOCKET="tcp://127.0.0.1:1").start()
    assert daemon.process.wait(60) == 2
    assert "spire.socket" in daemon.log()
    evidence.token(daemon.environment["ENLIST_AGENT_TOKEN"])
