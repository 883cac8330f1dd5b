"""Batches of machines with more entries than there may be: refused, and without the memory for them."""

import json

import grpc
import pytest

import native
import pacts
from operators import make_key
from plane import ControlPlane
from strangers import Siege, reach

MOST = 100_000
BODY = 4 << 20
"""What the body of a batch may take."""


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        pacts.allow_hardware(running)
        yield running


class Peak:
    """The most memory that a process has used since this was made, in KiB above what it used then."""

    def __init__(self, plane):
        self.plane = plane
        with open(f"/proc/{plane.process.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        self.before = plane.status("VmRSS")

    def grown(self) -> int:
        return self.plane.status("VmHWM") - self.before


def test_two_million_entries_of_two_bytes_are_refused_while_they_are_read(plane):
    """On the pact API: an entry takes a hundred times its two bytes once it is decoded."""
    admin = make_key(plane, "platform-admin")["key"]
    credentials = grpc.ssl_channel_credentials(plane.bundle)
    with grpc.secure_channel(f"127.0.0.1:{plane.port}", credentials, options=pacts.BATCH_OPTIONS) as channel:
        call = channel.unary_unary("/pact.enrollment.EnrollmentService/BatchRegisterNodes")
        metadata = (("authorization", f"Bearer {admin}"),)
        peak = Peak(plane)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\x0a\x00" * (BODY // 2 - 100), metadata=metadata, timeout=120)
        refusal = native.Refused(refused.value)
        print(f"{peak.grown()} KiB")
        assert refusal.code == "too_large" and str(MOST) in refusal.message, refusal
        assert peak.grown() < 100_000


def test_too_many_entries_of_a_json_batch_are_refused_while_they_are_read(plane):
    """Over REST, the smallest entry that there can be."""
    count = (BODY - 100) // len('{"node_id":""},')
    body = b'{"nodes":[' + b",".join([b'{"node_id":""}'] * count) + b"]}"
    header = {"Authorization": f"Bearer {make_key(plane, 'platform-admin')['key']}", "Content-Type": "application/json"}
    peak = Peak(plane)
    answer = plane.https("POST", "/v1/nodes/batch", body, header, timeout=120)
    print(f"{count} entries, {peak.grown()} KiB")
    assert answer.code == "too_large" and str(MOST) in answer.json()["error"]["message"], answer
    assert peak.grown() < 100_000


def test_addresses_of_one_machine_are_not_kept_twice(plane):
    """A list of a million empty addresses: read once, and refused for what is in it."""
    body = json.dumps({"nodes": [{"node_id": "macs", "mac": [""] * 1_000_000}]}, separators=(",", ":")).encode()
    assert len(body) < BODY
    peak = Peak(plane)
    answer = plane.api("POST", "/v1/nodes/batch", body, {"Content-Type": "application/json"})
    print(f"{peak.grown()} KiB")
    assert answer.status == 200 and not answer.json()["results"][0]["ok"], answer
    assert peak.grown() < 30_000


def test_one_that_sends_its_batches_slowly_keeps_nobody_out(plane):
    """Forty bodies of a tenant's platform-admin that have begun and do not end; the others' batches and documents are accepted."""
    assert plane.api("POST", "/v1/tenants", {"name": "slow"}).status == 201
    slow = make_key(plane, "platform-admin", "--tenant", "slow")["key"]
    admin = {"Authorization": f"Bearer {make_key(plane, 'platform-admin')['key']}"}
    head = f"POST /v1/nodes/batch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {slow}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"

    def dripping(_):
        connection = reach(plane, "127.3.3.3", "http/1.1")
        connection.sendall(head.encode() + b'{"nodes":[')
        return connection

    with Siege(40, dripping, lambda connection: connection.sendall(b" "), workers=2):
        for _ in range(3):
            assert plane.https("POST", "/v1/nodes/batch", {"nodes": []}, admin).status == 200
