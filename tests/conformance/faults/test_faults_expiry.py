"""Certificates that end, trust that is stale, identities that are no more: who comes back by itself, and who must not.

What happened before is in minute.py.
"""

import pytest

import certs
import native
from faults import RUNTIME_TRUST, Patient, alerts, kinds
from impostors import Authority, Impostor
from machine import scratch, until

EXPIRED, BLOCKED, REVOKED = "cert_expired", "recovery_enrollment_blocked", "identity_revoked_or_fenced"
RECOVERY = ("recovery.requested", "recovery.issued", "recovery.resolved")


@pytest.fixture
def past(minute):
    """When it is over."""
    return minute.wait()


def recovered(plane, patient: Patient, node: str) -> list[dict]:
    """The same node with another certificate, and the whole story on record under one correlation id."""
    patient.well(90)
    assert patient.node_id() == node and patient.keys_match()
    until(lambda: kinds(plane, node, "recovery.resolved"), "the recovery is resolved")
    lines = [line for line in plane.audit() if line.get("node_id") == node and line["event_type"] in RECOVERY]
    assert [line["event_type"] for line in lines] == list(RECOVERY), lines
    assert len({line["correlation_id"] for line in lines}) == 1 and lines[0]["correlation_id"], lines
    until(lambda: plane.node(node)["state"] == "active", "it is active")
    return lines


def recovered_by_itself(plane, patient: Patient, node: str) -> list[dict]:
    """And it tells of it: its status, its metrics, and what the control plane shows."""
    lines = recovered(plane, patient, node)
    until(lambda: patient.status()["last_recovery"], "the host remembers it")
    last = patient.status()["last_recovery"]
    assert last["ok"] and last["correlation_id"] == lines[0]["correlation_id"]
    assert patient.figure("recovery_enrollment_success_total") == 1
    assert patient.figure(f'recovery_enrollment_attempts_total{{reason="{EXPIRED}"}}') >= 1
    until(lambda: plane.node(node)["evidence"]["last_recovery"], "the control plane shows it")
    return lines


def test_a_renewal_that_is_refused(past):
    """It is told while the host is online: alert, evidence, metrics. Proves GPU-14, GPU-22, GPU-24."""
    patient, node = past.patients["online"], past.nodes["online"]
    raised = [line for line in past.stays.audit("alert.raised") if line.get("node_id") == node]
    assert "renewal_failing" in {line["kind"] for line in raised}, raised
    assert patient.figure("cert_renewal_failures_total") >= 1
    assert patient.figure("cert_renewal_attempts_total") >= patient.figure("cert_renewal_failures_total")
    assert "key_kind_not_allowed" in patient.whole_log()


def test_expired_while_online(past):
    """The certificate ends under a host that could not renew; the recovery token replaces it once it may.

    Proves GPU-03, GPU-04, GPU-15, GPU-22, GPU-25.
    """
    patient, node = past.patients["online"], past.nodes["online"]
    assert EXPIRED in patient.whole_log()
    lines = recovered_by_itself(past.stays, patient, node)
    renewal = [record for record in patient.diagnostics() if record["class"] == EXPIRED]
    assert renewal[-1]["correlation_id"] == lines[0]["correlation_id"], "one thread from the failure to its end"
    assert patient.figure(f'recovery_enrollment_failures_total{{reason="{BLOCKED}"}}') >= 1
    until(lambda: not alerts(past.stays, node), "every alert about it is cleared")


def test_the_control_plane_was_away_for_longer_than_a_certificate_lives(past):
    """The daemon ran all the time; it is back without anybody's help. Proves GPU-04, GPU-08, GPU-15, GPU-25."""
    recovered_by_itself(past.away, past.patients["waiting"], past.nodes["waiting"])


def test_expired_while_offline(past):
    """Recovered at the next start, before anything else. Proves GPU-04, GPU-25."""
    patient, node = past.patients["off"], past.nodes["off"]
    lines = recovered_by_itself(past.away, patient, node)
    assert lines[0]["class"] == EXPIRED
    fresh = patient.wait_token()
    assert fresh != past.tokens["off"], "a used token is replaced over the new certificate"


