"""What one holder of a credential, or of nothing, may hold, make others wait for, or have written down."""

import concurrent.futures
import contextlib
import http.client
import itertools
import socket
import threading
import time

import certs
import evidence
import native
import pytest
from certs import load, openssl_ca, x509
from cryptography.hazmat.primitives import hashes
from machine import PATIENCE, scratch, until
from strangers import PREFACE, Siege, SmallPlane, frame, get, post, promise_is_kept, reach, request

EVENT_STREAMS = 256
KINDS = 64
"""Kinds of refused attempts that are kept apart in a minute."""
MIB = 1024


def a_key(plane, name: str) -> str:
    key = plane.cli("operator", "key", "create", name, "--role", "viewer").json()["key"]
    evidence.token(key)
    return key


def bearer(key: str) -> dict:
    return {"Authorization": f"Bearer {key}"}


# Event streams.


def follow(plane, key: str):
    """Eight event streams on one connection, all of them begun."""
    connection = reach(plane, "127.1.2.3", "h2")
    connection.sendall(PREFACE + b"".join(get(stream, "/v1/events", key) for stream in range(1, 17, 2)))
    received = b""
    while received.count(b": following") < 8:
        data = connection.recv(65536)
        assert data, "closed before all streams began"
        received += data
    return connection


def events(plane, key: str):
    """Status, code and Retry-After of one more."""
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=PATIENCE, context=plane.context())
    with contextlib.closing(connection):
        connection.request("GET", "/v1/events", headers=bearer(key))
        answer = connection.getresponse()
        text = answer.readline() if answer.status == 200 else answer.read()
        return answer.status, text, answer.headers.get("Retry-After")


