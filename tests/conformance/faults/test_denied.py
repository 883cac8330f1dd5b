"""A denied certificate that comes back, and a recovery token that was not needed: seen, counted, and no more than that.

GPU-17, GPU-20, GPU-30, D20, D34.
"""

import certs
import handshakes
import lost
import native
import pytest
from machine import until
from plane import ControlPlane

KIND = "denied_certificate_seen"
REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"
DECRYPT = 51


@pytest.fixture
def plane(programs):
    """One that takes a second of silence for being lost."""
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        running.policy("liveness.grace", "1s")
        yield running


def alert(plane, node: str, kind: str) -> dict | None:
    return next((alert for alert in plane.node(node)["alerts"] if alert["kind"] == kind), None)


def stolen(plane):
    """A node whose recovery token somebody else used while its host was away: the host, and the thief."""
    host, grant = lost.provided(plane)

    def taken():
        try:
            return lost.recovered(plane, grant.token)
        except native.Refused as refusal:
            assert refusal.code == "recovery_not_needed", refusal
            return None

    return host, until(taken, "the host has been away for long enough")


def test_the_host_of_a_node_that_was_taken_over_is_seen_when_it_comes_back(plane):
    """One alert, which names the certificate and the address and counts every return; acknowledged it stays, and a
    revocation ends it. Proves GPU-17, GPU-20, D34."""
    host, thief = stolen(plane)
    thief.confirm()
    assert alert(plane, host.id, KIND) is None
    assert native.alert(plane, host.files) == REVOKED
    raised = until(lambda: alert(plane, host.id, KIND), "the alert is raised")
    assert host.serial in raised["detail"] and "127.0.0.1" in raised["detail"]
    assert raised["count"] == 1
    for _ in range(6):
        assert native.alert(plane, host.files) == REVOKED
    # What was counted is written when the process stops, at the latest.
    plane.stop()
    plane.start()
    assert alert(plane, host.id, KIND)["count"] == 7
    lines = [line for line in plane.audit("alert.raised") if line["kind"] == KIND]
    assert [(line["node_id"], line.get("count", 1)) for line in lines] == [(host.id, 1), (host.id, 6)]
    plane.cli("alert", "ack", raised["alert_id"])
    assert alert(plane, host.id, KIND)["acknowledged"]
    plane.cli("node", "revoke", host.id)
    assert alert(plane, host.id, KIND) is None


def test_the_machine_that_was_replaced_is_seen(plane):
    """Its node was enrolled anew elsewhere, and it is still there. Proves D34."""
    old = native.enroll(plane)
    old.confirm()
    new = native.enroll(plane, plane.token(node=old.id))
    new.confirm()
    assert native.alert(plane, old.files) == REVOKED
    assert old.serial in until(lambda: alert(plane, old.id, KIND), "the alert is raised")["detail"]
    new.confirm()


@pytest.mark.parametrize("act", ["revoke", "decommission"])
def test_a_machine_whose_node_is_gone_is_seen_when_it_knocks(plane, act):
    """A stolen machine that comes back is what an operator wants to know. Proves D14, D34."""
    gone = native.enroll(plane)
    gone.confirm()
    assert plane.api("POST", f"/v1/nodes/{gone.id}/{act}", {}).status == 200
    assert native.alert(plane, gone.files) == REVOKED
    assert gone.serial in until(lambda: alert(plane, gone.id, KIND), "the alert is raised")["detail"]


def test_a_denied_certificate_without_its_key_alarms_nobody(plane):
    """A certificate is public: shown with another key's signature it is refused, and nobody is called. Proves D34."""
    old = native.enroll(plane)
    native.enroll(plane, plane.token(node=old.id)).confirm()
    chain = [certs.certificate(old.answer.certificate), *certs.certificates(old.answer.chain)]
    assert handshakes.verdict(plane, chain, certs.ec_key()) == DECRYPT
    # Another's return is recorded after it, so that there is something to wait for.
    other = native.enroll(plane)
    native.enroll(plane, plane.token(node=other.id)).confirm()
    assert native.alert(plane, other.files) == REVOKED
    until(lambda: alert(plane, other.id, KIND), "the other's alert is raised")
    assert alert(plane, old.id, KIND) is None


def test_every_use_of_a_token_that_was_not_needed_is_counted(plane):
    """The alert is there with the first, and its count is the number of attempts in the end, with two writes.

    Proves GPU-17, D20.
    """
    plane.policy("liveness.grace", "5m")
    node, grant = lost.provided(plane)
    kind = "recovery_not_needed"
    assert lost.refused(plane, grant.token).code == kind
    assert alert(plane, node.id, kind)["count"] == 1
    for _ in range(20):
        assert lost.refused(plane, grant.token).code == kind
    plane.stop()
    plane.start()
    raised = alert(plane, node.id, kind)
    assert raised["count"] == 21 and "127.0.0" in raised["detail"]
    refused = [line["count"] for line in plane.audit("recovery.refused") if line["node_id"] == node.id]
    assert refused == [1, 20]
    assert len([line for line in plane.audit("alert.raised") if line["kind"] == kind]) == 2
