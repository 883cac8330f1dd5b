"""Strangers that send nonsense, too much, too slowly, or nothing at all."""

import concurrent.futures
import json
import os
import random
import re
import socket
import ssl
import time

import certs
import native
import pytest
from machine import missing, tool, until
from plane import ControlPlane, free_files

SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))
HANDSHAKE, HEADERS, BODY = 10, 10, 30
SLACK = 20
"""A slow machine may take this much longer to keep its own time limits."""


def connect(plane, alpn: str | None = None, tls: bool = True) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", plane.port), timeout=BODY + SLACK)
    if not tls:
        return raw
    context = plane.context()
    if alpn:
        context.set_alpn_protocols([alpn])
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes; a reset counts as closing, an open connection as a failure."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
            assert len(received) < 1 << 20
    except (ConnectionError, ssl.SSLError) as error:
        if isinstance(error, TimeoutError):
            raise
    return received


def alive(plane) -> bool:
    return plane.https("GET", "/healthz").status == 200


def exchange(plane, data: bytes, alpn: str | None = None, tls: bool = True) -> bytes:
    with connect(plane, alpn, tls) as connection:
        try:
            connection.sendall(data)
        except (ConnectionError, ssl.SSLError):
            pass
        return read_to_end(connection)


def test_garbage_instead_of_tls_ends_the_connection(plane):
    """Random bytes, plain HTTP, a record of a size that cannot be: closed, and the next caller is served."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    junk = [chance.randbytes(chance.randrange(1, 4000)) for _ in range(40)]
    junk += [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"A" * 70000, b"\x16\x03\x01\x00\x00"]
    with concurrent.futures.ThreadPoolExecutor(len(junk)) as pool:
        for received in pool.map(lambda data: exchange(plane, data, tls=False), junk):
            assert b"HTTP/1.1 200" not in received
    assert alive(plane)


def test_a_damaged_handshake_ends_the_connection(plane):
    """A real ClientHello with bytes turned over."""
    chance = random.Random(SEED)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        plane.context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    hello = outgoing.read()

    def damaged(_):
        data = bytearray(hello)
        for _ in range(4):
            data[chance.randrange(5, len(data))] ^= 1 << chance.randrange(8)
        return exchange(plane, bytes(data) + b"\x17\x03\x03\x00\x20" + b"\0" * 32, tls=False)

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(damaged, range(40)))
    assert alive(plane)


def test_garbage_inside_tls_ends_the_connection(plane):
    """Neither HTTP/1.1 nor HTTP/2."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for alpn in ("http/1.1", "h2", None):
        for _ in range(5):
            received = exchange(plane, chance.randbytes(2000) + b"\r\n\r\n", alpn)
            assert b" 200 " not in received
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    oversized = preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"A" * 70000
    unknown = preface + b"\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff"
    for data in (oversized, unknown, preface + chance.randbytes(3000)):
        exchange(plane, data, "h2")
    assert alive(plane)


def test_old_tls_is_refused(plane):
    """TLS 1.3 only."""
    done = tool("openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-tls1_2", check=False)
    assert done.code != 0 and "Cipher is (NONE)" in done.out, done
    assert re.search(r"alert protocol version|alert number 70", done.err), done


def test_no_session_can_be_resumed(plane, place):
    """No ticket is given, so no handshake skips the check of the certificate."""
    file = place / "session"
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    done = tool("openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-sess_out", file, "-ign_eof", stdin=request)
    assert "200 OK" in done.out and "TLSv1.3" in done.out
    assert "NewSessionTicket" not in done.out and "Post-Handshake New Session Ticket" not in done.out
    assert not file.exists() or not file.read_bytes()
    context = plane.context()
    with socket.create_connection(("127.0.0.1", plane.port)) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(request)
            assert read_to_end(connection).startswith(b"HTTP/1.1 200")
            assert not connection.session.has_ticket


def test_the_key_exchange_is_hybrid(plane):
    """X25519MLKEM768 is chosen by a client that offers it."""
    groups = tool("openssl", "list", "-tls-groups", check=False)
    if "X25519MLKEM768" not in groups.out:
        missing("an openssl with X25519MLKEM768")
    done = tool("openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-groups", "X25519MLKEM768:X25519")
    assert "X25519MLKEM768" in done.out