def test_a_credential_has_so_many_event_streams_and_others_have_theirs(plane_of_its_own):
    """One more is refused with 429 and when to come again; another key has one at once; so has this one when one ended."""
    plane = plane_of_its_own
    key, other = a_key(plane, "many"), a_key(plane, "other")
    with contextlib.ExitStack() as held:
        streams = [held.enter_context(follow(plane, key)) for _ in range(EVENT_STREAMS // 8)]
        status, text, again = events(plane, key)
        assert (status, b"too_many_streams" in text) == (429, True), (status, text[:200])
        assert int(again) > 0
        assert events(plane, other)[:2] == (200, b": following\n")
        streams[0].close()
        until(lambda: events(plane, key)[0] == 200, "there is room again")


# Bodies.


class Heavy:
    """One HTTP/2 connection with 64 unfinished bodies, each fed as far as the control plane takes it."""

    STREAMS, EACH, PIECE = 64, 32 * 1024, 8 * 1024

    def __init__(self, plane, certificate: tuple):
        raw = socket.create_connection(("127.0.0.1", plane.port), PATIENCE)
        context = plane.context(certificate)
        context.set_alpn_protocols(["h2"])
        self.tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
        self.streams = range(1, 2 * self.STREAMS, 2)
        self.room, self.received = 65535, b""
        begun = b"".join(post(stream, "/v1/enroll", b"{") for stream in self.streams)
        self.tls.sendall(PREFACE + begun)
        self.room -= self.STREAMS
        self.sent = dict.fromkeys(self.streams, 1)
        self.ended: set = set()
        self.tls.settimeout(0.05)

    def feed(self) -> None:
        """One more piece for each, as far as there is room."""
        self.read()
        data = b""
        for stream in self.streams:
            if stream in self.ended or self.sent[stream] + self.PIECE > self.EACH or self.room < self.PIECE:
                continue
            data += frame(0, 0, stream, b" " * self.PIECE)
            self.sent[stream] += self.PIECE
            self.room -= self.PIECE
        self.tls.settimeout(10)
        self.tls.sendall(data)
        self.tls.settimeout(0.05)

    def read(self) -> None:
        with contextlib.suppress(TimeoutError):
            while data := self.tls.recv(65536):
                self.received += data
        while len(self.received) >= 9 + int.from_bytes(self.received[:3], "big"):
            length, kind = int.from_bytes(self.received[:3], "big"), self.received[3]
            stream = int.from_bytes(self.received[5:9], "big")
            payload, self.received = self.received[9 : 9 + length], self.received[9 + length :]
            if kind == 8 and stream == 0:
                self.room += int.from_bytes(payload, "big")
            if kind in (1, 3):
                self.ended.add(stream)

    def close(self) -> None:
        self.tls.close()


@pytest.mark.alone
def test_a_node_cannot_hold_more_than_its_share_of_bodies(plane_of_its_own):
    """Thousands of unfinished bodies with one certificate: the control plane keeps a few megabytes, others are served."""
    plane = plane_of_its_own
    attacker, node = native.enroll(plane), native.enroll(plane)
    key = a_key(plane, "watching")
    before = plane.status("VmRSS")
    most = 0
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(contextlib.closing(Heavy(plane, attacker.files))) for _ in range(32)]
        end = time.monotonic() + 15
        while time.monotonic() < end:
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.feed()
            most = max(most, plane.status("VmRSS"))
        sent = sum(sum(connection.sent.values()) for connection in connections) // 1024
        promise_is_kept(
            {
                "node": node.confirm,
                "enrollment": lambda: native.enroll(plane),
                "API key": lambda: request(plane, "/v1/nodes", "127.0.0.1", bearer(key)),
            },
            window=2,
        )
    print(f"{sent} KiB sent, {most - before} KiB more memory")
    assert most - before < 40 * MIB, f"{sent} KiB sent, {most - before} KiB more memory"


# Waiting.


def test_who_waits_for_a_revocation_list_has_it_in_time(plane_of_its_own):
    """Strangers ask while certificates are revoked one after the other: nobody waits for a list of its own."""
    plane = plane_of_its_own
    nodes = [native.enroll(plane) for _ in range(60)]
    over = threading.Event()

    def revoke() -> None:
        for node in nodes:
            if over.wait(0.25):
                return
            assert plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "test"}).status == 200

    def ask(_) -> tuple:
        began = time.monotonic()
        answer = plane.https("GET", "/v1/ca/crl", timeout=60)
        return answer.status, time.monotonic() - began

    revoking = threading.Thread(target=revoke, daemon=True)
    revoking.start()
    try:
        assert plane.https("GET", "/v1/ca/crl").status == 200
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(ask, range(24)))
    finally:
        over.set()
        revoking.join()
    slowest = max(took for _, took in answers)
    assert slowest < 14, f"{slowest:.1f} s"
    assert {status for status, _ in answers} == {200}, answers


def test_exports_that_nobody_reads_give_their_places_back(plane_of_its_own):
    """As many as there may be, on connections that ask other things meanwhile: a minute later the key has another export."""
    plane = plane_of_its_own
    key = a_key(plane, "slow")
    no_window = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"\x00\x04\x00\x00\x00\x00")
    numbers = itertools.count(3, 2)
    # More than a few pieces: the place is given back with the last one.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: plane.token(), range(2500)))

    def export() -> int:
        return request(plane, "/v1/audit/export", "127.0.0.1", bearer(key)).status

    with contextlib.ExitStack() as held:
        slow = []

        def take() -> bool:
            """An export that is not read. One that comes while the question below has a place is refused: there is another."""
            slow.append(held.enter_context(reach(plane, "127.1.2.3", "h2")))
            slow[-1].sendall(no_window + get(1, "/v1/audit/export", key))
            return len(slow) >= 8 and export() == 429

        until(take, "all places are taken")
        began = time.monotonic()

        def served() -> bool:
            number = next(numbers)
            for connection in slow:
                # Something harmless, so that the connection is not quiet.
                with contextlib.suppress(OSError):
                    connection.sendall(get(number, "/healthz", key) + frame(3, 0, number, b"\x00\x00\x00\x08"))
            threading.Event().wait(1)
            return export() == 200

        until(served, "an export is served again", patience=100)
        print(f"after {time.monotonic() - began:.0f} s")


