"""Strangers that send nonsense, too much, too slowly, or nothing at all."""

import concurrent.futures
import json
import os
import random
import re
import socket
import ssl
import threading
import time
from urllib.parse import quote

import pytest

import evidence
import native
from machine import tool, until
from sockets import BODY, alive, connect, exchange, read_to_end

SEED = int(os.environ.get("ENLIST_SEED", random.SystemRandom().randrange(1 << 32)))


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


def test_what_is_wrong_is_named(plane):
    """The field of a body or a query whose value cannot be read stands in the message."""
    import hosts

    def told(method: str, path: str, body=None) -> str:
        answer = plane.api(method, path, body)
        assert (answer.status, answer.code) == (400, "bad_request"), answer
        return answer.json()["error"]["message"]

    token = hosts.mint(plane)["token"]
    for body, field in (
        (hosts.request(token, underlay_endpoint={"ipv4": "127.0.0.1", "port": "x"}), "underlay_endpoint.port:"),
        (hosts.request(token, hardware_facts={"cpu_cores": -1}), "hardware_facts.cpu_cores:"),
        (hosts.request(token, mtls_csr=7), "mtls_csr:"),
    ):
        assert field in told("POST", "/v1/hosts/enroll", body)
    assert "missing field `underlay_endpoint`" in told("POST", "/v1/hosts/enroll", {"enrollment_token": token})
    assert "expires: " in told("POST", "/v1/tokens", {"expires": "soon"})
    assert "colour" in told("POST", "/v1/tokens", {"colour": 1})
    assert "limit" in told("GET", "/v1/nodes?limit=x") and "limit" in told("GET", "/v1/nodes?limit=0")
    assert "cursor: " in told("GET", "/v1/nodes?cursor=a%20b")
    assert "after: " in told("GET", "/v1/agents?after=a%20b")
    host = hosts.active(plane)
    for query, field in (("wait=x", "wait:"), ("after=x", "after:"), ("wait=6m", "wait ")):
        answer = host.ask("GET", f"overlay?{query}")
        assert answer.status == 400 and field in answer.json()["error"]["message"], answer


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
    done = tool(
        "openssl", "s_client", "-connect", f"127.0.0.1:{plane.port}", "-sess_out", file, "-ign_eof", stdin=request
    )
    assert "200 OK" in done.out and "TLSv1.3" in done.out
    assert "NewSessionTicket" not in done.out and "Post-Handshake New Session Ticket" not in done.out
    assert not file.exists() or not file.read_bytes()
    context = plane.context()
    with socket.create_connection(("127.0.0.1", plane.port)) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(request)
            assert read_to_end(connection).startswith(b"HTTP/1.1 200")
            assert not connection.session.has_ticket


X25519MLKEM768, X25519 = 0x11EC, 0x001D


def hello(groups: list[int]) -> bytes:
    """A TLS 1.3 ClientHello that offers groups without a share for any, so that the server names its choice."""

    def extension(kind: int, body: bytes) -> bytes:
        return kind.to_bytes(2, "big") + len(body).to_bytes(2, "big") + body

    def numbers(values: list[int]) -> bytes:
        return (2 * len(values)).to_bytes(2, "big") + b"".join(value.to_bytes(2, "big") for value in values)

    extensions = extension(43, b"\x02\x03\x04") + extension(10, numbers(groups))
    extensions += extension(13, numbers([0x0403, 0x0804, 0x0807])) + extension(51, b"\0\0")
    body = b"\x03\x03" + b"\7" * 32 + b"\x20" + b"\5" * 32 + numbers([0x1301, 0x1302, 0x1303]) + b"\x01\0"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def test_the_key_exchange_is_hybrid(plane):
    """A client that prefers X25519MLKEM768 gets it; one that knows only X25519 is served as well."""
    for groups, chosen in (
        ([X25519MLKEM768, X25519], X25519MLKEM768),
        ([X25519MLKEM768], X25519MLKEM768),
        ([X25519], X25519),
    ):
        with connect(plane, tls=False) as connection:
            connection.sendall(hello(groups))
            answer = connection.recv(4096)
        assert answer[0] == 22, "a handshake message, not an alert"
        # HelloRetryRequest: its key_share extension holds nothing but the group.
        assert b"\0\x33\0\x02" + chosen.to_bytes(2, "big") in answer, answer.hex()


def test_large_bodies_are_refused(plane):
    """Over 64 KiB: 413 `too_large`, whether the length is announced or not, on REST and gRPC."""
    key = plane.cli("operator", "key", "create", "big", "--role", "operator", "--expires", "1h").json()["key"]
    evidence.token(key)
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


def test_a_refusal_is_readable_although_the_body_was_not_wanted(plane, place):
    """curl with a body of 60 kB and no credential is told 401 every time, never a broken connection."""
    (place / "body").write_bytes(b"{" + b" " * 60_000 + b"}")
    seen = []
    for _ in range(20):
        done = tool(
            *("curl", "-sS", "--http1.1", "-o", "/dev/null", "-w", "%{http_code}"),
            *("--cacert", plane.dir / "ca" / "bundle.pem", "-H", "Content-Type: application/json"),
            *("--data-binary", f"@{place}/body", f"{plane.url}/v1/tokens"),
            check=False,
        )
        seen.append((done.code, done.out))
    assert seen == [(0, "401")] * 20


def test_cut_requests_do_no_harm(plane):
    """Half a request line, half the headers, half the body, half a gRPC message, then gone."""
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"
    whole = head + b'{"expires":"1h"}'
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


