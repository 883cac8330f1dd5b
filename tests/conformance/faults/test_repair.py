"""Repair bundles: an operator's way back for a host that has nothing left, and the quarantine until it has proven
itself. GPU-04, GPU-19, GPU-21, GPU-22, D20, D36.
"""

import json
import stat

import certs
import evidence
import lost
import native
import pytest
from machine import ENLIST, run, until
from plane import ControlPlane
from terminal import shown


@pytest.fixture(scope="module")
def plane(programs):
    with ControlPlane() as running:
        running.policy("failures.per_minute", "0")
        running.policy("quarantine.observe", "1s")
        yield running


@pytest.fixture
def node(plane):
    made = native.enroll(plane)
    made.confirm()
    return made


def issue(plane, node, **words) -> dict:
    answer = plane.api("POST", f"/v1/nodes/{node.id}/repair-bundle", words)
    assert answer.status == 200, answer
    bundle = answer.json()
    evidence.token(bundle["recovery_token"])
    return bundle


def repaired(plane, bundle: dict, key=None) -> native.Node:
    return lost.recovered(
        plane, bundle["recovery_token"], key, node_id=bundle["node_id"], bundle=lost.evidence_of(bundle)
    )


def test_a_bundle_holds_what_it_takes_and_no_key(plane, node):
    """GPU-19, GPU-21: token, trust, profile, evidence; a privileged line, and the node is held."""
    bundle = issue(plane, node)
    assert set(bundle) == lost.BUNDLE
    assert (bundle["version"], bundle["node_id"], bundle["domain"]) == (1, node.id, "test.example")
    assert (bundle["recovery_profile_id"], bundle["recovery_url"]) == ("default", plane.url)
    assert bundle["recovery_ca_pem"] == plane.bundle.decode() and "PRIVATE" not in json.dumps(bundle)
    (line,) = [line for line in plane.audit("repair_bundle.issued") if line["node_id"] == node.id]
    assert (line["seq"], line["hash"]) == (bundle["audit_seq"], bundle["audit_hash"])
    assert line["actor"] == bundle["issued_by"] and line["expires_at"] == bundle["expires_at"]
    assert line["recovery_profile_id"] == "default" and bundle["recovery_token"] not in json.dumps(line)
    shown = plane.node(node.id)
    assert shown["quarantined"] and shown["quarantine"]["reason"] == "repair bundle issued"


def test_a_repaired_node_is_held_until_it_has_been_well_for_a_while(plane):
    """GPU-04, GPU-21, GPU-22, D36: what is wrong with it begins the wait anew."""
    node, own = lost.provided(plane)
    bundle = issue(plane, node)
    assert lost.refused(plane, own.token).code == "token_superseded"
    # It is well, as far as anybody knows: the operator has decided.
    back = repaired(plane, bundle)
    requested = [line for line in plane.audit("recovery.requested") if line["node_id"] == node.id]
    assert [line["repair"] for line in requested] == [True]
    assert plane.node(node.id)["quarantined"]
    plane.policy("quarantine.observe", "1h")
    with back.door() as door:
        stream = door.live(node.id, recovery_wanted=True)
        stream.next("welcome")
        stream.evidence(**{"class": "disk_full"})
        stream.next("ack")
        # Not before: it would be well for a second until it says so.
        plane.policy("quarantine.observe", "1s")
        three_seconds(plane)
        assert plane.node(node.id)["quarantined"], "something is wrong with it"
        stream.evidence(cert_serial=back.serial)
        assert not stream.next("standing").quarantined
        assert lost.noted(stream.next("recovery")).token
        stream.close()
    released = [line for line in plane.audit("host.released") if line["node_id"] == node.id]
    assert [line["actor"] for line in released] == ["system:reconciler"]
    assert lost.refused(plane, bundle["recovery_token"], bundle=lost.evidence_of(bundle)).code == "token_used"


def three_seconds(plane) -> None:
    """The control plane's clock moves."""

    def now() -> int:
        return int(plane.api("GET", "/healthz").headers["X-Server-Time"])

    began = now()
    until(lambda: now() - began > 3000, "three seconds have passed")


def test_a_changed_bundle_is_refused_and_not_used_up(plane, node):
    """GPU-17, GPU-19: everything that the bundle says is compared before anything is issued."""
    bundle = issue(plane, node)
    other = issue(plane, fresh(plane))
    for change in [
        {"expires_at": "2999-01-01T00:00:00Z"},
        {"audit_seq": bundle["audit_seq"] + 1},
        {"audit_seq": 0},
        {"audit_seq": 2**64 - 1},
        {"audit_hash": "0" * 64},
        {"audit_hash": ""},
        {"recovery_profile_id": "another"},
        {"domain": "elsewhere.example"},
        {"issued_by": "local:somebody"},
        {"issued_at": "2020-01-01T00:00:00Z"},
        {"recovery_url": "https://elsewhere.example:1"},
        {"recovery_ca_pem": bundle["recovery_ca_pem"] + "\n"},
        {"audit_seq": other["audit_seq"], "audit_hash": other["audit_hash"]},
    ]:
        said = lost.evidence_of({**bundle, **change})
        assert lost.refused(plane, bundle["recovery_token"], bundle=said).code == "repair_bundle_mismatch", change
    assert lost.refused(plane, bundle["recovery_token"]).code == "repair_bundle_mismatch"
    said = lost.evidence_of(bundle)
    assert lost.refused(plane, bundle["recovery_token"], bundle=said, node_id=other["node_id"]).code == "not_your_node"
    named = {"bundle": said, "recovery_profile_id": "another"}
    assert lost.refused(plane, bundle["recovery_token"], **named).code == "repair_bundle_mismatch"
    key = certs.ec_key()
    assert repaired(plane, bundle, key).answer.certificate == repaired(plane, bundle, key).answer.certificate