@pytest.mark.parametrize("path", ["/v1/audit?node={}", "/v1/nodes/{}/timeline"])
def test_who_looks_through_the_trail_is_answered_in_time(plane, path):
    """Many at once with one key: each has lines, or is told to come again."""
    node = native.enroll(plane)
    key = a_key(plane, f"reader-{len(path)}")

    def ask(_) -> tuple:
        began = time.monotonic()
        answer = request(plane, path.format(node.id), "127.0.0.1", bearer(key), timeout=60)
        return answer.status, time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(200)))
    assert {status for status, _ in answers} <= {200, 429} and max(took for _, took in answers) < 20
    assert 200 in {status for status, _ in answers}


# The trail.


def test_refused_attempts_of_many_networks_are_few_lines(plane_of_its_own):
    """Beyond the kinds that are kept apart there is one line `overflow`, and a metric says how many it holds."""
    plane = plane_of_its_own
    attempts = 300
    body = {"bootstrap_token": "enroll_" + "A" * 43, "csr": certs.csr(certs.ec_key())}

    def fail(i: int) -> int:
        return request(plane, "/v1/enroll", f"127.{30 + i // 200}.{i % 200}.1", method="POST", body=body).status

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = set(pool.map(fail, range(attempts)))
    assert statuses == {401}, statuses
    metrics = plane.api("GET", "/metrics").body.decode()
    lines = plane.audit("enrollment.refused")
    # The minute may have ended in between, then there are as many again.
    assert len(lines) <= 2 * (2 * KINDS + 2), len(lines)
    assert any(line["reason"] == "overflow" for line in lines)
    counted = [line for line in metrics.splitlines() if line.startswith("enlist_refusals_overflowed ")]
    assert counted and int(float(counted[0].split()[1])) >= attempts - 3 * KINDS, counted
    plane.restart()
    told = sum(line["count"] for line in plane.audit("enrollment.refused"))
    assert told == attempts, "an attempt is missing in the trail"


# Certificates on no record.


class Brought:
    """A control plane with few descriptors and an imported CA, whose key somebody else has as well."""

    def __init__(self):
        cert, key = openssl_ca(scratch("brought"), "/CN=Brought CA")
        self.plane = SmallPlane(init=("--issuer", "imported", "--ca-cert", cert, "--ca-key", key))
        self.ca, self.key = certs.certificate(cert.read_bytes()), load(key)

    def unrecorded(self, like: x509.Certificate) -> tuple:
        """A certificate that the CA signed and that is on no record."""
        key = certs.ec_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(like.subject)
            .issuer_name(self.ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(like.not_valid_before_utc)
            .not_valid_after(like.not_valid_after_utc)
        )
        for extension in like.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return certs.identity(scratch("unknown"), key, certs.pem(builder.sign(self.key, hashes.SHA256())).decode())


def test_certificates_on_no_record_have_the_places_of_strangers(programs):
    """Whoever has the key of an imported CA cannot use up what is kept for nodes: a node and a newcomer are served."""
    brought = Brought()
    with brought.plane as plane:
        node = native.enroll(plane)
        node.confirm()
        made = [brought.unrecorded(certs.certificate(node.answer.certificate)) for _ in range(14)]
        assert native.alert(plane, made[0]) is None, "the certificate is not even taken"
        contexts = [plane.context(files) for files in made]
        for context in contexts:
            context.set_alpn_protocols(["h2"])

        def hold(i):
            raw = reach(plane, f"127.{40 + i % 4}.1.1", tls=False, timeout=5)
            try:
                tls = contexts[i % len(contexts)].wrap_socket(raw, server_hostname="127.0.0.1")
                tls.sendall(PREFACE + get(1, "/healthz"))
                return tls
            except BaseException:
                raw.close()
                raise

        with Siege(840, hold):
            promise_is_kept({"node": node.confirm, "enrollment": lambda: native.enroll(plane)})