def test_large_bodies_are_refused(plane):
    """Over 64 KiB: 413 `too_large`, whether the length is announced or not, on REST and gRPC."""
    key = plane.cli("operator", "key", "create", "big", "--role", "operator", "--expires", "1h").json()["key"]
    native.evidence.token(key)
    bearer = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps({"tenant": "x" * 70000}).encode()
    answer = plane.https("POST", "/v1/tokens", body, bearer)
    assert (answer.status, answer.code) == (413, "too_large")
    chunked = (
        f"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    ).encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    assert exchange(plane, chunked, "http/1.1").startswith(b"HTTP/1.1 413")
    with native.door(plane) as door:
        refusal = door.refused(plane.token(), "x" * 70000)
        assert refusal.code == "too_large", refusal
        refusal = door.refused(plane.token(), "x" * 3_000_000)
        assert refusal.code == "too_large" or refusal.status == native.grpc.StatusCode.UNAVAILABLE, refusal
    assert alive(plane)


def test_an_announced_giant_is_not_waited_for(plane):
    """A content length of gigabytes is refused at once, not after the body."""
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{"
    began = time.monotonic()
    with connect(plane, "http/1.1") as connection:
        connection.sendall(head)
        status = connection.recv(4096).split(b"\r\n")[0]
    assert re.match(rb"HTTP/1.1 (401|413)", status), status
    assert time.monotonic() - began < BODY


def test_cut_requests_do_no_harm(plane):
    """Half a request line, half the headers, half the body, half a gRPC message, then gone."""
    whole = b'POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{"expires":"1h"}'
    for end in range(1, len(whole), 7):
        with connect(plane, "http/1.1") as connection:
            connection.sendall(whole[:end])
    assert alive(plane)


def test_a_flood_of_headers_is_refused(plane):
    """Thousands of fields, or one of a megabyte: an error or an end, never an answer of 200."""
    many = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20000)) + b"\r\n"
    long = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 1_000_000 + b"\r\n\r\n"
    for flood in (many, long):
        received = exchange(plane, flood, "http/1.1")
        assert not received.startswith(b"HTTP/1.1 200"), received[:100]
    with native.door(plane) as door, pytest.raises(native.Refused):
        door.enroll(plane.token(), "x", metadata=tuple((f"x-{i}", "y" * 100) for i in range(2000)))
    assert alive(plane)


def slow_headers(connection, end) -> None:
    trickle(connection, b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 1000, end)


def slow_body(connection, end) -> None:
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    connection.sendall(head)
    trickle(connection, b" " * 5000, end)


def endless_body(connection, end) -> None:
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
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
}


def test_the_slow_are_let_go(plane):
    """Handshake 10 s, headers 10 s (HTTP/2 too), body 30 s; then the connection is closed. All at once here."""

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
    native.evidence.token(key)
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


