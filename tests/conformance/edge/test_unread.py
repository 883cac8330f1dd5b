"""What is refused by the head of a request alone: a body that is announced as too large, a gRPC method that is not there."""

import json
import socket
import ssl

import pytest

import native
import probectl
from machine import PATIENCE, tool
from plane import ControlPlane
from sockets import alive, connect, read_to_end

grpc = native.grpc
ANNOUNCED = 99_999_999
DOORS = (
    ("/v1/tokens", lambda body: body["error"]["code"] == "too_large" and body["error"]["request_id"]),
    ("/v1/hosts/enroll", lambda body: body["error"]["code"] == "too_large" and body["error"]["hint"]),
    ("/enroll/agent", lambda body: body["error"]["code"] == "too_large" and body["error"].keys() == PROBECTL),
    ("/v1/enroll", lambda body: body["error"].startswith("too_large: ")),
)
"""A path of each API and what its own shape of a refusal must hold."""
PROBECTL = {"code", "message", "request_id"}


@pytest.fixture(scope="module")
def plane(programs):
    """Every API is served."""
    with ControlPlane(init=("--door", "plfm", "--door", "probectl", "--door", "taskrun")) as running:
        running.policy("failures.per_minute", "0")
        yield running


def head(path: str, *more: str, length: int = ANNOUNCED) -> bytes:
    """A request of which only the head is ever sent."""
    lines = (f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}", *more)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answered(connection: socket.socket, request: bytes) -> tuple[bytes, dict]:
    """The head and the JSON body of the answer to a request whose body never comes."""
    connection.settimeout(PATIENCE)
    connection.sendall(request)
    received = connection.recv(65536)
    while b"\r\n\r\n" not in received or not received.rstrip().endswith(b"}"):
        received += (more := connection.recv(65536))
        assert more, received
    first, body = received.split(b"\r\n\r\n", 1)
    return first, json.loads(body)


def test_an_announced_length_over_the_limit_is_answered_before_the_body(plane):
    """413 `too_large` on every API in its own shape, when nothing but the head was sent."""
    for path, fits in DOORS:
        for more in ((), ("Expect: 100-continue",)):
            with connect(plane, "http/1.1") as connection:
                first, body = answered(connection, head(path, *more))
            assert first.startswith(b"HTTP/1.1 413 "), (path, first)
            assert b"x-request-id: " in first and fits(body), (path, body)
    assert alive(plane)


def test_the_limit_itself_is_awaited(plane):
    """A length of exactly 64 KiB is asked for with `100 Continue`; one byte more is refused without it."""
    for length, wanted in ((65536, b"HTTP/1.1 100 "), (65537, b"HTTP/1.1 413 ")):
        with connect(plane, "http/1.1") as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(head("/enroll/agent", "Expect: 100-continue", length=length))
            assert connection.recv(65536).startswith(wanted), length


def test_no_continue_precedes_the_refusal_and_the_connection_ends(plane):
    """What a client sends after a refused `Expect` could be the body or a request: nothing of it is read."""
    follower = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(plane, "http/1.1") as connection:
        connection.sendall(head("/v1/enroll", "Expect: 100-continue") + follower)
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 413 ") and received.count(b"HTTP/1.1 ") == 1, received
    assert b"connection: close" in received.lower(), received


@pytest.mark.parametrize(("path", "status"), [("/v1/tokens", b"401"), ("/v1/nowhere", b"404")])
def test_whoever_waited_and_is_refused_for_another_reason_is_cut_too(plane, path, status):
    """What follows could be the body that was announced or the next request: neither is taken for the other."""
    follower = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(plane, "http/1.1") as connection:
        connection.sendall(head(path, "Expect: 100-continue", length=10) + follower)
        received = read_to_end(connection)
    assert received.startswith(b"HTTP/1.1 " + status) and received.count(b"HTTP/1.1 ") == 1, received
    assert b"connection: close" in received.lower(), received


def test_the_operator_socket_does_not_wait_either(plane):
    """The same limit holds for the local administrator."""
    for more in ((), ("Expect: 100-continue",)):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(plane.dir / "operator.sock"))
            first, body = answered(connection, head("/v1/tokens", *more))
        assert first.startswith(b"HTTP/1.1 413 ") and body["error"]["code"] == "too_large", (first, body)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def fields(*pairs: tuple[str, str]) -> bytes:
    """A header block in which nothing is indexed or compressed."""
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in pairs
    )


def opened(path: str, kind: str) -> bytes:
    """The beginning of an HTTP/2 connection and the head of a request whose body does not follow."""
    pseudo = ((":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", path))
    block = fields(*pseudo, ("content-type", kind), ("content-length", str(ANNOUNCED)))
    end_of_headers = 0x4
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, end_of_headers, 1, block)


def frames(connection: ssl.SSLSocket):
    """The frames of the first stream, kind, flags and payload."""
    received = b""
    while True:
        received += (more := connection.recv(65536))
        assert more, "the connection ended without an answer"
        while len(received) >= 9 and len(received) >= (size := 9 + int.from_bytes(received[:3], "big")):
            kind, flags, stream = received[3], received[4], int.from_bytes(received[5:9], "big")
            if stream == 1:
                yield kind, flags, received[9:size]
            received = received[size:]


