"""One tenant's hosts and operators use up whatever is few: everybody of another tenant, and whoever runs the domain, is served."""

import contextlib
import http.client
import socket
import threading
import time

import native
import pytest
import racks
from frames import Connection
from light_streams import request as live
from machine import PATIENCE, until
from operators import make_key
from owners import an_operator, certified
from plane import UnixConnection
from strangers import PREFACE, Siege, SmallPlane, frame, get, reach, request

FILES = 768
HOSTS = 6
"""With 64 connections each they have more than the control plane has places."""


@pytest.fixture
def domain():
    """With another tenant, whose operators may do what they like in it."""
    with SmallPlane(FILES) as plane:
        plane.policy("failures.per_minute", "0")
        assert plane.api("POST", "/v1/tenants", {"name": "other"}).status == 201
        yield plane


class SilentStreams:
    """Connections on which live streams are opened and nothing is said, not even Hello; a new one before the last one ends."""

    HEADERS = live("x")[9:]

    def __init__(self, plane, hosts: list):
        self.plane, self.hosts = plane, hosts
        self.opened: dict = {}

    def make(self, number: int):
        connection = certified(self.plane, self.hosts[number % len(self.hosts)].files)
        self.opened[connection] = (1, 0.0)
        self.poke(connection)
        return connection

    def poke(self, connection) -> None:
        stream, at = self.opened[connection]
        if time.monotonic() - at > 4:
            self.opened[connection] = (stream + 2, time.monotonic())
            connection.sendall(frame(1, 4, stream + 2, self.HEADERS))


def test_hosts_whose_streams_say_nothing_keep_nobody_out(domain):
    """A stream protects its connection once it has said Hello; a tenant's hosts then leave places to others."""
    node, connected = native.enroll(domain), native.enroll(domain)
    node.confirm()
    connected.confirm()
    alice = an_operator(domain)
    door = connected.door()
    stream = door.live(connected.id)
    stream.next("welcome")
    hosts = [native.enroll(domain, domain.token(tenant="other")) for _ in range(HOSTS)]
    for host in hosts:
        host.confirm()
    silent = SilentStreams(domain, hosts)
    with Siege(64 * HOSTS, silent.make, silent.poke):
        for _ in range(3):
            newcomer = native.enroll(domain)
            newcomer.confirm()
            node.confirm()
            assert request(domain, "/v1/nodes?limit=1", "127.0.0.1", certificate=alice).status == 200
    node.renewed()
    stream.heartbeat()
    assert not stream.ended.is_set(), "the stream that was there goes on"
    door.close()


def test_large_bodies_that_do_not_come_keep_nobody_out(domain):
    """Those of one tenant's platform-admins: the domain's own sets a configuration, by key and on the socket."""
    racks.vcluster(domain, "ml")
    admin = {"Authorization": f"Bearer {make_key(domain, 'platform-admin')['key']}"}
    keys = [make_key(domain, "platform-admin", "--tenant", "other")["key"] for _ in range(4)]
    over, held = threading.Event(), set()

    def drip(key: str) -> None:
        head = f"POST /v1/nodes/batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{"
        while not over.is_set():
            with contextlib.suppress(OSError), reach(domain, "127.1.2.3", "http/1.1") as connection:
                held.add(connection)
                connection.sendall(head.encode())
                connection.recv(4096)
                held.discard(connection)

    threads = [threading.Thread(target=drip, args=(key,), daemon=True) for key in keys for _ in range(5)]
    for thread in threads:
        thread.start()
    try:
        for number in range(6):
            document = {"document": {"number": number}}
            assert domain.https("PUT", "/v1/vclusters/ml/config", document, admin).status == 200
            assert domain.api("PUT", "/v1/vclusters/ml/config", document).status == 200
            machine = {"nodes": [{"node_id": f"m-{number}", "mac": racks.mac()}]}
            assert domain.api("POST", "/v1/nodes/batch", machine).status == 200
            over.wait(1)
    finally:
        over.set()
        for connection in list(held):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(PATIENCE)


def test_event_streams_of_one_tenant_keep_nobody_out(plane_of_its_own):
    """All 4,096 are held by sixteen keys of a tenant: the domain's viewer and the socket have one all the same."""
    plane = plane_of_its_own
    plane.api("POST", "/v1/tenants", {"name": "other"})
    own = {"Authorization": f"Bearer {make_key(plane, 'viewer')['key']}"}
    keys = [make_key(plane, "viewer", "--tenant", "other")["key"] for _ in range(16)]
    with contextlib.ExitStack() as held:
        connections = []
        for key in keys:
            for _ in range(32):
                connection = held.enter_context(contextlib.closing(Connection(plane, preface=PREFACE)))
                connection.send(b"".join(get(stream, "/v1/events", key) for stream in range(1, 17, 2)))
                connections.append(connection)
        deadline = time.monotonic() + 2 * PATIENCE
        while sum(len(connection.heads) for connection in connections) < 4096:
            assert time.monotonic() < deadline, "the streams were opened"
            for connection in connections:
                connection.look()
        over_tls = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=PATIENCE, context=plane.context())
        over_tls.request("GET", "/v1/events", headers=own)
        assert over_tls.getresponse().status == 200
        local = UnixConnection(str(plane.dir / "operator.sock"), PATIENCE)
        local.request("GET", "/v1/events")
        assert local.getresponse().status == 200
        over_tls.close()
        local.close()


def test_exports_that_nobody_reads_keep_nobody_out(plane_of_its_own):
    """Eight viewers leave an export of the trail unread: an admin and the socket have theirs, long before the minute is over after
    which an export that is not read ends."""
    plane = plane_of_its_own
    admin = {"Authorization": f"Bearer {make_key(plane, 'platform-admin')['key']}"}
    keys = [make_key(plane, "viewer")["key"] for _ in range(8)]
    for batch in range(10):
        machines = [{"node_id": f"m-{batch}-{number}", "mac": racks.mac()} for number in range(400)]
        assert plane.api("POST", "/v1/nodes/batch", {"nodes": machines}).status == 200
    with contextlib.ExitStack() as held:
        for key in keys:
            connection = held.enter_context(contextlib.closing(Connection(plane)))
            connection.send(get(1, "/v1/audit/export", key))
            until(lambda connection=connection: connection.look() or connection.heads, "an export began")
        until(lambda: plane.https("GET", "/v1/audit/export", None, admin).status == 200, "an admin has an export", 25)
        until(lambda: plane.api("GET", "/v1/audit/export").status == 200, "the socket has an export", 25)