def test_an_agent_of_before_sends_less_and_is_repaired(plane, node):
    """GPU-19: what it does not send is not compared."""
    bundle = issue(plane, node)
    said = native.pb.BundleEvidence(
        expires_at=bundle["expires_at"],
        audit_seq=bundle["audit_seq"],
        audit_hash=bundle["audit_hash"],
        recovery_profile_id=bundle["recovery_profile_id"],
    )
    assert lost.recovered(plane, bundle["recovery_token"], bundle=said).id == node.id


def fresh(plane):
    made = native.enroll(plane)
    made.confirm()
    return made


def test_the_next_bundle_and_a_release_end_the_one_before(plane, node):
    """GPU-21."""
    first, second = issue(plane, node), issue(plane, node)
    said = lost.evidence_of(first)
    assert lost.refused(plane, first["recovery_token"], bundle=said).code == "token_superseded"
    assert plane.api("POST", f"/v1/nodes/{node.id}/release", {}).status == 200
    said = lost.evidence_of(second)
    assert lost.refused(plane, second["recovery_token"], bundle=said).code == "token_revoked"
    node.confirm()


def test_what_else_it_is_in_quarantine_for_a_repair_does_not_end(plane, node):
    """D36."""
    assert plane.api("POST", f"/v1/nodes/{node.id}/quarantine", {"reason": "odd"}).status == 200
    back = repaired(plane, issue(plane, node))
    with back.door() as door:
        stream = door.live(node.id)
        stream.next("welcome")
        stream.evidence(cert_serial=back.serial)
        three_seconds(plane)
        assert plane.node(node.id)["quarantined"]
        stream.close()


def test_the_command_writes_a_new_file_of_its_owner(plane, node, place):
    """GPU-19: 0600, never over another, and no secret on the screen."""
    file = place / "bundle.json"
    done = plane.cli("node", "repair-bundle", node.id, "--out", file, "--expires", "1h")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    bundle = json.loads(file.read_text())
    evidence.token(bundle["recovery_token"])
    assert set(bundle) == lost.BUNDLE and bundle["recovery_token"] not in done.out
    assert done.json()["audit_seq"] == bundle["audit_seq"] and done.json()["file"] == str(file)
    again = plane.cli("node", "repair-bundle", node.id, "--out", file, ok=False)
    assert again.code == 2 and json.loads(file.read_text()) == bundle
    plain = run(ENLIST, "node", "repair-bundle", node.id, "--out", place / "two.json", "--dir", plane.dir)
    evidence.token(json.loads((place / "two.json").read_text())["recovery_token"])
    assert plain.code == 0 and "recovery_" not in plain.out and "enlist-agent recover --bundle" in plain.out
    assert repaired(plane, json.loads((place / "two.json").read_text())).id == node.id


def test_what_to_do_with_a_bundle_fits_the_terminal(plane, node, place):
    """Sentences are broken between words; the commands stay such that they can be pasted."""
    command = (ENLIST, "node", "repair-bundle", node.id, "--out", "b.json", "--dir", plane.dir)
    done = shown(*command, cwd=place)
    evidence.token(json.loads((place / "b.json").read_text())["recovery_token"])
    assert not done.too_wide(), done.too_wide()
    assert "  enlist-agent recover --bundle b.json" in done.lines(), done.lines()


def test_there_is_none_for_what_is_gone_unknown_or_has_no_certificate(plane, node, place):
    """GPU-30: refused with exit 3, and no file is left."""
    gone = native.enroll(plane)
    assert plane.api("POST", f"/v1/nodes/{gone.id}/revoke", {}).status == 200
    again = native.enroll(plane)
    for act in ("decommission", "reinstate"):
        assert plane.api("POST", f"/v1/nodes/{again.id}/{act}", {}).status == 200
    for name, code in [(gone.id, "node_revoked"), ("nobody", "node_not_found"), (again.id, "no_certificate")]:
        file = place / f"{name}.json"
        done = plane.cli("node", "repair-bundle", name, "--out", file, ok=False)
        assert done.code == 3 and code in done.err and not file.exists()
    for expires, code in [("5s", "token_ttl_too_short"), ("91d", "token_ttl_too_long"), ("soon", "bad_request")]:
        answer = plane.api("POST", f"/v1/nodes/{node.id}/repair-bundle", {"expires": expires})
        assert (answer.status, answer.code) == (400, code)
    assert not plane.node(node.id)["quarantined"]


def test_only_a_platform_admin_may_have_one(plane, node):
    """GPU-21: privileged."""
    for role, status in (("viewer", 403), ("operator", 403), ("platform-admin", 200)):
        made = plane.api("POST", "/v1/operator-keys", {"name": "robot", "role": role, "expires": "1h"})
        assert made.status == 201, made
        key = evidence.token(made.json()["key"])
        headers = {"Authorization": f"Bearer {key}"}
        answer = plane.https("POST", f"/v1/nodes/{node.id}/repair-bundle", {}, headers)
        assert answer.status == status, answer
    evidence.token(answer.json()["recovery_token"])
    assert plane.https("POST", f"/v1/nodes/{node.id}/repair-bundle", {}).status == 401
    assert plane.https("POST", f"/v1/nodes/{node.id}/repair-bundle", {}, certificate=node.files).status == 403
