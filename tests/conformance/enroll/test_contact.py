"""Which requests confirm an enrollment: every one that got past authentication, whatever it asks. D17."""

import grpc
import pytest

import native
import probectl
from machine import PATIENCE


@pytest.fixture(scope="module")
def plane(programs):
    with probectl.control_plane() as running:
        yield running


def state(plane, node) -> str:
    return plane.node(node.id)["state"]


def called(plane, node, path: str) -> grpc.StatusCode:
    """The status of a unary call of any path, with the node's certificate."""
    with native.door(plane, node.files) as door:
        call = door.channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            call(b"", timeout=PATIENCE)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    "path", ["/probectl.agent.v1.AgentService/Register", "/enlist.agent.v1.Agent/Nothing", "/v1/nodes"]
)
def test_a_call_that_is_not_served_confirms(plane, path):
    """A real probectl agent calls methods that are not served here. Proves D17, PROBE-18."""
    agent = probectl.enroll(plane)
    assert state(plane, agent) == "enrolled"
    assert called(plane, agent, path) == grpc.StatusCode.UNIMPLEMENTED
    assert state(plane, agent) == "active"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/v1/nodes", 403), ("POST", "/v1/tokens", 403)])
def test_a_request_that_is_refused_confirms(plane, method, path, status):
    agent = probectl.enroll(plane)
    body = {} if method == "POST" else None
    assert plane.https(method, path, body, certificate=agent.files).status == status
    assert state(plane, agent) == "active"


def test_what_authenticates_nobody_confirms_nothing(plane):
    agent = probectl.enroll(plane)
    for path in ("/healthz", "/readyz", "/openapi.json", "/v1/ca/crl", "/v1/ca/trust"):
        assert plane.https("GET", path, certificate=agent.files).status == 200, path
        assert state(plane, agent) == "enrolled", path
    assert called(plane, agent, "/grpc.health.v1.Health/Check") == grpc.StatusCode.OK
    assert state(plane, agent) == "enrolled"


def test_a_confirmation_that_says_failed_confirms_nothing(plane):
    node = native.enroll(plane)
    with native.door(plane, node.files) as door:
        door.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="the disk is full")
    assert state(plane, node) == "enrolled"
    assert plane.https("GET", "/nowhere", certificate=node.files).status == 404
    assert state(plane, node) == "active"


def test_the_first_request_after_a_rotation_is_seen(plane):
    """The certificate before is superseded with the first use of the next one, whatever was asked."""
    agent = probectl.enroll(plane)
    agent.speak()
    after = agent.rotated()
    assert after.statuses()[agent.serial] == "live"
    called(plane, after, "/probectl.agent.v1.AgentService/Heartbeat")
    assert after.statuses() == {agent.serial: "superseded", after.serial: "live"}
