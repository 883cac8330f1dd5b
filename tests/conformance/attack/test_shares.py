"""Strangers that take every place there is, and others that are served all the same.

The control planes here may open 1,024 files, so that a few hundred connections use up what thousands would elsewhere.
"""

import contextlib
import select
import threading
import time

import pytest

import certs
import handshakes
import machine
import native
from operators import make_key
from sockets import read_to_end
from strangers import PREFACE, Siege, SmallPlane, get, post, reach, request, promise_is_kept


@pytest.fixture
def small():
    with SmallPlane() as running:
        running.policy("failures.per_minute", "0")
        yield running


def everyone_is_served(plane, node, key: str) -> None:
    """A health check, an API key, a node and a newcomer, none of them from an attacker's network."""
    header = {"Authorization": f"Bearer {key}"}

    def health():
        assert request(plane, "/healthz", "127.0.0.1").status == 200

    def operator():
        assert request(plane, "/v1/nodes", "127.0.0.1", header).status == 200

    def heartbeat():
        node.confirm()

    def enrollment():
        assert native.enroll(plane).id

    slowest = promise_is_kept(
        {"health": health, "API key": operator, "node": heartbeat, "enrollment": enrollment}
    )
    print(slowest)


def known(plane) -> tuple:
    node = native.enroll(plane)
    node.confirm()
    return node, make_key(plane, "viewer")["key"]


def test_silent_connections_of_one_address_keep_nobody_out(small):
    """Connections that never begin a handshake are shared by networks, and give way to others within a second."""
    node, key = known(small)
    with Siege(800, lambda _: reach(small, "127.1.2.3", tls=False, timeout=3)):
        everyone_is_served(small, node, key)


def test_half_a_handshake_of_one_address_keeps_nobody_out(small):
    """The same of those that have begun one."""
    node, key = known(small)

    def begin(_):
        connection = reach(small, "127.1.2.3", tls=False, timeout=3)
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
        return connection

    with Siege(800, begin):
        everyone_is_served(small, node, key)


def test_quiet_connections_from_four_networks_keep_nobody_out(small):
    """Strangers that have asked something and stay: the oldest idle one of the largest network is closed."""
    node, key = known(small)

    def ask_and_stay(i):
        connection = reach(small, f"127.{2 + i % 4}.1.1", "h2", timeout=10)
        connection.sendall(PREFACE + get(1, "/healthz"))
        return connection

    with Siege(800, ask_and_stay):
        everyone_is_served(small, node, key)


def test_one_network_may_have_every_place_that_is_idle(small):
    """A fleet behind one address gets in: as long as there is room, nobody's share is smaller for coming from there."""
    connections = [reach(small, "127.1.2.3", "http/1.1") for _ in range(90)]
    try:
        for _ in range(2):
            for connection in connections:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()


def test_an_api_key_leaves_the_strangers_places(small):
    """A connection on which a key was good stays, however many strangers come after it."""
    _, key = known(small)
    ask = f"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with reach(small, "127.1.2.4", "http/1.1") as operator:
        strangers, asked = [], 0.0
        try:
            for _ in range(300):
                # Now and then, because on HTTP/1.1 nobody may be quiet for ten seconds.
                if time.monotonic() - asked > 1:
                    operator.sendall(ask)
                    assert operator.recv(65536).startswith(b"HTTP/1.1 200")
                    asked = time.monotonic()
                with contextlib.suppress(OSError):
                    strangers.append(reach(small, "127.1.2.3", "http/1.1", timeout=5))
            operator.sendall(ask)
            assert operator.recv(65536).startswith(b"HTTP/1.1 200")
        finally:
            for connection in strangers:
                connection.close()


def dripping(plane, source: str):
    """HTTP/2 connections with eight unfinished large bodies each, and a byte more for each now and then."""

    def make(_):
        connection = reach(plane, source, "h2", timeout=10)
        connection.sendall(PREFACE + b"".join(post(n, "/v1/enroll", length=60_000) for n in range(1, 17, 2)))
        return connection

    def poke(connection):
        connection.sendall(b"".join(b"\x00\x00\x01\x00\x00" + n.to_bytes(4, "big") + b" " for n in range(1, 17, 2)))

    return make, poke


