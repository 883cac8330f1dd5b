"""What one operator asks for and does not read, and what it asks for again and again: it costs the others nothing."""

import contextlib
import json
import threading

import pytest

import pacts
import racks
from frames import END_STREAM, WINDOW_UPDATE, Connection, call
from machine import until
from operators import make_key
from plane import ControlPlane
from strangers import PREFACE, frame, get, reach

NODES = 3000
LIST = "/pact.enrollment.EnrollmentService/ListNodes"


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        pacts.allow_hardware(running)
        nodes = [{"node_id": f"unread-{n}", "mac": racks.mac()} for n in range(NODES)]
        assert running.api("POST", "/v1/nodes/batch", {"nodes": nodes}).json()["succeeded"] == NODES
        yield running


def key(plane, role: str) -> str:
    return make_key(plane, role)["key"]


def listed(plane, holder: str) -> int:
    with pacts.Door(plane, key=holder, options=pacts.BATCH_OPTIONS) as door:
        return len(door.call("ListNodes", pacts.pb.ListNodesRequest()).nodes)


def all_answered(connections: list) -> bool:
    for connection in connections:
        connection.look()
    return all(len(connection.heads) == 8 for connection in connections)


@pytest.mark.parametrize("ask", [call, get])
def test_lists_that_one_viewer_does_not_read_fill_no_memory(plane, ask):
    """1,024 lists of the fleet, of which no byte is taken: few are kept, the rest is refused, others have theirs."""
    viewer, other = key(plane, "viewer"), key(plane, "viewer")
    path = LIST if ask is call else "/v1/nodes?limit=1000"
    assert listed(plane, other) >= NODES
    before = plane.status("VmRSS")
    with contextlib.ExitStack() as opened:
        connections = []
        for _ in range(128):
            connections.append(opened.enter_context(contextlib.closing(Connection(plane))))
            assert connections[-1].send(b"".join(ask(stream, path, viewer) for stream in range(1, 17, 2)))
            until(lambda: all_answered(connections[-1:]), "every call is answered or refused", 120)
        grown = plane.status("VmRSS") - before
        refused = sum(flags & END_STREAM for connection in connections for flags in connection.heads.values())
        print(f"grown by {grown} KiB, {refused} of 1024 refused")
        # A refusal by gRPC is a head alone; of one in JSON the body is not taken either.
        assert grown < 100_000 and (refused > 512 or ask is get)
        assert listed(plane, other) >= NODES, "another viewer has its own share"
        page = plane.https("GET", "/v1/nodes?limit=1000", None, {"Authorization": f"Bearer {other}"})
        assert page.status == 200 and len(page.json()["items"]) == 1000
        assert plane.api("GET", "/v1/nodes?limit=1000").status == 200
        assert plane.https("GET", "/healthz").status == 200
    until(lambda: listed_or_refused(plane, viewer), "the share is free again", 60)


def listed_or_refused(plane, holder: str) -> int | None:
    try:
        return listed(plane, holder)
    except pacts.Refused as refusal:
        assert refusal.code == "overloaded", refusal
        return None


def test_a_large_answer_arrives_whole(plane):
    """Pieces of it are what it was: over HTTP/1.1 and HTTP/2, JSON and gRPC."""
    viewer = key(plane, "viewer")
    header = {"Authorization": f"Bearer {viewer}"}
    first = plane.https("GET", "/v1/nodes?limit=1000", None, header)
    assert len(first.body) > 100_000 and int(first.headers["content-length"]) == len(first.body)
    assert json.loads(first.body)["items"] == plane.api("GET", "/v1/nodes?limit=1000").json()["items"]
    with pacts.Door(plane, key=viewer, options=pacts.BATCH_OPTIONS) as door:
        nodes = door.call("ListNodes", pacts.pb.ListNodesRequest()).nodes
    assert {node.node_id for node in nodes} >= {f"unread-{n}" for n in range(NODES)}


