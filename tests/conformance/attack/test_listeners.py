"""The listeners without TLS, for health checks and for metrics: what they serve, and whom they keep out."""

import contextlib
import os
import pathlib
import socket

import pytest

from daemons import free_port
from machine import until
from plane import ControlPlane
from strangers import Siege, plain, promise_is_kept

SERVED = {"--health": ("/healthz", "/readyz"), "--metrics": ("/metrics",)}
OTHERS = ("/", "/v1/nodes", "/v1/enroll", "/v1/ca/crl", "/v1/events", "/openapi.json")
LISTENING = "0A"


@pytest.fixture(params=sorted(SERVED))
def listening(request):
    """A control plane with one of them: its option, its port."""
    plane, port = ControlPlane().found(), free_port()
    with contextlib.closing(plane):
        plane.start(request.param, f"127.0.0.1:{port}")
        yield request.param, port


def listening_sockets(pid: int) -> int:
    """How many TCP sockets of a process listen."""
    held = set()
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        # One that has been closed since it was listed is no listener.
        with contextlib.suppress(FileNotFoundError):
            held.add(os.readlink(file))
    rows = [row.split() for row in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == LISTENING and f"socket:[{row[9]}]" in held for row in rows)


def test_neither_listens_unless_it_is_asked_to(plane):
    """The TLS port is the only one that is open."""
    assert listening_sockets(plane.process.pid) == 1


def test_each_serves_its_own_paths_alone(listening):
    """Nothing of the other's, and nothing of what is served with TLS."""
    option, port = listening
    every = {path for paths in SERVED.values() for path in paths}
    for path in SERVED[option]:
        assert plain(port, path).status == 200, path
    for path in every.difference(SERVED[option]).union(OTHERS):
        assert plain(port, path).status == 404, path


def silent(port: int, source: str):
    return socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0))


def test_connections_that_ask_nothing_keep_nobody_out(listening):
    """More of them than there are places, again and again: a check from elsewhere is answered in time."""
    option, port = listening

    def check():
        for path in SERVED[option]:
            assert plain(port, path).status == 200

    with Siege(300, lambda _: silent(port, "127.1.2.3"), workers=2):
        promise_is_kept({"check": check}, window=6)


def test_idle_connections_of_the_same_address_give_way(listening):
    """A monitor that never closes what it opened is served all the same: what is idle for a second is closed for others."""
    option, port = listening

    def answered() -> bool:
        with contextlib.suppress(ConnectionError):
            return plain(port, SERVED[option][0]).status == 200
        return False

    with contextlib.ExitStack() as held:
        for _ in range(200):
            held.enter_context(silent(port, "127.0.0.1"))
        until(answered, "a check was answered", patience=8)


def test_half_a_request_keeps_nobody_out(listening):
    """The same of connections whose request has begun."""
    option, port = listening

    def begun(_):
        connection = silent(port, "127.1.2.3")
        connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nX: ")
        return connection

    def check():
        for path in SERVED[option]:
            assert plain(port, path).status == 200

    with Siege(300, begun, workers=2):
        promise_is_kept({"check": check}, window=6)
