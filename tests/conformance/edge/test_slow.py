"""Strangers that take their time, or stay."""

import concurrent.futures
import os
import socket
import ssl
import time

import pytest

import evidence
import native
from machine import until
from plane import ControlPlane, free_files
from sockets import BODY, SLACK, alive, connect, read_to_end

HANDSHAKE, HEADERS, STRANGER = 10, 10, 60


def slow_headers(connection, end) -> None:
    trickle(connection, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000, end)


def slow_body(connection, end) -> None:
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    connection.sendall(head)
    trickle(connection, b" " * 5000, end)


def endless_body(connection, end) -> None:
    head = (
        b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    connection.sendall(head)
    trickle(connection, b"1\r\n \r\n" * 10000, end, step=6)


def silence(connection, end) -> None:
    connection.settimeout(end - time.monotonic())


def silent_http2(connection, end) -> None:
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    silence(connection, end)


def endless_http2_headers(connection, end) -> None:
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
    connection.sendall(b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82")
    silence(connection, end)


def answer_not_taken(connection, end) -> None:
    """Asks over HTTP/2 with no room for the answer, and then only says that it is still there."""
    settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00" + b"\x00\x04\x00\x00\x00\x00"
    block = b"\x82\x87\x44\x0d/openapi.json\x41\x01x"
    headers = len(block).to_bytes(3, "big") + b"\x01\x05\x00\x00\x00\x01" + block
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers)
    received = b""
    connection.settimeout(1)
    while time.monotonic() < end:
        try:
            data = connection.recv(65536)
        except TimeoutError:
            continue
        except (ConnectionError, ssl.SSLError):
            return
        if not data:
            return
        received += data
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            length = int.from_bytes(received[:3], "big")
            kind, flags, payload = received[3], received[4], received[9 : 9 + length]
            received = received[9 + length :]
            if kind == 6 and not flags & 1:
                connection.sendall(b"\x00\x00\x08\x06\x01\x00\x00\x00\x00" + payload)


def asks_for_ever(connection, end) -> None:
    """A stranger that keeps a connection by asking something harmless now and then."""
    connection.settimeout(5)
    while time.monotonic() < end:
        try:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            while data := connection.recv(65536):
                pass
            if not data:
                return
        except TimeoutError:
            continue
        except (ConnectionError, ssl.SSLError):
            return


def trickle(connection, data: bytes, end: float, step: int = 1) -> None:
    """A little every half second until the server has had enough."""
    for i in range(0, len(data), step):
        if time.monotonic() > end:
            return
        try:
            connection.sendall(data[i : i + step])
            connection.settimeout(0.5)
            if not connection.recv(4096):
                return
        except TimeoutError:
            continue
        except (ConnectionError, ssl.SSLError):
            return


SLOW = {
    "no_handshake": (None, False, silence, HANDSHAKE),
    "half_a_handshake": (None, False, lambda c, e: (c.sendall(b"\x16\x03\x01\x02\x00\x01"), silence(c, e)), HANDSHAKE),
    "no_headers": ("http/1.1", True, silence, HEADERS),
    "slow_headers": ("http/1.1", True, slow_headers, HEADERS),
    "silent_http2": ("h2", True, silent_http2, HEADERS),
    "endless_http2_headers": ("h2", True, endless_http2_headers, HEADERS),
    "slow_body": ("http/1.1", True, slow_body, BODY),
    "endless_body": ("http/1.1", True, endless_body, BODY),
    "answer_not_taken": ("h2", True, answer_not_taken, STRANGER),
    "asks_for_ever": ("http/1.1", True, asks_for_ever, STRANGER),
}


@pytest.mark.alone
def test_the_slow_are_let_go(plane):
    """Handshake 10 s, headers 10 s (HTTP/2 too), body 30 s, a stranger at all 60 s; then the connection is closed.

    All at once here.
    """

    def one(name: str):
        alpn, tls, behave, limit = SLOW[name]
        began = time.monotonic()
        end = began + limit + SLACK
        with connect(plane, alpn, tls) as connection:
            behave(connection, end)
            connection.settimeout(max(end - time.monotonic(), 0.1))
            try:
                read_to_end(connection)
            except TimeoutError:
                return name, None
        return name, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(len(SLOW)) as pool:
        took = dict(pool.map(one, SLOW))
    still_open = [name for name, seconds in took.items() if seconds is None]
    assert not still_open, took
    assert alive(plane)


def test_a_slow_body_with_a_good_credential_is_let_go_too(plane):
    """Whoever may ask still has 30 s to say what; gRPC as well, in a call without an end."""
    key = plane.cli("operator", "key", "create", "slow", "--role", "operator", "--expires", "1h").json()["key"]
    evidence.token(key)
    head = (
        f"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    ).encode()
    began = time.monotonic()
    with connect(plane, "http/1.1") as connection:
        connection.sendall(head)
        trickle(connection, b" " * 5000, began + BODY + SLACK)
        connection.settimeout(max(began + BODY + SLACK - time.monotonic(), 0.1))
        read_to_end(connection)


@pytest.mark.alone
def test_ten_thousand_idle_connections_are_survived(programs):
    """Memory stays bounded, other callers are served meanwhile or soon after, and the idle ones are let go."""
    wanted = min(10_000, free_files() - 500)
    with ControlPlane() as plane:
        before = plane.status("VmRSS")
        connections = []
        try:
            for _ in range(wanted):
                connections.append(socket.create_connection(("127.0.0.1", plane.port), timeout=30))
            peak = plane.status("VmRSS")
            until(lambda: quietly(plane), "another caller is served")
            peak = max(peak, plane.status("VmHWM"))
            print(f"{wanted} connections: {before} KiB, then {peak} KiB")
            assert peak - before < 512 * 1024
            until(lambda: len(os.listdir(f"/proc/{plane.process.pid}/fd")) < 300, "the idle were let go", 90)
        finally:
            for connection in connections:
                connection.close()
        assert alive(plane)
        native.enroll(plane)


def quietly(plane) -> bool:
    try:
        return plane.https("GET", "/healthz", timeout=5).status == 200
    except OSError:
        return False


def test_many_tls_connections_without_a_request_are_let_go(plane):
    """As above, after the handshake."""
    held = [connect(plane, "http/1.1") for _ in range(300)]
    assert alive(plane)
    until(lambda: len(os.listdir(f"/proc/{plane.process.pid}/fd")) < 150, "the idle were let go", HEADERS + 4 * SLACK)
    for connection in held:
        connection.close()
