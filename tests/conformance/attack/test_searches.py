"""What is dear for the control plane and cheap for whoever asks: searches through large labels, and requests with many header fields."""

import contextlib
import http.client
import json
import threading

import native
import pytest
import racks
from frames import Connection
from machine import PATIENCE
from operators import make_key
from strangers import PREFACE, get, promise_is_kept, request

NODES = 1000


@pytest.fixture
def labelled(plane_of_its_own):
    """Another tenant's nodes have as many labels as they may, of letters whose lower case is dear."""
    plane = plane_of_its_own
    assert plane.api("POST", "/v1/tenants", {"name": "other"}).status == 201
    for first in range(0, NODES, 500):
        nodes = [{"tenant": "other", "node_id": f"n-{first + i}", "mac": racks.mac()} for i in range(500)]
        assert plane.api("POST", "/v1/nodes/batch", {"nodes": nodes}).status == 200
    key = make_key(plane, "operator", "--tenant", "other")["key"]
    labels = json.dumps({"set": {f"{'K' * 58}{number:03}": "Σ" * 128 for number in range(32)}}).encode()
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=PATIENCE, context=plane.context())
    ) as connection:
        for number in range(NODES):
            connection.request("POST", f"/v1/nodes/n-{number}/label", labels, head)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, number
    return plane


def test_searches_of_one_viewer_keep_nobody_waiting(labelled):
    """Sixty-four at a time, through labels that are as large as they may be: requests on the socket, with another key, of a node and
    of strangers are answered in time."""
    plane = labelled
    viewer = make_key(plane, "viewer", "--tenant", "other")["key"]
    other = {"Authorization": f"Bearer {make_key(plane, 'viewer')['key']}"}
    node = native.enroll(plane)
    node.confirm()
    over, searched = threading.Event(), []

    def search() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), contextlib.closing(Connection(plane, preface=PREFACE)) as connection:
                connection.send(b"".join(get(n, "/v1/nodes?search=zzz", viewer) for n in range(1, 17, 2)))
                while not over.is_set() and len(connection.ended_streams) < 8 and not connection.ended:
                    connection.look(0.2)
                searched.extend(connection.ended_streams)

    threads = [threading.Thread(target=search, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        slowest = promise_is_kept(
            {
                "socket": lambda: plane.api("GET", "/v1/nodes?limit=1"),
                "health": lambda: request(plane, "/healthz", "127.0.0.1"),
                "key": lambda: request(plane, "/v1/nodes?limit=1", "127.0.0.1", other),
                "node": node.confirm,
            }
        )
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    print(slowest)
    assert searched, "there were searches"
    found = plane.cli("node", "list", "--search", "n-999").lines()
    assert [item["node_id"] for item in found] == ["n-999"], "a search of many pages comes to its end"


def test_a_request_has_sixty_four_header_fields_at_most(plane):
    """A field costs far more memory than it has bytes on the wire, and is kept until the request is answered."""
    answers = [request(plane, "/healthz", "127.0.0.1", {f"x-{n}": "y" for n in range(count)}) for count in (50, 70)]
    assert [answer.status for answer in answers] == [200, 413] and answers[1].code == "too_large", answers
