"""Refused renewals in the audit trail: a line per node and reason, coalesced, with the correlation id."""

import certs
import native
import probectl
import pytest
import workers
from machine import PATIENCE

FIELDS = {"node_id", "cert_serial", "reason", "count", "correlation_id", "samples"}
GARBAGE = "this is no request"


@pytest.fixture(scope="module")
def plane(programs):
    with probectl.control_plane() as running:
        yield running


def lines(plane, node: str) -> list[dict]:
    found = [line for line in plane.audit("certificate.refused") if line["node_id"] == node]
    assert all(FIELDS <= set(line) for line in found), found
    return found


def natively(plane, node, csr: str, correlation: str) -> str:
    """The code that the native API refuses this request with."""
    with native.door(plane, node.files) as door:
        with pytest.raises(native.grpc.RpcError) as refused:
            metadata = (("x-correlation-id", correlation),)
            door.stub.Renew(native.pb.RenewRequest(csr=csr), metadata=metadata, timeout=PATIENCE)
        return native.Refused(refused.value).code


def test_the_first_refusal_is_on_record_at_once_with_its_correlation_id(plane):
    """Proves GPU-22: on all ways to renew, before the caller has its answer."""
    node = native.enroll(plane)
    assert natively(plane, node, GARBAGE, "host-1:7") == "csr_invalid"
    worker = workers.enroll(plane)
    body, header = {"csr": GARBAGE}, {"X-Correlation-Id": "host-2:7"}
    assert plane.https("POST", "/v1/renew", body, header, certificate=worker.files).status == 400
    agent = probectl.enroll(plane)
    proof = probectl.proof(agent.key, GARBAGE)
    body, header = {"cert_pem": agent.cert, "csr_pem": GARBAGE, "proof": proof}, {"X-Correlation-Id": "host-3:7"}
    assert plane.https("POST", "/enroll/agent/rotate", body, header).status == 400
    for holder, correlation in ((node, "host-1:7"), (worker, "host-2:7"), (agent, "host-3:7")):
        (line,) = lines(plane, holder.id)
        assert (line["reason"], line["count"], line["cert_serial"]) == ("csr_invalid", 1, holder.serial), line
        assert (line["correlation_id"], line["samples"]) == (correlation, [correlation]), line
    timeline = plane.api("GET", f"/v1/nodes/{node.id}/timeline").body.decode()
    assert "certificate.refused" in timeline


def test_what_follows_is_counted_and_written_at_a_clean_stop(plane_of_its_own):
    """Proves GPU-22: a node that asks again and again has one line, then one with the count, also when the process ends."""
    plane = plane_of_its_own
    node, other = native.enroll(plane), native.enroll(plane)
    for attempt in range(12):
        assert natively(plane, node, GARBAGE, f"a:{attempt}") == "csr_invalid"
    assert natively(plane, other, GARBAGE, "b:0") == "csr_invalid"
    weak = certs.csr(certs.rsa_key(1024))
    reason = natively(plane, node, weak, "a:weak")
    assert reason != "csr_invalid" or len(lines(plane, node.id)) == 1
    assert [line["count"] for line in lines(plane, node.id) if line["reason"] == "csr_invalid"] == [1]
    plane.restart()
    first, rest = [line for line in lines(plane, node.id) if line["reason"] == "csr_invalid"]
    assert (first["count"], first["correlation_id"]) == (1, "a:0")
    assert rest["count"] >= 11 and rest["correlation_id"].startswith("a:"), rest
    assert rest["samples"] == [f"a:{attempt}" for attempt in range(1, 9)], rest
    assert rest["cert_serial"] == node.serial and rest["request_id"] != first["request_id"]
    assert [line["count"] for line in lines(plane, other.id)] == [1], "nothing is written twice"
    assert plane.cli("audit", "verify").json()["ok"]


def test_a_stranger_makes_no_line_for_a_node(plane):
    """Whoever has a node's certificate but not its key, or none at all, is not that node."""
    agent, worker = probectl.enroll(plane), workers.enroll(plane)
    request = certs.good_csr()
    forged = {"cert_pem": agent.cert, "csr_pem": request, "proof": probectl.proof(certs.ec_key(), request)}
    assert plane.https("POST", "/enroll/agent/rotate", forged).status == 401
    named = {"X-Tenant": "elsewhere"}
    assert plane.https("POST", "/enroll/agent/rotate", forged, named).status == 401
    assert plane.https("POST", "/v1/renew", {"csr": request}).status == 401
    with native.door(plane) as door:
        assert door.renewal_refused(request).code == "unauthenticated"
    assert lines(plane, agent.id) == lines(plane, worker.id) == []
    assert not [line for line in plane.audit("certificate.refused") if line["node_id"] is None]


def test_a_granted_renewal_makes_no_line(plane):
    """The same requests, well made."""
    agent = probectl.enroll(plane).rotated()
    node = native.enroll(plane)
    with native.door(plane, node.files) as door:
        door.renew(certs.good_csr())
    assert lines(plane, agent.id) == lines(plane, node.id) == []