def test_http_2_is_answered_before_the_body(plane):
    """The refusal comes whole, as an answer and not as a reset; in gRPC as trailers only."""
    for path, _ in DOORS:
        with connect(plane, "h2") as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(opened(path, "application/json"))
            kind, _, block = next(answer := frames(connection))
            # :status 413: the indexed name, and the digits as HPACK compresses them.
            assert (kind, block[:5]) == (1, bytes.fromhex("4883682cff")), (path, kind, block)
            kind, _, body = next(answer)
            assert kind == 0 and b"too_large" in body, (path, kind, body)
    for path in ("/enlist.agent.v1.Agent/Enroll", "/taskrun.v1.RunService/StreamConnect"):
        with connect(plane, "h2") as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(opened(path, "application/grpc"))
            kind, flags, block = next(frames(connection))
            end_of_stream = 0x1
            assert (kind, flags & end_of_stream, block[0]) == (1, 1, 0x88), (path, kind, block)


def curl(plane, place, *arguments, kind: str = "application/json"):
    return tool(
        *("curl", "-sS", "-o", place / "answer", "-D", place / "head", "-w", "%{http_code}"),
        *("--cacert", plane.dir / "ca" / "bundle.pem", "-H", f"Content-Type: {kind}", *arguments),
        check=False,
    )


@pytest.mark.parametrize("version", ("--http1.1", "--http2"))
def test_curl_reads_the_refusal_of_a_large_body(plane, place, version):
    """With and without `Expect`, however large: 413 every time, never a broken pipe, a reset or a wait."""
    for size in (70_000, 900_000, 20_000_000):
        (place / "body").write_bytes(b" " * size)
        for expect in ("Expect: 100-continue", "Expect:"):
            for path, _ in DOORS:
                done = curl(plane, place, version, "-H", expect, "--data-binary", f"@{place}/body", plane.url + path)
                assert (done.code, done.out) == (0, "413"), (size, expect, path, done)
                assert "too_large" in (place / "answer").read_text(), (size, expect, path)
                assert " 100" not in (place / "head").read_text(), (size, expect, path)
    assert alive(plane)


UNKNOWN = (
    "/enlist.agent.v1.Agent/Nothing",
    "/enlist.agent.v1.Agent/",
    "/enlist.agent.v1.Agent/Enroll/More",
    "/enlist.agent.v2.Agent/Enroll",
    "/grpc.health.v1.Health/Nothing",
    "/grpc.health.v2.Health/Check",
    "/pact.enrollment.EnrollmentService/Nothing",
    "/taskrun.v1.RunService/Nothing",
    "/taskrun.v2.RunService/StreamConnect",
    "/v1/tokens",
    "/nothing",
)


def test_the_refusal_of_an_unknown_grpc_method_is_trailers_alone(plane, place):
    """HTTP 200, `grpc-status: 12` in the head, no body, whatever kind of gRPC it is."""
    for path in UNKNOWN:
        for kind in ("application/grpc", "application/grpc+proto", "Application/GRPC; charset=x"):
            # curl 7.88 overlooks the end of an HTTP/2 answer without a body that comes before it has sent its own.
            done = curl(plane, place, "--http1.1", "--data-binary", "x", plane.url + path, kind=kind)
            told = (place / "head").read_text()
            assert (done.code, done.out) == (0, "200") and "grpc-status: 12" in told, (path, kind, told)
            assert (place / "answer").read_bytes() == b"", (path, kind)


def test_grpc_is_told_resource_exhausted(plane, place):
    """A message over the limit, with its length announced or not, is RESOURCE_EXHAUSTED `too_large`."""
    (place / "body").write_bytes(b"\0" + (80_000).to_bytes(4, "big") + b" " * 80_000)
    address = f"{plane.url}/enlist.agent.v1.Agent/Enroll"
    done = curl(plane, place, "--http1.1", "--data-binary", f"@{place}/body", address, kind="application/grpc")
    told = (place / "head").read_text()
    assert (done.code, done.out) == (0, "200") and "grpc-status: 8\n" in told, (done, told)
    assert "enlist-code: too_large" in told and "enlist-request-id: " in told, told
    with native.door(plane) as door:
        refusal = door.refused(plane.token(), "x" * 70_000)
    assert (refusal.status, refusal.code) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_large"), refusal


def called(plane, path: str) -> native.Refused:
    """A unary call of any path, with whatever bytes."""
    with native.door(plane) as door:
        call = door.channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = call(b"\x0a\x01x", timeout=PATIENCE)
        except grpc.RpcError as error:
            return native.Refused(error)
    raise AssertionError(f"{path} answered {answer}")


def test_an_unknown_grpc_method_is_unimplemented(plane):
    """An unknown service or method, a REST path too: UNIMPLEMENTED, with our code and a request id."""
    for path in UNKNOWN:
        refusal = called(plane, path)
        assert refusal.status == grpc.StatusCode.UNIMPLEMENTED, (path, refusal)
        assert refusal.code == "method_not_allowed" and refusal.request_id and refusal.hint, (path, refusal)


def test_a_grpc_service_that_is_not_served_is_unimplemented(place):
    """Where the TaskRun API is not served, its stream is unknown to a stranger and to a node."""
    with probectl.control_plane(init=("--door", "probectl")) as plane:
        path = "/taskrun.v1.RunService/StreamConnect"
        refusal = called(plane, path)
        assert (refusal.status, refusal.code) == (grpc.StatusCode.UNIMPLEMENTED, "method_not_allowed"), refusal
        agent = probectl.enroll(plane)
        with native.door(plane, agent.files) as door:
            call = door.channel.stream_stream(path, request_serializer=bytes, response_deserializer=bytes)
            with pytest.raises(grpc.RpcError) as refused:
                next(call(iter([b""]), timeout=PATIENCE))
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert plane.https("GET", path).status == 404, "what is not gRPC is told so as before"
