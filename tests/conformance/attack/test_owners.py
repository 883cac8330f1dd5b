"""One owner with many certificates, one host among its neighbours, and more newcomers than there are places: everybody else is served.

The control planes here may open few files, so that hundreds of connections use up what thousands would elsewhere;
`ENLIST_FILES=8192` gives them more.
"""

import contextlib
import itertools
import json
import os
import ssl
import threading
import time

import certs
import native
import pytest
from machine import PATIENCE, until
from operators import make_key
from owners import an_operator, certified, many_certificates
from sockets import read_to_end
from strangers import Siege, SmallPlane, get, promise_is_kept, reach, request

FILES = int(os.environ.get("ENLIST_FILES", "1024"))
EACH = 64
"""Connections of one owner, over all its certificates."""


@pytest.fixture
def small():
    with SmallPlane(FILES) as running:
        running.policy("failures.per_minute", "0")
        yield running


def is_open(connection) -> bool:
    """Whether the control plane has not closed it, whatever it still said."""
    connection.settimeout(0)
    try:
        while connection.recv(65536):
            pass
    except (ssl.SSLWantReadError, BlockingIOError):
        return True
    except OSError:
        pass
    return False


def test_a_node_with_many_certificates_keeps_nobody_out(small):
    """More connections than there are places for, each certificate with 64 of them: another node, an operator by certificate, one
    by key and a newcomer get in, and a live stream of the node itself goes on."""
    attacker, other = native.enroll(small), native.enroll(small)
    attacker.confirm()
    other.confirm()
    alice, key = an_operator(small), make_key(small, "viewer")["key"]
    certificates = many_certificates(attacker, FILES // EACH // 2 + 4)
    own = native.door(small, certificates[-1])
    streams = [(own, own.live(attacker.id)), ((door := other.door()), door.live(other.id))]
    for _, stream in streams:
        stream.next("welcome")

    def operator(certificate=None, headers=None):
        assert request(small, "/v1/nodes", "127.0.0.1", headers, certificate).status == 200

    with Siege(FILES, lambda i: certified(small, certificates[i % len(certificates)])):
        slowest = promise_is_kept(
            {
                "node": other.confirm,
                "operator by certificate": lambda: operator(certificate=alice),
                "operator by key": lambda: operator(headers={"Authorization": f"Bearer {key}"}),
                "enrollment": lambda: native.enroll(small),
            }
        )
        print(slowest)
        for _, stream in streams:
            assert not stream.ended.is_set(), f"the live stream was cut: {stream.error}"
            stream.heartbeat()
    for door, stream in streams:
        stream.close()
        door.close()


def test_an_owner_has_sixty_four_connections_over_all_its_certificates(small):
    """One more closes one that is idle, whichever certificate it came with."""
    node = native.enroll(small)
    node.confirm()
    certificates = many_certificates(node, 3)
    with contextlib.ExitStack() as held:
        connections = [
            held.enter_context(certified(small, certificates[i % 3])) for i in range(EACH + 16)
        ]

        streams = itertools.count(3, 2)

        def open_now() -> int:
            asked = get(next(streams), "/healthz")
            for connection in connections:
                # Whoever asks nothing for a minute is closed for that.
                connection.settimeout(5)
                with contextlib.suppress(OSError):
                    connection.sendall(asked)
            return sum(is_open(connection) for connection in connections)

        until(lambda: open_now() <= EACH, "those beyond 64 are closed")
        assert open_now() == EACH


def test_connections_of_every_certificate_end_with_the_node(small):
    """A revocation cuts the connections of all certificates of the node at once, and no one else's."""
    node, other = native.enroll(small), native.enroll(small)
    node.confirm()
    other.confirm()
    certificates = many_certificates(node, 3)
    with contextlib.ExitStack() as held:
        own = [held.enter_context(certified(small, files)) for files in certificates]
        others = held.enter_context(certified(small, other.files))
        small.cli("node", "revoke", node.id, "--reason", "test")
        until(lambda: not any(is_open(connection) for connection in own), "they are cut")
        assert is_open(others)


def silent(plane):
    return reach(plane, "127.1.2.3", tls=False, timeout=3)


def half(plane):
    connection = silent(plane)
    connection.sendall(b"\x16\x03\x01\x02\x00\x01")
    return connection


@pytest.mark.parametrize("shape", [silent, half])
def test_a_flood_of_one_host_leaves_its_neighbours_in(small, shape):
    """Twenty-four other hosts of the /24 that a host floods from, one of them with a node's certificate."""
    node = native.enroll(small)
    node.confirm()
    with Siege(min(FILES, 4000), lambda _: shape(small)):

        def neighbours():
            for last in range(10, 34):
                assert request(small, "/healthz", f"127.1.2.{last}").status == 200

        def neighbour_with_a_certificate():
            with contextlib.closing(certified(small, node.files, "127.1.2.40")) as connection:
                assert connection.recv(65536)

        for _ in range(3):
            neighbours()
            neighbour_with_a_certificate()


WAITING = 200
"""More than there are places for strangers, and not more than may wait."""


def test_who_waits_for_a_place_pays_for_one_handshake(programs):
    """Machines that boot at once, and take their time between the handshake and what they ask: each is served on the connection
    that it made first, because it waits before its handshake and not after it."""
    with SmallPlane(768) as plane:
        plane.policy("failures.per_minute", "0")
        bodies = [
            json.dumps({"bootstrap_token": plane.token(), "csr": certs.csr(certs.ec_key(), f"worker:m-{i}")}).encode()
            for i in range(WAITING)
        ]
        answers, lost, start = [], [], threading.Event()

        def machine(body: bytes) -> None:
            start.wait()
            head = b"POST /v1/enroll HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
            try:
                with reach(plane, "127.1.2.3", "http/1.1") as connection:
                    # Longer than a quiet place is left to who holds it.
                    threading.Event().wait(2)
                    connection.sendall(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                    answers.append(read_to_end(connection)[:12])
            except OSError as error:
                lost.append(repr(error))

        threads = [threading.Thread(target=machine, args=(body,), daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        start.set()
        end = time.monotonic() + PATIENCE
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        assert (len(lost), len(answers)) == (0, WAITING), (lost[:3], answers[:3])
        assert set(answers) <= {b"HTTP/1.1 200", b"HTTP/1.1 201"}, set(answers)
