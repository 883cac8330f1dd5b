"""The live stream: hello, heartbeats, evidence up; bundles, standing and orders down. D17, D21, D33, D34."""

import socket
import threading
import time

import grpc
import native
import pytest
from machine import until


@pytest.fixture
def node(plane):
    return native.enroll(plane)


def shown(plane, node):
    return plane.api("GET", f"/v1/nodes/{node.id}").json()


def test_hello_confirms_and_is_welcomed(plane, node):
    """D17: the first authenticated request is the confirmation."""
    with node.door() as door:
        live = door.live(node.id)
        welcome = live.next("welcome")
        assert welcome.heartbeat_ms == 30_000
        assert welcome.standing.state == "active"
        assert abs(welcome.server_time_ms - time.time() * 1000) < 60_000
        assert shown(plane, node)["state"] == "active"
        live.heartbeat()
        assert live.next("ack").server_time_ms >= welcome.server_time_ms
        live.close()


def test_hello_for_another_node_is_refused(plane, node):
    other = native.enroll(plane)
    with node.door() as door:
        error = door.live(other.id).wait_end()
    assert (error.status, error.code) == (grpc.StatusCode.PERMISSION_DENIED, "not_your_node")
    assert error.request_id


def test_anything_before_hello_is_refused(plane, node):
    with node.door() as door:
        live = door.live()
        live.heartbeat()
        error = live.wait_end()
    assert (error.status, error.code) == (grpc.StatusCode.FAILED_PRECONDITION, "hello_expected")
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        live.hello(node.id)
        assert live.wait_end().code == "bad_request"


def test_without_a_certificate_there_is_no_stream(plane):
    with native.door(plane) as door:
        assert door.live("n1").wait_end().code == "unauthenticated"