def test_revoked_meanwhile(past):
    """Fails closed: the token of a revoked node is worth nothing, and is not even tried for long.

    Proves GPU-16, GPU-17, GPU-30.
    """
    patient, node = past.patients["revoked"], past.nodes["revoked"]
    patient.told(REVOKED)
    assert REVOKED in patient.diagnosed()
    assert patient.figure(f'recovery_enrollment_failures_total{{reason="{REVOKED}"}}') >= 1
    assert kinds(past.away, node, "recovery.issued") == []
    patient.stop()
    done = patient.agent("recover")
    assert done.code == 3 and done.error()["code"] == "node_revoked", done
    assert past.away.node(node)["state"] == "revoked"
    assert kinds(past.away, node, "recovery.issued") == []


def test_nothing_to_trust_is_blocked(past):
    """Both bundles are stale: closed, with the way out told, and the control plane heard nothing of it.

    Proves GPU-05, GPU-16, GPU-28.
    """
    patient, node = past.patients["stale"], past.nodes["stale"]
    patient.told(BLOCKED)
    record = next(record for record in patient.diagnostics() if record["class"] == BLOCKED)
    assert "repair-bundle" in record["remedy"]
    assert patient.figure(f'recovery_enrollment_failures_total{{reason="{BLOCKED}"}}') >= 1
    checks = {check["name"]: check for check in patient.doctor()["checks"]}
    assert checks["recovery"]["class"] == BLOCKED, checks
    assert not checks["tls"]["ok"] and not checks["expiry"]["ok"], checks
    assert kinds(past.away, node, *RECOVERY, "recovery.refused") == []
    assert patient.token_file().read_text().strip() == past.tokens["stale"], "the token was given away"


def test_the_way_out_is_a_repair_bundle(past):
    """And the daemon goes on with what it brought. Proves GPU-04, GPU-16, GPU-19, GPU-21."""
    patient, node = past.patients["stale"], past.nodes["stale"]
    past.away.policy("quarantine.observe", "2s")
    patient.told(BLOCKED)
    patient.stop()
    bundle = scratch("rep") / "bundle.json"
    past.away.cli("node", "repair-bundle", node, "--out", bundle)
    done = patient.agent("recover", "--bundle", bundle)
    assert done.code == 0, done
    patient.start()
    recovered(past.away, patient, node)
    until(lambda: not past.away.node(node)["quarantined"], "it is let go once it has been seen to be well")


def test_only_stale_runtime_trust_is_cured_through_recovery(past):
    """The recovery endpoint is trusted by its own bundle, and brings the runtime's. No other server is believed.

    Proves GPU-05, GPU-27.
    """
    plane = past.away
    patient = Patient(plane, plane.token())
    try:
        patient.start().wait_connected()
        patient.wait_token()
        node = patient.node_id()
        patient.stop()
        patient.forget_trust(RUNTIME_TRUST)
        with Impostor("portal", Authority()) as impostor:
            patient.environment["ENLIST_AGENT_SERVER"] = f"{impostor.url},{plane.url}"
            patient.start()
            patient.well(90)
            until(lambda: "server_tls_untrusted" in patient.whole_log(), "it said why")
            assert impostor.heard == b"" and impostor.handshakes == 0
        assert patient.node_id() == node
        trusted = (patient.dir / RUNTIME_TRUST).read_bytes()
        assert {certs.fingerprint(c) for c in certs.certificates(trusted)} == {
            certs.fingerprint(c) for c in certs.certificates(plane.bundle)
        }
        assert kinds(plane, node, "host.enrolled") == ["host.enrolled"]
    finally:
        patient.stop()
        patient.note_secrets()


def test_recovery_comes_without_the_stale_certificate(past):
    """Seen from a recovery endpoint of our CA that asks for client certificates: none is shown. Proves GPU-15.

    It goes where agent.toml says, and nowhere else.
    """
    plane = past.away
    patient = Patient(plane, plane.token())
    patient.start().wait_connected()
    token = patient.wait_token()
    patient.stop()
    with Impostor("unavailable", Authority(plane)) as impostor:
        impostor.ask_for_certificates(plane.bundle)
        bundle = str(plane.dir / "ca/bundle.pem")
        env = {"ENLIST_AGENT_RECOVERY_URL": impostor.url, "ENLIST_AGENT_RECOVERY_CA_FILE": bundle}
        done = patient.agent("recover", env=env)
        assert done.code == 4 and done.error()["code"] == "endpoint_unreachable", done
        assert token.encode() in impostor.heard, "it reached the endpoint"
        assert impostor.handshakes >= 1 and impostor.certificates == 0
    patient.note_secrets()
    assert native.alert(plane, patient.files) is None, "nothing was used up"

