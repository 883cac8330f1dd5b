"""Repair bundles: what is in them, what a changed one is worth, and how a host comes back with one."""

import json
import os
import socket

import pytest

import evidence
import lost
from clocks import shifted
from faults import Patient, kinds
from impostors import Authority, Impostor
from machine import AGENT, run, scratch, until
from plane import ControlPlane


@pytest.fixture(scope="module", autouse=True)
def quick(plane):
    plane.policy("liveness.interval", "1s")
    plane.policy("quarantine.observe", "2s")


@pytest.fixture
def patient(plane):
    """A host that was well, and is switched off."""
    made = Patient(plane, plane.token())
    made.start().wait_connected()
    made.wait_token()
    made.node = made.node_id()
    made.stop()
    yield made
    made.stop()
    made.note_secrets()


def issue(plane, node: str, *options):
    """The file that the command leaves."""
    file = scratch("rep") / "bundle.json"
    plane.cli("node", "repair-bundle", node, "--out", file, *options)
    evidence.token(json.loads(file.read_text())["recovery_token"])
    return file


def changed(file, **fields):
    """A copy of a bundle that says something else."""
    other = scratch("rep") / "bundle.json"
    other.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    other.chmod(0o600)
    return other


def recover(file, directory, **named):
    return run(AGENT, "recover", "--bundle", file, "--dir", directory, "--json", **named)


def test_what_a_bundle_holds(plane, patient):
    """Token, CA, profile and the line of the trail that it is; no key of any kind; the node is fenced until it is seen.

    Proves GPU-18, GPU-19, GPU-20, GPU-21.
    """
    file = issue(plane, patient.node)
    assert file.stat().st_mode & 0o7777 == 0o600
    bundle = json.loads(file.read_text())
    assert set(bundle) == lost.BUNDLE and bundle["version"] == 1 and bundle["node_id"] == patient.node
    assert "PRIVATE KEY" not in file.read_text()
    assert bundle["recovery_url"].startswith("https://")
    (line,) = [line for line in plane.audit("repair_bundle.issued") if line["node_id"] == patient.node]
    assert (line["seq"], line["hash"]) == (bundle["audit_seq"], bundle["audit_hash"])
    assert line["actor"] == bundle["issued_by"] and line["actor"].startswith("local:")
    assert bundle["recovery_token"] not in json.dumps(line)
    shown = plane.node(patient.node)
    assert shown["quarantined"] and "quarantined" in shown["excluded"]
    again = plane.cli("node", "repair-bundle", patient.node, "--out", file, ok=False)
    assert again.code != 0, "a file was overwritten"


def test_a_host_comes_back_with_a_bundle(plane, patient):
    """One story under one correlation id, ending when the host has been seen to be well.

    Proves GPU-04, GPU-19, GPU-21, GPU-22.
    """
    done = recover(issue(plane, patient.node), patient.dir)
    assert done.code == 0, done
    patient.start()
    patient.well()
    assert patient.node_id() == patient.node
    until(lambda: not plane.node(patient.node)["quarantined"], "the quarantine ends by itself")
    wanted = (
        "host.quarantined",
        "repair_bundle.issued",
        "recovery.requested",
        "recovery.issued",
        "recovery.resolved",
        "host.released",
    )
    assert kinds(plane, patient.node, *wanted) == list(wanted)
    story = [line for line in plane.audit() if line.get("node_id") == patient.node]
    threads = {line["correlation_id"] for line in story if line["event_type"].startswith("recovery.")}
    assert len(threads) == 1
    patient.wait_token()


def test_a_bundle_is_good_for_an_empty_host(plane, patient, place):
    """A replaced disk: nothing but the file is needed, and it works once. Proves GPU-04, GPU-19."""
    file = issue(plane, patient.node)
    done = recover(file, place / "a")
    assert done.code == 0, done
    second = recover(file, place / "b")
    assert second.code == 3 and second.error()["code"] == "token_used", second