def test_dripping_bodies_of_one_address_keep_nobody_out(plane_of_its_own):
    """More unfinished bodies than there are places, from one address: an enrollment from elsewhere is read at once."""
    plane = plane_of_its_own
    node, key = known(plane)
    make, poke = dripping(plane, "127.1.2.3")
    with Siege(160, make, poke):
        everyone_is_served(plane, node, key)


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
def test_a_stranger_cannot_hold_a_place_by_dripping(plane_of_its_own, alpn):
    """A stranger's body has five seconds, and then only as long as it comes at 1 KiB/s; it had 30 s."""
    began = time.monotonic()
    with reach(plane_of_its_own, "127.1.2.3", alpn) as connection:
        if alpn == "h2":
            connection.sendall(PREFACE + post(1, "/v1/enroll"))
            more = b"\x00\x00\x01\x00\x00\x00\x00\x00\x01 "
        else:
            head = b"POST /v1/enroll HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 5000\r\n\r\n{")
            more = b" "
        answered = threading.Event()
        answer = []

        def read():
            with contextlib.suppress(OSError):
                while data := connection.recv(65536):
                    answer.append(data)
                    if b"408" in data or b"timeout" in data:
                        break
            answered.set()

        connection.settimeout(40)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while not answered.wait(0.5) and time.monotonic() - began < 40:
            with contextlib.suppress(OSError):
                connection.sendall(more)
        took = time.monotonic() - began
        reader.join(5)
    assert 4 < took < 20, took
    assert b"timeout" in b"".join(answer) or not answer, answer[-1:]


def test_a_body_that_comes_steadily_is_read_to_its_end(plane_of_its_own):
    """A slow line is no attack: at more than 1 KiB/s a stranger may take longer than five seconds."""
    body = b'{"bootstrap_token":"x","csr":"' + b"A" * 16000 + b'"}'
    with reach(plane_of_its_own, "127.1.2.3", "http/1.1") as connection:
        head = b"POST /v1/enroll HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode())
        began = time.monotonic()
        paced = threading.Event()
        for i in range(0, len(body), 1000):
            connection.sendall(body[i : i + 1000])
            paced.wait(0.45)
        assert time.monotonic() - began > 6
        assert read_to_end(connection).startswith((b"HTTP/1.1 400", b"HTTP/1.1 401"))


def test_enrollments_behind_one_address_all_get_in(small):
    """Hundreds at once from one address, with fewer places than that."""
    tokens = [small.token() for _ in range(150)]
    done, failed = [], []

    def one(token):
        csr, end = certs.csr(certs.ec_key()), time.monotonic() + machine.PATIENCE
        while time.monotonic() < end:
            try:
                with native.door(small) as door:
                    done.append(door.enroll(token, csr, token[-20:]).node_id)
                return
            except native.Refused as refusal:
                if refusal.code not in (None, "overloaded"):
                    failed.append(refusal)
                    return
                threading.Event().wait(0.1)
        failed.append("no place in a minute")

    threads = [threading.Thread(target=one, args=(token,), daemon=True) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 150 and not failed, failed[:3]


def test_a_burst_behind_one_address_is_late_and_not_refused(small):
    """Three times as many handshakes at once as there are places for them: each is answered at its first try."""
    hello = handshakes.record(handshakes.hello(groups=(handshakes.X25519MLKEM768, handshakes.X25519)))
    poll, waiting, refused = select.poll(), {}, 0
    for _ in range(300):
        connection = reach(small, "127.1.2.3", tls=False)
        connection.sendall(hello)
        waiting[connection.fileno()] = connection
        poll.register(connection, select.POLLIN | select.POLLHUP)
    end = time.monotonic() + machine.PATIENCE
    while waiting and time.monotonic() < end:
        for number, _ in poll.poll(1000):
            poll.unregister(number)
            with waiting.pop(number) as connection:
                try:
                    refused += not connection.recv(1)
                except ConnectionError:
                    refused += 1
    assert (refused, len(waiting)) == (0, 0), "closed, and without an answer"
