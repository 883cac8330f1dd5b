"""A directory that is put back from an older copy does not know which tokens were spent or revoked since: none of before is good."""

import evidence
import lost
import native
import pytest
import tampering
from daemons import lasting_port
from faults import Patient
from machine import scratch, until
from plane import ControlPlane


@pytest.fixture
def anchored(programs):
    """A control plane with an anchor outside of its directory, which takes a second of silence for being lost."""
    plane = ControlPlane().found()
    # The agent finds it again.
    plane.given = ("--anchor", plane.base / "anchor.json", "--listen", f"127.0.0.1:{lasting_port()}")
    plane.start(*plane.given)
    plane.policy("liveness.grace", "1s")
    plane.policy("failures.per_minute", "0")
    yield plane
    plane.close()


def bundled(plane) -> dict:
    """A repair bundle of a machine that is well."""
    node = native.enroll(plane)
    node.confirm()
    answer = plane.api("POST", f"/v1/nodes/{node.id}/repair-bundle", {})
    assert answer.status == 200, answer
    evidence.token(answer.json()["recovery_token"])
    return answer.json()


def recovered(plane, token: str) -> native.Node:
    """Tries until the machine has been silent for the grace period."""

    def tried() -> native.Node | None:
        try:
            return lost.recovered(plane, token)
        except native.Refused as refusal:
            assert refusal.code == "recovery_not_needed", refusal
            return None

    return until(tried, "it has been silent for long enough")


def put_back(plane, old) -> None:
    plane.stop()
    tampering.put_back(old, plane.dir)
    plane.start(*plane.given, "--accept-rollback")


def test_no_recovery_token_and_no_repair_bundle_of_before_the_copy_is_good(anchored):
    """Spent since, revoked since, or neither, a repair bundle, and a token that the copy has never heard of. Without it the first two
    gave their holders certificates, although the machines had long been given others. A node that is active needs nobody: it renews, and
    has a new recovery token."""
    plane = anchored
    agent = Patient(plane, plane.token()).start()
    try:
        agent.wait_connected()
        before = agent.wait_token()
        (spent, spending), (revoked, revoking), (_, valid) = (lost.provided(plane) for _ in range(3))
        bundle, later = bundled(plane), bundled(plane)
        of_before = sum(plane.node(item["node_id"])["recovery"]["tokens"] for item in plane.nodes())
        assert of_before >= 6
        agent.stop()
        plane.stop()
        old = tampering.copy(plane.dir, scratch("old") / "d")

        plane.start(*plane.given)
        recovered(plane, spending.token)
        assert plane.cli("node", "recovery", "revoke", revoked.id).code == 0
        lost.recovered(plane, later["recovery_token"], node_id=later["node_id"], bundle=lost.evidence_of(later))
        _, unknown = lost.provided(plane)
        assert lost.refused(plane, revoking.token).code == "token_revoked"
        put_back(plane, old)

        for token in (spending, revoking, valid):
            assert lost.refused(plane, token.token).code == "token_revoked"
        for each in (bundle, later):
            refused = lost.refused(plane, each["recovery_token"], node_id=each["node_id"], bundle=lost.evidence_of(each))
            assert refused.code == "token_revoked", refused
        assert lost.refused(plane, unknown.token).code == "token_invalid"
        assert not plane.audit("recovery.issued")
        (line,) = plane.audit("directory.rollback_accepted")
        assert line["recovery_tokens_voided"] == of_before, line
        plane.policy("liveness.grace", "1h")
        assert plane.node(spent.id)["recovery"]["tokens"] == 0

        serial = agent.serial()
        agent.start().wait_connected()
        until(lambda: agent.wait_token() != before, "it is given another token")
        assert plane.node(agent.node_id())["recovery"]["tokens"] >= 1
        plane.cli("node", "rotate", agent.node_id())
        until(lambda: agent.serial() != serial, "it renews")
        # With a new bundle the machine of the old one comes back.
        again = plane.api("POST", f"/v1/nodes/{bundle['node_id']}/repair-bundle", {}).json()
        evidence.token(again["recovery_token"])
        back = lost.recovered(plane, again["recovery_token"], node_id=again["node_id"], bundle=lost.evidence_of(again))
        assert back.id == bundle["node_id"]
    finally:
        agent.stop()
        agent.note_secrets()
    # Said once, and not again at the next start.
    plane.restart(*plane.given)
    assert len(plane.audit("directory.rollback_accepted")) == 1