def test_the_operator_api_reads_strictly(plane):
    """Unknown fields 400, wrong type of body 415, wrong method 405, unknown path 404; each in the one shape."""
    cases = [
        ("POST", "/v1/tokens", {"expires": "1h", "colour": "red"}, {}, 400, "bad_request"),
        (
            "POST",
            "/v1/tokens",
            b"expires=1h",
            {"Content-Type": "application/x-www-form-urlencoded"},
            415,
            "unsupported_media_type",
        ),
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


def test_an_answer_repeats_little_of_a_body(plane):
    """The name of a field that is unknown is told, and not 60 KiB of it, to whoever sends that."""
    for path in ("/enroll/agent", "/v1/cluster/join", "/v1/collectors/register"):
        refused = plane.https("POST", path, b'{"' + b"k" * 60_000 + b'":1}', {"Content-Type": "application/json"})
        assert refused.status == 400 and b"kkkk" in refused.body and len(refused.body) < 2048, (path, len(refused.body))


def test_what_a_form_of_another_site_can_send_is_refused(plane):
    """415 on every path that changes something, with an empty body too; without a content type an empty one is fine."""
    served = plane.api("GET", "/openapi.json").json()["paths"]
    changing = [
        (method.upper(), re.sub(r"{[^}]*}", "none", path))
        for path, methods in served.items()
        for method, told in methods.items()
        if method in ("post", "put", "patch", "delete") and {"api_key": []} in told["security"]
    ]
    assert ("POST", "/v1/hosts/none/drain") in changing and ("DELETE", "/v1/tokens/none") in changing
    kinds = ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", b"text/plain; x=\xe9")
    for method, path in changing:
        # The documents of probectl and TaskRun have no 415.
        status = 400 if path.startswith(("/v1/agents", "/v1/collectors", "/v1/workers")) else 415
        for kind in kinds:
            answer = plane.api(method, path, b"", {"Content-Type": kind})
            assert (method, path, kind, answer.status) == (method, path, kind, status)
            assert "the content type is not application/json" in str(answer.json())
    for kind in ({}, {"Content-Type": "application/json; charset=utf-8"}):
        assert plane.api("POST", "/v1/nodes/none/drain", b"", kind).code == "node_not_found"
        assert plane.api("POST", "/v1/hosts/none/decommission", b"", kind).code == "node_not_found"


def test_no_words_that_turn_the_text_around_them(plane):
    """Characters that steer a terminal or an editor are 400 in names, labels and reasons."""
    node = native.enroll(plane, plane.token())
    for c in "\u200e\u200f\u202a\u202e\u2028\u2029\u2066\u2069\x1b":
        for path in (f"/v1/nodes/{node.id}/quarantine", f"/v1/nodes/{node.id}/revoke"):
            answer = plane.api("POST", path, {"reason": f"a{c}b"})
            assert (c, answer.status, answer.code) == (c, 400, "bad_request")
        for change in ({"name": f"a{c}b"}, {"labels": {"site": f"a{c}b"}}):
            answer = plane.api("PATCH", f"/v1/agents/{node.id}", change)
            assert (c, answer.status) == (c, 400), answer
    assert plane.node(node.id)["state"] == "enrolled"


def test_a_token_in_the_place_of_its_id_stays_out_of_the_log(plane):
    """A refusal is logged with its path, but not with a token in it: of any door, and however it is written."""
    for door in ("native", "plfm", "probectl", "taskrun"):
        for turn in range(8):
            token = plane.mint(door=door)["token"]
            spellings = (token, quote(token, safe=""), f"%{ord(token[0]):02x}" + quote(token[1:], safe=""))
            for number, text in enumerate(spellings):
                id = f"pasted-{door}-{turn}-{number}"
                answer = plane.api("DELETE", f"/v1/tokens/{text}", headers={"X-Request-Id": id})
                assert answer.status in (400, 404, 405), answer
                until(lambda id=id: id in plane.err.read_text(), "the refusal is in the log")
                log = plane.err.read_text()
                assert token not in log and text not in log, door
                pieces = [piece for piece in token.split("/") if len(piece) > 8]
                assert not any(piece in log for piece in pieces), door


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


def test_a_call_whose_message_does_not_come_may_be_made_again(plane):
    """Late is not wrong: a message that a busy host sends too slowly ends as `timeout`, which is retried, and not as one that is no message."""
    never = threading.Event()

    def nothing():
        never.wait()
        yield b""

    with native.door(plane) as door:
        for path in ("/enlist.agent.v1.Agent/Enroll", "/pact.enrollment.EnrollmentService/Enroll"):
            call = door.channel.stream_unary(path)
            with pytest.raises(native.grpc.RpcError) as error:
                call(nothing(), timeout=60)
            assert error.value.code() == native.grpc.StatusCode.DEADLINE_EXCEEDED, error.value
            assert dict(error.value.trailing_metadata())["enlist-code"] == "timeout"
    never.set()


def test_a_refusal_reaches_who_is_still_sending(plane):
    """On HTTP/2 too: an answer that comes before the body was read is not cut off by a reset of the stream."""
    url = f"{plane.url}/v1/tokens"
    sent = ("--http2", "-X", "POST", "-H", "Content-Type: application/json", "--data-binary", "{}")
    for _ in range(20):
        done = tool("curl", "-sS", "--cacert", plane.dir / "ca/bundle.pem", "-w", " %{http_code}", *sent, url)
        assert '"unauthenticated"' in done.out and done.out.endswith(" 401"), done