def test_a_changed_bundle_is_worth_nothing(plane, patient, place):
    """Whatever is changed, it is noticed here or there, and the true one stays good.

    Proves GPU-05, GPU-16, GPU-17, GPU-19.
    """
    other = Patient(plane, plane.token())
    other.start().wait_connected()
    stranger = other.node_id()
    other.stop()
    file = issue(plane, patient.node)
    true = json.loads(file.read_text())
    changes = {
        "another version": {"version": 2},
        "another domain": {"domain": "elsewhere.example"},
        "another node": {"node_id": stranger},
        "plain http": {"recovery_url": true["recovery_url"].replace("https:", "http:")},
        "a longer life": {"expires_at": "2099-01-01T00:00:00Z"},
        "over": {"expires_at": "2020-01-01T00:00:00Z"},
        "another line": {"audit_hash": "0" * len(true["audit_hash"])},
        "another number": {"audit_seq": 1},
        "another profile": {"recovery_profile_id": "other"},
        "another token": {"recovery_token": "recovery_" + "A" * 43},
        "no token": {"recovery_token": ""},
        "another CA": {"recovery_ca_pem": Authority().pem.decode()},
        "no CA": {"recovery_ca_pem": ""},
    }
    codes = {}
    for name, fields in changes.items():
        done = recover(changed(file, **fields), patient.dir)
        assert done.code in (1, 2, 3, 4), (name, done)
        assert done.error()["code"] and done.error()["hint"], (name, done)
        codes[name] = done.error()["code"]
    print(codes)
    assert codes["a longer life"] == codes["another line"] == codes["another number"] == "repair_bundle_mismatch"
    assert codes["another CA"] in ("server_tls_untrusted", "recovery_enrollment_blocked")
    for text in ("", "{", "[]", '{"version": 1}', "x" * 1_000_000):
        broken = scratch("rep") / "b.json"
        broken.write_text(text)
        broken.chmod(0o600)
        assert recover(broken, place / "x").code in (1, 2), text[:20]
    assert kinds(plane, patient.node, "recovery.issued") == []
    # Another host's directory is not taken over by it either.
    done = recover(file, other.dir)
    assert done.code in (1, 2), done
    assert recover(file, patient.dir).code == 0
    other.note_secrets()


def test_whatever_is_changed_in_a_bundle_its_token_is_not_spent(plane, place):
    """On an empty host nothing tells what is true: each field in turn is compared by the control plane, before anything
    is issued, and the true bundle then still works. Proves GPU-05, GPU-17, GPU-19."""
    host = Patient(plane, plane.token())
    host.start().wait_connected()
    node = host.node_id()
    host.stop()
    host.note_secrets()
    file = issue(plane, node)
    true = json.loads(file.read_text())
    _, _, port = true["recovery_url"].rpartition(":")
    changes = {
        "version": 2,
        "node_id": "somebody-else",
        "domain": "elsewhere.example",
        "recovery_token": true["recovery_token"][:-1] + ("A" if true["recovery_token"][-1] != "A" else "B"),
        "recovery_profile_id": "other",
        "recovery_url": f"https://localhost:{port}",
        "recovery_ca_pem": true["recovery_ca_pem"] + true["recovery_ca_pem"],
        "issued_by": "local:somebody",
        "issued_at": "2020-01-01T00:00:00Z",
        "expires_at": "2099-01-01T00:00:00Z",
        "audit_seq": true["audit_seq"] + 1,
        "audit_hash": "0" * len(true["audit_hash"]),
    }
    assert set(changes) == lost.BUNDLE
    codes = {}
    for number, (field, value) in enumerate(changes.items()):
        done = recover(changed(file, **{field: value}), place / f"empty-{number}")
        assert done.code != 0, (field, done)
        codes[field] = done.error()["code"]
    here = {"version": "bundle_invalid", "node_id": "not_your_node", "recovery_token": "token_invalid"}
    assert codes == {field: here.get(field, "repair_bundle_mismatch") for field in changes}
    for field in ("issued_by", "issued_at", "domain"):
        done = recover(changed(file, **{field: ""}), place / f"without-{field}")
        assert done.code != 0, f"left empty, {field} is changed too"
    assert kinds(plane, node, "recovery.requested", "recovery.issued") == []
    done = recover(file, place / "true")
    assert done.code == 0 and done.json()["node_id"] == node, done


def test_a_bundle_that_others_may_read_is_refused(plane, patient):
    """Proves GPU-16."""
    file = issue(plane, patient.node)
    file.chmod(0o644)
    assert recover(file, patient.dir).code in (1, 2)
    file.chmod(0o600)
    assert recover(file, patient.dir).code == 0


def test_a_bundle_sends_its_token_to_no_one_else(plane, patient):
    """Led to a server that its CA does not know, it says nothing. Proves GPU-05."""
    file = issue(plane, patient.node)
    with Impostor("portal", Authority()) as impostor:
        done = recover(changed(file, recovery_url=impostor.url), patient.dir)
        assert done.code == 4, done
        assert impostor.heard == b"" and impostor.handshakes == 0
    assert recover(file, patient.dir).code == 0