def test_changes_that_one_viewer_does_not_read_fill_no_memory(plane):
    """192 event streams of one tenant's viewer that stop where all that has changed since is due: few have it."""
    viewer = make_key(plane, "viewer", "--tenant", "default")["key"]
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(contextlib.closing(Connection(plane))) for _ in range(24)]
        for connection in connections:
            assert connection.send(b"".join(get(stream, "/v1/events", viewer) for stream in range(1, 17, 2)))
        until(lambda: answers(connections) == 192, "every stream has begun", 120)
        # What each stream waits with is short; all that comes after it is one piece then.
        racks.register(plane, "changed-first")
        more = [{"node_id": f"changed-{n}", "mac": racks.mac()} for n in range(NODES)]
        assert plane.api("POST", "/v1/nodes/batch", {"nodes": more}).json()["succeeded"] == NODES
        before = plane.status("VmRSS")
        # Room for what was waiting, and for the beginning of what follows.
        room = b"".join(frame(WINDOW_UPDATE, 0, stream, (60_000).to_bytes(4, "big")) for stream in range(1, 17, 2))
        for connection in connections:
            connection.send(frame(WINDOW_UPDATE, 0, 0, (1 << 24).to_bytes(4, "big")) + room)

        def filled() -> bool:
            answers(connections)
            return all(sum(n == 60_000 for n in c.taken.values()) + len(ends(c)) == 8 for c in connections)

        until(filled, "every stream has as much as it takes, or has ended", 240)
        grown = plane.status("VmRSS") - before
        print(f"grown by {grown} KiB, {sum(len(ends(connection)) for connection in connections)} streams ended")
        assert grown < 110_000


def test_a_viewer_that_floods_the_trail_goes_after_the_admin(plane):
    """800 timelines at once: an administrator's pages of the trail wait for what is being read, and not for all."""
    viewer, admin = key(plane, "viewer"), key(plane, "platform-admin")
    page = f"GET /v1/audit?event_type=none HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {admin}\r\n\r\n".encode()
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(contextlib.closing(Connection(plane, preface=PREFACE))) for _ in range(100)]
        own = opened.enter_context(contextlib.closing(reach(plane, "127.0.0.1", "http/1.1")))
        asked = b"".join(get(stream, "/v1/nodes/unread-7/timeline", viewer) for stream in range(1, 17, 2))
        for connection in connections:
            assert connection.send(asked)
        passed = []
        while (before := answers(connections)) < 400:
            own.sendall(page)
            assert own.recv(65536).startswith(b"HTTP/1.1 200")
            passed.append(answers(connections) - before)
        print(f"{passed} of 800 timelines were answered while the administrator waited")
        assert max(passed) < 200
        until(lambda: answers(connections) == 800, "the viewer has its answers, too", 240)


def ends(connection: Connection) -> set:
    """Streams that the control plane has ended early."""
    return connection.ended_streams - {stream for stream, taken in connection.taken.items() if taken == 60_000}


def answers(connections: list) -> int:
    for connection in connections:
        connection.look()
    return sum(len(connection.heads) for connection in connections)


def test_exports_that_one_viewer_does_not_read_keep_nobody_out(plane):
    """There are eight at a time: whoever has most of them loses the one that began first."""
    viewer, admin = key(plane, "viewer"), key(plane, "platform-admin")
    with contextlib.closing(Connection(plane)) as connection:
        assert connection.send(b"".join(get(stream, "/v1/audit/export", viewer) for stream in range(1, 17, 2)))
        until(lambda: all_answered([connection]), "eight exports have begun", 60)
        answer = plane.https("GET", "/v1/audit/export", None, {"Authorization": f"Bearer {admin}"})
        assert answer.status == 200, answer
        lines = answer.body.splitlines()
        assert len(lines) > NODES and "footer" in json.loads(lines[-1]), "whole, with its signed end"


def test_verifications_of_one_viewer_keep_nobody_out(plane):
    """One credential verifies once at a time, and leaves room for another's."""
    viewer, admin = key(plane, "viewer"), key(plane, "platform-admin")
    over = threading.Event()

    def verify():
        while not over.is_set():
            plane.https("GET", "/v1/audit/verify", None, {"Authorization": f"Bearer {viewer}"})

    threads = [threading.Thread(target=verify, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            answer = plane.https("GET", "/v1/audit/verify", None, {"Authorization": f"Bearer {admin}"})
            assert answer.status == 200 and answer.json()["ok"], answer
    finally:
        over.set()
        for thread in threads:
            thread.join()
