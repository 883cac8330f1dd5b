"""Tokens that are created while the control plane is stopped: in its data directory, by the same rules."""

import os

import evidence
import native
from clusters import Cluster
from machine import ENLIST, run


def test_a_token_of_a_stopped_control_plane_enrolls_a_node_when_it_runs(stopped):
    """Proves PROBE-02: by command on the store itself, by the same rules, and audited as the local user's."""
    plane = stopped
    minted = plane.cli("token", "create", "--stopped", "--expires", "30m").json()
    evidence.token(minted["token"])
    assert minted["ca_pin"] == plane.pin and minted["tenant"] == "default", minted
    refused = plane.cli("token", "create", "--stopped", "--tenant", "nobody", ok=False)
    assert refused.code == 3 and refused.error()["code"] == "tenant_not_found", refused
    refused = plane.cli("token", "create", "--stopped", "--expires", "9999h", ok=False)
    assert refused.code == 3, refused
    plane.start()
    node = native.enroll(plane, minted["token"])
    (line,) = [line for line in plane.audit("enrollment_token.created") if line["token_id"] == minted["token_id"]]
    assert line["actor"].startswith("local:"), line
    assert plane.token_state(minted["token_id"]) == "used" and plane.node(node.id)
    assert plane.cli("audit", "verify").json()["ok"]


def test_the_documents_command_creates_one_too(stopped, place):
    """Proves PROBE-02: probectl's own name for it; the pin is that of the certificate which is presented afterwards."""
    plane = stopped
    linked = run(ENLIST, "compat", "link", "--dir", place)
    assert linked.code == 0, linked
    done = run(place / "probectl-control", "enroll-token", "-stopped", "-ttl", "1h", "--dir", plane.dir, "--json")
    assert done.code == 0, done
    minted = done.json()
    evidence.token(minted["token"])
    assert minted["token"].startswith("pjt_"), minted
    plane.start()
    assert plane.mint(door="probectl")["server_cert_pin"] == minted["server_cert_pin"]
    assert plane.token_state(minted["token_id"]) == "unused"


def test_while_it_runs_the_flag_is_refused(plane):
    done = plane.cli("token", "create", "--stopped", ok=False)
    assert (done.code, done.error()["code"]) == (1, "directory_in_use") and "without --stopped" in done.error()["hint"], done
    elsewhere = run(ENLIST, "token", "create", "--stopped", "--server", plane.url, "--json")
    assert elsewhere.code == 2 and "--server" in elsewhere.error()["message"], elsewhere


def test_a_replica_does_not_decide_for_the_others():
    with Cluster(3) as cluster:
        replica = cluster.replicas[1]
        replica.stop()
        done = replica.cli("token", "create", "--stopped", ok=False)
        assert (done.code, done.error()["code"]) == (1, "domain_replicated") and done.error()["hint"], done
        first = cluster.replicas[0]
        first.stop()
        done = first.cli("token", "create", "--stopped", ok=False)
        assert (done.code, done.error()["code"]) == (1, "domain_replicated"), done
        for stopped in (first, replica):
            stopped.start()
        cluster.until_voting(3)


def test_another_user_than_the_owner_is_sent_to_the_owner(stopped):
    """Files of root's would be unreadable for the service."""
    if os.geteuid() != 0:
        return
    os.chown(stopped.dir, 65534, 65534)
    try:
        done = stopped.cli("token", "create", "--stopped", ok=False)
        assert (done.code, done.error()["code"]) == (2, "not_the_owner") and "sudo -u" in done.error()["hint"], done
    finally:
        os.chown(stopped.dir, 0, 0)