def test_the_operator_api_reads_strictly(plane):
    """Unknown fields 400, wrong type of body 415, wrong method 405, unknown path 404; each in the one shape."""
    cases = [
        ("POST", "/v1/tokens", {"expires": "1h", "colour": "red"}, {}, 400, "bad_request"),
        ("POST", "/v1/tokens", b"expires=1h", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        ("POST", "/v1/tokens", b"{", {"Content-Type": "application/json"}, 400, "bad_request"),
        ("POST", "/v1/tokens", b"[]", {"Content-Type": "application/json"}, 400, "bad_request"),
        ("POST", "/v1/tokens", {"expires": 5}, {}, 400, "bad_request"),
        ("POST", "/v1/tokens", {"expires": "soon"}, {}, 400, None),
        ("PATCH", "/v1/tokens", {}, {}, 405, "method_not_allowed"),
        ("GET", "/v1/nothing", None, {}, 404, "not_found"),
        ("GET", "/v1/nodes/none", None, {}, 404, "node_not_found"),
        ("GET", "/v1/nodes?colour=red", None, {}, 400, "bad_request"),
        ("GET", "/v1/nodes?limit=0", None, {}, 400, "bad_request"),
        ("GET", "/v1/nodes?limit=9999999", None, {}, 400, "bad_request"),
        ("GET", "/v1/nodes?cursor=%FF%FE", None, {}, 400, "bad_request"),
        ("POST", "/v1/tenants", {"name": "../../etc"}, {}, 400, "bad_request"),
        ("POST", "/v1/tenants", {"name": ""}, {}, 400, "bad_request"),
        ("DELETE", "/v1/tokens/none", None, {}, 404, "token_not_found"),
    ]
    for method, path, body, headers, status, code in cases:
        answer = plane.api(method, path, body, headers)
        case = (method, path, body)
        assert (case, answer.status) == (case, status), answer
        error = answer.json()["error"]
        assert {"code", "message", "hint", "request_id", "retryable"} <= error.keys(), answer
        assert code is None or (case, error["code"]) == (case, code)
        assert error["request_id"] == answer.headers["X-Request-Id"]


def test_unknown_calls_on_the_grpc_side_are_unimplemented(plane):
    """An unknown method or service is UNIMPLEMENTED, not a hang and not a page of HTML."""
    with native.door(plane) as door:
        for path in ("/enlist.agent.v1.Agent/Nothing", "/no.such.Service/Call"):
            call = door.channel.unary_unary(path)
            with pytest.raises(native.grpc.RpcError) as error:
                call(b"", timeout=30)
            assert error.value.code() == native.grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message_are_an_error(plane):
    """Random bytes where a protobuf message should be."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    with native.door(plane) as door:
        call = door.channel.unary_unary("/enlist.agent.v1.Agent/Enroll")
        for size in (1, 10, 100, 10000):
            with pytest.raises(native.grpc.RpcError) as error:
                call(b"\xff" + chance.randbytes(size), timeout=30)
            assert error.value.code() in (native.grpc.StatusCode.INVALID_ARGUMENT, native.grpc.StatusCode.INTERNAL)
    assert alive(plane)


@pytest.fixture
def limited():
    """A control plane with the limit on failures that it has by default."""
    with ControlPlane() as running:
        yield running


def spend_failures(plane, count: int) -> list:
    with native.door(plane) as door:
        return [door.refused("enroll_" + "A" * 43, "x") for _ in range(count)]


def test_a_hundred_failures_a_minute_then_slow_down_but_valid_enrollments_go_on(limited):
    """429 with Retry-After for failures only: the limit never stands before the look-up."""
    token = limited.token()
    refusals = spend_failures(limited, 130)
    codes = [refusal.code for refusal in refusals]
    assert codes[0] == "token_invalid" and codes[-1] == "rate_limited"
    assert 90 <= codes.count("token_invalid") <= 110, codes
    assert refusals[-1].status == native.grpc.StatusCode.RESOURCE_EXHAUSTED
    assert int(refusals[-1].trailers["retry-after"]) > 0
    answer = limited.https("GET", "/v1/nodes")
    assert (answer.status, answer.code) == (429, "rate_limited")
    assert int(answer.headers["Retry-After"]) > 0
    assert native.enroll(limited, token).id
    assert limited.https("GET", "/healthz").status == 200
    limited.restart()
    lines = [line for line in limited.audit("enrollment.refused") if line["reason"] == "token_invalid"]
    assert sum(line["count"] for line in lines) == 130, "a throttled refusal counts under its own reason"


@pytest.mark.parametrize("header", [{"Authorization": "Bearer nonsense"}, {"Authorization": "Basic eDp5"}])
def test_a_made_up_credential_does_not_escape_the_limit(limited, header):
    """Who sends a bad API key is a stranger like any other."""
    statuses = [limited.https("GET", "/v1/nodes", headers=header).status for _ in range(130)]
    assert statuses[0] == 401 and statuses[-1] == 429, (statuses[0], statuses[-1])


def test_good_credentials_are_not_limited_by_failures_of_others(limited):
    """An operator with a key is served, and told 404 for what is not there, however many strangers fail."""
    key = limited.cli("operator", "key", "create", "steady", "--role", "viewer", "--expires", "1h").json()["key"]
    native.evidence.token(key)
    spend_failures(limited, 130)
    headers = {"Authorization": f"Bearer {key}"}
    assert limited.https("GET", "/v1/nodes", headers=headers).status == 200
    statuses = {limited.https("POST", "/v1/tokens", {}, headers).status for _ in range(5)}
    assert statuses == {403}


def test_a_flood_of_failures_does_not_grow_the_trail(limited):
    """Hundreds of refusals of a kind are a line or two."""
    limited.policy("failures.per_minute", "0")
    before = len(limited.audit())
    csr = certs.csr(certs.ec_key())
    with native.door(limited) as door:
        calls = [door.begin("enroll_" + "B" * 43, csr) for _ in range(500)]
        for call in calls:
            with pytest.raises(native.grpc.RpcError):
                call.result()
    grown = [line for line in limited.audit()[before:] if line["event_type"] == "enrollment.refused"]
    assert len(grown) <= 2