def test_the_fifth_stream_is_refused(plane, node):
    doors = [node.door() for _ in range(5)]
    streams = [door.live(node.id, instance="one") for door in doors[:4]]
    for live in streams:
        live.next("welcome")
    error = doors[4].live(node.id, instance="one").wait_end()
    assert (error.status, error.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_many_streams")
    streams[0].close()

    def again():
        live = doors[4].live(node.id, instance="one")
        try:
            return live.next("welcome")
        except AssertionError:
            return None

    until(again, "a place is free again")
    for door in doors:
        door.close()


def test_a_hundred_streams_with_one_certificate_leave_the_server_well(plane, node):
    with node.door() as door:
        streams = [door.live(node.id, instance="one") for _ in range(64)]
        until(lambda: sum(live.ended.is_set() for live in streams) >= 60, "the others are refused")
        for live in streams:
            live.close()
    assert plane.https("GET", "/healthz").status == 200


def test_a_flood_of_messages_ends_the_stream(plane, node):
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        for _ in range(3000):
            live.heartbeat()
        error = live.wait_end()
        assert error is None or error.status == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert plane.https("GET", "/healthz").status == 200


def test_what_changes_is_told(plane, node):
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        assert plane.api("POST", f"/v1/nodes/{node.id}/drain", {"within": "10m"}).status == 200
        standing = live.next("standing")
        assert standing.draining and standing.drain_by
        plane.api("POST", f"/v1/nodes/{node.id}/undrain")
        assert not live.next("standing").draining
        plane.api("POST", f"/v1/nodes/{node.id}/quarantine", {"reason": "looks odd"})
        assert live.next("standing").quarantined
        plane.api("POST", f"/v1/nodes/{node.id}/release")
        assert not live.next("standing").quarantined
        live.close()


def test_an_order_goes_to_the_newest_stream(plane, node):
    with node.door() as first_door, node.door() as second_door:
        first = first_door.live(node.id, instance="one")
        first.next("welcome")
        second = second_door.live(node.id, instance="one")
        second.next("welcome")
        plane.api("POST", f"/v1/nodes/{node.id}/rotate")
        order = second.next("order")
        assert order.WhichOneof("order") == "renew_now"
        assert all(kind != "order" for kind, _ in list(first.down.queue))
        second.close()
        # The one that is left gets what is not done yet.
        assert first.next("order").order_id == order.order_id
        node.renewed()
        until(lambda: shown(plane, node).get("rotation_ordered_at") is None, "the order is done")
        first.close()


def test_an_order_waits_for_a_node_that_is_away(plane, node):
    node.confirm()
    plane.api("POST", f"/v1/nodes/{node.id}/rotate")
    plane.api("POST", f"/v1/nodes/{node.id}/rotate")
    ordered = [line for line in plane.audit() if line["event_type"] == "certificate.rotation_ordered"]
    assert [line["node_id"] for line in ordered].count(node.id) == 1
    with node.door() as door:
        live = door.live(node.id)
        assert live.next("order").order_id
        live.close()


def test_silence_makes_inactive_and_a_word_makes_active(plane, node):
    """D21; a node that never opened a stream does not fall by silence."""
    quiet = native.enroll(plane)
    quiet.confirm()
    plane.policy("liveness.grace", "2s")
    plane.policy("liveness.interval", "1s")
    try:
        with node.door() as door:
            live = door.live(node.id)
            assert live.next("welcome").heartbeat_ms == 1000
            until(lambda: shown(plane, node)["state"] == "inactive", "it falls silent")
            live.heartbeat()
            until(lambda: shown(plane, node)["state"] == "active", "it is back")
            live.close()
        until(lambda: shown(plane, node)["state"] == "inactive", "it falls silent again")
        node.confirm()
        assert shown(plane, node)["state"] == "active"
        assert shown(plane, quiet)["state"] == "active"
        kinds = [line["event_type"] for line in plane.audit() if line.get("node_id") == node.id]
        assert kinds.count("host.inactive") >= 2 and "host.seen" not in kinds
    finally:
        plane.policy("liveness.grace", "5m")
        plane.policy("liveness.interval", "30s")


def test_an_earlier_start_that_comes_back_looks_like_a_copy(plane, node):
    with node.door() as door:
        for instance in ("first", "second"):
            live = door.live(node.id, instance=instance)
            live.next("welcome")
            live.close()
        live = door.live(node.id, instance="first")
        live.next("welcome")

        def alarm():
            return next((a for a in shown(plane, node)["alerts"] if a["kind"] == "clone_suspected"), None)

        alert = until(alarm, "the alert is raised")
        assert alert["detail"].count("127.0.0.1") == 2
        live.close()
    # An operator has looked into it.
    plane.api("POST", f"/v1/nodes/{node.id}/release")
    assert alarm() is None
    (line,) = [line for line in plane.audit("alert.cleared") if line["alert_id"] == alert["alert_id"]]
    assert line["actor"].startswith("local:")


def test_a_copy_may_cost_the_node_its_freedom(plane, node):
    plane.policy("clone", "quarantine")
    try:
        with node.door() as door:
            for instance in ("first", "second", "first"):
                live = door.live(node.id, instance=instance)
                live.next("welcome")
                live.close()
        until(lambda: shown(plane, node)["quarantined"], "it is quarantined")
    finally:
        plane.policy("clone", "alert")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def opening(stream: int) -> bytes:
    """The head of a call to Live, every field literal and never indexed."""
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": "/enlist.agent.v1.Agent/Live",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    text = b"".join(
        b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    return frame(1, 4, stream, text)


def said(stream: int, **message) -> bytes:
    body = native.pb.LiveUp(**message).SerializeToString()
    return frame(0, 0, stream, b"\x00" + len(body).to_bytes(4, "big") + body)


@pytest.mark.alone
def test_a_stream_that_never_reads_is_let_go(plane, node):
    """Room for no answer at all: what waits for it is bounded, and then its place is given to another."""
    node.confirm()
    context = plane.context(node.files)
    context.set_alpn_protocols(["h2"])
    settings = frame(4, 0, 0, b"\x00\x04" + (0).to_bytes(4, "big"))
    connections = []
    before = plane.status("VmRSS")
    try:
        for number in range(5):
            raw = socket.create_connection(("127.0.0.1", plane.port), timeout=60)
            connection = context.wrap_socket(raw, server_hostname="127.0.0.1")
            connections.append(connection)
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
            for stream in range(1, 40, 2):
                hello = native.pb.Hello(node_id=node.id, instance_id=f"deaf-{number}-{stream}", bundle_version=1)
                connection.sendall(opening(stream) + said(stream, hello=hello))
                until(lambda: shown(plane, node)["connected"], "it has a place")
                connection.sendall(said(stream, heartbeat=native.pb.Heartbeat()) * 60)
                until(lambda: not shown(plane, node)["connected"], "it was let go")
        grown = plane.status("VmRSS") - before
        assert grown < 48 * 1024, f"{grown} KiB for 100 streams that do not read"
        with node.door() as door:
            live = door.live(node.id)
            live.next("welcome")
            live.close()
    finally:
        for connection in connections:
            connection.close()


def test_streams_end_when_the_server_stops(plane_of_its_own):
    plane = plane_of_its_own
    node = native.enroll(plane)
    with node.door() as door:
        live = door.live(node.id)
        live.next("welcome")
        stopper = threading.Thread(target=plane.stop)
        stopper.start()
        assert live.wait_end().status == grpc.StatusCode.UNAVAILABLE
        stopper.join()


def test_a_stream_without_a_place_is_no_use_of_its_certificate(plane, node):
    """D32: the next certificate takes over when it is welcomed, not when it is turned away."""
    node.confirm()
    doors = [node.door() for _ in range(4)]
    streams = [door.live(node.id, instance="one") for door in doors]
    for live in streams:
        live.next("welcome")
    renewed = node.renewed()
    with renewed.door() as door:
        error = door.live(node.id, instance="one").wait_end()
        assert error.code == "too_many_streams"
        known = {item["serial"]: item["status"] for item in shown(plane, node)["certificates"]}
        assert known == {node.serial: "live", renewed.serial: "live"}
        for open_door in doors:
            open_door.close()

        def welcomed():
            try:
                return door.live(node.id, instance="one").next("welcome")
            except AssertionError:
                return None

        until(welcomed, "there is a place again")


def test_the_stream_of_a_superseded_certificate_ends_also_while_much_is_committed(plane, node):
    """D32, D34: the end of a drain is a matter of time, which no commit announces and none may put off."""
    plane.policy("renew.drain", "1s")
    stop = threading.Event()

    def commit():
        while not stop.is_set():
            plane.token()

    busy = [threading.Thread(target=commit) for _ in range(4)]
    try:
        with node.door() as door:
            live = door.live(node.id)
            live.next("welcome")
            for thread in busy:
                thread.start()
            node.renewed().confirm()
            until(lambda: live.ended.is_set(), "the old stream is closed")
    finally:
        stop.set()
        for thread in busy:
            thread.join()
        plane.policy("renew.drain", "10m")