def test_a_bundle_of_another_host_is_known_by_what_is_left(plane, patient):
    """A damaged identity still tells whose it is, by its leaf or else by its token. Proves GPU-17, GPU-19."""
    other = Patient(plane, plane.token())
    other.start().wait_connected()
    stranger = other.node_id()
    other.stop()
    file = issue(plane, stranger)
    for name in ("bundle.pem", "cert.pem"):
        for generation in (patient.dir / "identity").glob("0*"):
            (generation / name).write_text("garbage")
        done = recover(file, patient.dir)
        assert done.code == 2 and done.error()["code"] == "bundle_of_another", (name, done)
    assert kinds(plane, stranger, "recovery.requested") == []
    assert recover(issue(plane, patient.node), patient.dir).code == 0
    other.note_secrets()


def test_by_a_clock_that_is_certainly_wrong_nothing_is_sent(plane, patient):
    """By a clock before this host's own certificate and before the bundle, whoever kept a certificate that has ended
    would be believed: nobody is even called. Proves GPU-05, GPU-29."""
    file = issue(plane, patient.node)
    with socket.create_server(("127.0.0.1", 0)) as anybody:
        anybody.setblocking(False)
        url = f"https://127.0.0.1:{anybody.getsockname()[1]}"
        profile = patient.dir / "recovery" / "profile.json"
        profile.write_text(json.dumps({**json.loads(profile.read_text()), "url": url}))
        by_bundle = recover(changed(file, recovery_url=url), patient.dir, env=shifted(-48))
        by_token = run(AGENT, "recover", "--dir", patient.dir, "--json", env=shifted(-48))
        for done in (by_bundle, by_token):
            assert done.code == 1 and done.error()["code"] == "clock_skew", done
        with pytest.raises(BlockingIOError):
            anybody.accept()
    assert recover(file, patient.dir).code == 0


def test_a_bundle_of_another_domain(plane, patient):
    """It is for another control plane, and says so. Proves GPU-17, GPU-19."""
    with ControlPlane("other.example") as foreign:
        host = Patient(foreign, foreign.token())
        host.start().wait_connected()
        node = host.node_id()
        host.stop()
        file = issue(foreign, node)
        done = recover(file, patient.dir)
        assert done.code in (1, 2), done
        assert kinds(foreign, node, "recovery.issued") == []
        host.note_secrets()


def test_a_bundle_ends(plane, patient):
    """Ten seconds at least, and then nobody takes it. Proves GPU-17."""
    file = issue(plane, patient.node, "--expires", "10s")
    bundle = json.loads(file.read_text())
    true = recover(changed(file, expires_at="2099-01-01T00:00:00Z"), patient.dir)
    assert true.code == 3, true

    def over() -> bool:
        import datetime

        return datetime.datetime.fromisoformat(bundle["expires_at"]) < datetime.datetime.now(datetime.UTC)

    until(over, "its time is over")
    done = recover(file, patient.dir)
    assert done.code in (1, 2, 3), done
    # Nor does the control plane take it from a host with another clock.
    done = recover(file, patient.dir, env=shifted(-1 / 60))
    assert done.code == 3 and done.error()["code"] in ("token_expired", "recovery_not_needed"), done


def test_only_those_who_may_issue_it(plane, patient):
    """A platform-admin; for a node that is there. Proves GPU-21."""
    from operators import make_key

    key = make_key(plane, "operator")["key"]
    answer = plane.https(
        "POST", f"/v1/nodes/{patient.node}/repair-bundle", {}, {"Authorization": f"Bearer {key}"}
    )
    assert answer.status == 403, answer
    answer = plane.https("POST", f"/v1/nodes/{patient.node}/repair-bundle", {})
    assert answer.status == 401, answer
    missing = plane.cli("node", "repair-bundle", "nobody", "--out", scratch("rep") / "b", ok=False)
    assert missing.code == 3 and missing.error()["code"] == "node_not_found", missing
    plane.cli("node", "revoke", patient.node)
    gone = scratch("rep") / "b"
    refused = plane.cli("node", "repair-bundle", patient.node, "--out", gone, ok=False)
    assert refused.code == 3 and refused.error()["code"] == "node_revoked", refused
    assert not os.path.exists(gone)
