"""What operators do to nodes: drain, quarantine, rotate, decommission, revoke, reinstate (D14, D15, D16, D36)."""

import json
import socket
import ssl

import pytest

import agents
import certs
import native
from machine import ENLIST, PATIENCE, run, until
from operators import code_of, curl, make_key
from plane import ControlPlane
from streams import Live

VERBS = ("drain", "undrain", "quarantine", "release", "rotate", "decommission", "revoke", "reinstate")
REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"


def act(plane, node_id: str, verb: str, body=None) -> dict:
    answer = plane.api("POST", f"/v1/nodes/{node_id}/{verb}", body)
    assert answer.status == 200, (verb, answer)
    node = answer.json()
    assert node["node_id"] == node_id
    return node


def lines(plane, event_type: str, node_id: str) -> list[dict]:
    return [line for line in plane.audit(event_type) if line["node_id"] == node_id]


def active(plane, **fields) -> native.Node:
    node = native.enroll(plane, plane.token(**fields))
    node.confirm()
    assert plane.node(node.id)["state"] == "active"
    return node


def test_draining_is_a_flag_beside_the_state(plane):
    """D16: `draining` is independent of the state; each act again is 200 and no second audit line."""
    node = active(plane)
    for _ in range(2):
        drained = act(plane, node.id, "drain")
        assert (drained["state"], drained["draining"]) == ("active", True)
    (line,) = lines(plane, "host.draining", node.id)
    assert line["host_id"] == node.id and line["timestamp"] == line["at"] and line["drain_by"] is None
    assert plane.node(node.id)["drain_by"] is None
    for _ in range(2):
        assert act(plane, node.id, "undrain")["draining"] is False
    assert len(lines(plane, "host.undrained", node.id)) == 1


def test_draining_has_the_time_limit_that_was_given(plane):
    """000 events: drain sends an order with a time limit; without one said again the limit stays."""
    node = active(plane)
    act(plane, node.id, "drain", {"within": "10m"})
    limit = plane.node(node.id)["drain_by"]
    assert limit == lines(plane, "host.draining", node.id)[0]["drain_by"] and limit.endswith("Z")
    for again in ({}, {"within": "10m"}):
        act(plane, node.id, "drain", again)
        assert plane.node(node.id)["drain_by"] == limit
    assert len(lines(plane, "host.draining", node.id)) == 1
    act(plane, node.id, "drain", {"within": "1h"})
    assert plane.node(node.id)["drain_by"] > limit
    assert len(lines(plane, "host.draining", node.id)) == 2
    act(plane, node.id, "undrain")
    assert plane.node(node.id)["drain_by"] is None


def test_show_tells_who_did_it_when_and_why(plane):
    """`quarantine` and `ended` with by, at and reason, as long as they hold; the log has a line for each act."""
    node = active(plane)
    assert (plane.node(node.id)["quarantine"], plane.node(node.id)["ended"]) == (None, None)
    act(plane, node.id, "quarantine", {"reason": "odd traffic"})
    (line,) = lines(plane, "host.quarantined", node.id)
    expected = {"by": line["actor"], "at": line["at"], "reason": "odd traffic"}
    assert plane.node(node.id)["quarantine"] == expected
    act(plane, node.id, "release")
    assert plane.node(node.id)["quarantine"] is None
    answer = plane.api("POST", f"/v1/nodes/{node.id}/revoke", {"reason": "stolen"}, {"X-Request-Id": "who-did-it-1"})
    assert answer.status == 200
    ended = plane.node(node.id)["ended"]
    assert (ended["reason"], ended["by"]) == ("stolen", line["actor"])
    done = run(ENLIST, "node", "show", node.id, "--dir", plane.dir)
    assert f"by {ended['by']} at {ended['at']}: stolen" in done.out
    assert [text.split() for text in done.out.splitlines() if text.split()[:1] == ["health"]] == [["health", "-"]]
    (said,) = [text for text in plane.err.read_text().splitlines() if "who-did-it-1" in text]
    assert "host.revoked" in said and node.id in said and line["actor"] in said and "stolen" not in said
    act(plane, node.id, "reinstate")
    assert plane.node(node.id)["ended"] is None


def test_a_bad_duration_is_told_by_its_name(plane):
    """Exit 2 with the flag, before anything is asked; 400 with the field."""
    node = active(plane)
    for command, flag in (
        (("token", "create", "--expires", "soon"), "--expires"),
        (("operator", "key", "create", "ci", "--role", "viewer", "--expires", "1y"), "--expires"),
        (("node", "drain", node.id, "--within", "5 minutes"), "--within"),
    ):
        done = plane.cli(*command, ok=False)
        assert done.code == 2 and flag in done.error()["message"], done
    for path, body in (
        ("/v1/tokens", {"expires": "soon"}),
        ("/v1/operator-keys", {"name": "ci", "role": "viewer", "expires": "soon"}),
        (f"/v1/nodes/{node.id}/drain", {"within": "soon"}),
    ):
        answer = plane.api("POST", path, body)
        (field,) = body.keys() & {"expires", "within"}
        assert (answer.status, answer.code) == (400, "bad_request")
        assert answer.json()["error"]["message"].startswith(f"{field}: ")


def test_a_refusal_names_the_role_that_it_takes(plane):
    """403 with what is needed; the remedy says where to look."""
    node = active(plane)
    key = make_key(plane, "viewer")["key"]
    for path, needs in ((f"/v1/nodes/{node.id}/revoke", "role operator"), ("/v1/ca/roll/prepare", "role platform-admin for all tenants")):
        status, _, body = curl(plane, "POST", path, key=key)
        error = json.loads(body)["error"]
        assert (status, error["code"]) == (403, "forbidden")
        assert error["message"].endswith(needs) and "operator key list" in error["hint"]


def test_a_quarantined_node_may_still_authenticate(plane):
    """D36: authentication goes on; it ends by release. Each twice, one line each, with its reason."""
    node = active(plane)
    for reason in ("odd traffic", "another reason"):
        held = act(plane, node.id, "quarantine", {"reason": reason})
        assert (held["state"], held["quarantined"]) == ("active", True)
    assert [line["reason"] for line in lines(plane, "host.quarantined", node.id)] == ["odd traffic"]
    assert native.alert(plane, node.files) is None
    assert node.confirm().state == "active"
    for _ in range(2):
        assert act(plane, node.id, "release")["quarantined"] is False
    assert len(lines(plane, "host.released", node.id)) == 1


def test_a_rotation_is_ordered_once_until_it_is_obeyed(plane):
    """The order is state: it waits for the node and is told on its live stream."""
    node = active(plane)
    assert plane.node(node.id)["rotation_ordered_at"] is None
    act(plane, node.id, "rotate")
    ordered = plane.node(node.id)["rotation_ordered_at"]
    assert ordered
    act(plane, node.id, "rotate")
    assert plane.node(node.id)["rotation_ordered_at"] == ordered
    (line,) = lines(plane, "certificate.rotation_ordered", node.id)
    with Live(node) as live:
        order = until(lambda: next(m.order for m in live.down if m.HasField("order")), "the order came down")
        assert order.order_id == line["order_id"] and order.HasField("renew_now")


def test_a_node_without_a_certificate_cannot_rotate(plane):
    """409 `no_certificate`: a reinstated node has only what was denied."""
    node = active(plane)
    act(plane, node.id, "revoke")
    act(plane, node.id, "reinstate")
    answer = plane.api("POST", f"/v1/nodes/{node.id}/rotate")
    assert (answer.status, answer.code) == (409, "no_certificate")
    assert lines(plane, "certificate.rotation_ordered", node.id) == []


def test_revoking_cuts_at_once(plane):
    """D14: handshakes are refused, open connections closed; 000: the fields of `host.revoked`."""
    node = active(plane)
    raw = socket.create_connection(("127.0.0.1", plane.port), PATIENCE)
    with plane.context(node.files).wrap_socket(raw, server_hostname="127.0.0.1") as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        revoked = act(plane, node.id, "revoke", {"reason": "stolen laptop"})
        assert revoked["state"] == "revoked"
        try:
            while connection.recv(65536):
                pass
        except (ssl.SSLError, ConnectionError):
            pass
    assert native.alert(plane, node.files) == REVOKED
    assert act(plane, node.id, "revoke", {"reason": "again"})["state"] == "revoked"
    (line,) = lines(plane, "host.revoked", node.id)
    assert line["host_id"] == line["node_id"] == node.id
    assert line["revoked_by"] == line["actor"] and line["revoked_by"].startswith("local:")
    assert line["reason"] == "stolen laptop" and line["timestamp"] == line["at"]
    assert node.serial in line["denied_serials"]
    (certificate,) = plane.node(node.id)["certificates"]
    assert certificate["status"] == "denied"


def test_revoking_needs_no_reason(plane):
    """000 CLI: `--reason` is optional, `unspecified` when absent."""
    node = active(plane)
    act(plane, node.id, "revoke")
    assert lines(plane, "host.revoked", node.id)[0]["reason"] == "unspecified"


def test_a_node_that_never_confirmed_can_be_revoked(plane):
    """D16: any state leads to `revoked`."""
    node = native.enroll(plane)
    assert act(plane, node.id, "revoke")["state"] == "revoked"
    assert native.alert(plane, node.files) == REVOKED


def test_decommissioning_denies_the_same(plane):
    """D16: an orderly end; the certificates are refused like those of a revoked node."""
    node = active(plane)
    for body in ({}, {"force": True}):
        assert act(plane, node.id, "decommission", body)["state"] == "decommissioned"
    (line,) = lines(plane, "host.decommissioned", node.id)
    assert line["host_id"] == node.id and node.serial in line["denied_serials"]
    assert native.alert(plane, node.files) == REVOKED
    assert act(plane, node.id, "revoke")["state"] == "revoked"
    answer = plane.api("POST", f"/v1/nodes/{node.id}/decommission")
    assert (answer.status, answer.code) == (403, "node_revoked")


@pytest.mark.parametrize("end", ["revoke", "decommission"])
def test_nothing_else_is_done_to_a_node_that_is_gone(plane, end):
    """A tombstone is neither drained nor quarantined nor told to renew."""
    node = active(plane)
    act(plane, node.id, end)
    for verb in ("drain", "undrain", "quarantine", "release", "rotate"):
        answer = plane.api("POST", f"/v1/nodes/{node.id}/{verb}")
        assert (verb, answer.status, answer.code) == (verb, 403, "node_revoked")


@pytest.mark.parametrize("end", ["revoke", "decommission"])
def test_a_node_that_is_gone_gets_no_token_and_no_entry(plane, place, end):
    """D15: `token create --node` is refused (3); a token minted before answers `node_revoked`, agent exit 3."""
    node = active(plane)
    first, second = plane.token(node=node.id), plane.token(node=node.id)
    act(plane, node.id, end)
    done = plane.cli("token", "create", "--node", node.id, ok=False)
    assert (done.code, done.error()["code"]) == (3, "node_revoked")
    with native.door(plane) as door:
        assert door.refused(first, certs.csr(certs.ec_key())).code == "node_revoked"
    done = agents.enroll(plane, place / "agent", token=second)
    assert (done.code, done.error()["code"]) == (3, "node_revoked")
    assert plane.node(node.id)["state"] == {"revoke": "revoked", "decommission": "decommissioned"}[end]


def test_reinstating_opens_a_new_generation(plane):
    """D15: only an explicit reinstatement; the old serials stay denied."""
    node = active(plane)
    act(plane, node.id, "revoke", {"reason": "lost"})
    for _ in range(2):
        back = act(plane, node.id, "reinstate")
        assert (back["state"], back["generation"]) == ("registered", 2)
    (line,) = lines(plane, "host.reinstated", node.id)
    assert line["generation"] == 2
    assert native.alert(plane, node.files) == REVOKED
    again = native.enroll(plane, plane.token(node=node.id))
    again.confirm()
    shown = plane.node(node.id)
    assert (shown["state"], shown["generation"], shown["cert_serial"]) == ("active", 2, again.serial)
    assert again.id == node.id and again.serial != node.serial
    assert native.alert(plane, again.files) is None
    assert native.alert(plane, node.files) == REVOKED
    assert {c["serial"]: c["status"] for c in shown["certificates"]} == {node.serial: "denied", again.serial: "live"}


def test_reinstating_a_living_node_changes_nothing(plane):
    """200 with the node, no audit line."""
    node = active(plane)
    assert (act(plane, node.id, "reinstate")["state"], plane.node(node.id)["generation"]) == ("active", 1)
    assert lines(plane, "host.reinstated", node.id) == []


def test_revocation_survives_a_restart(programs):
    """D14: and so do drain and quarantine."""
    with ControlPlane() as plane:
        gone, held = active(plane), active(plane)
        act(plane, gone.id, "revoke")
        act(plane, held.id, "drain", {"within": "1h"})
        act(plane, held.id, "quarantine")
        before = plane.node(held.id)["drain_by"]
        plane.restart()
        assert plane.node(gone.id)["state"] == "revoked"
        assert native.alert(plane, gone.files) == REVOKED
        shown = plane.node(held.id)
        assert (shown["draining"], shown["quarantined"], shown["drain_by"]) == (True, True, before)
        assert native.alert(plane, held.files) is None
        assert plane.cli("audit", "verify").json()["ok"] is True


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_node_is_404(plane, verb):
    """Also one that cannot be an id."""
    for node_id in ("no-such-node", "%20", "x" * 300):
        answer = plane.api("POST", f"/v1/nodes/{node_id}/{verb}")
        assert (answer.status, answer.code) == (404, "node_not_found")


def test_words_are_checked(plane):
    """Reasons are bounded and printable, durations durations, unknown fields mistakes; nothing is done."""
    node = active(plane)
    before = plane.node(node.id)
    for verb, body in [
        ("revoke", {"reason": "x" * 201}),
        ("revoke", {"reason": "two\nlines"}),
        ("revoke", {"reason": "\x1b[2J"}),
        ("revoke", {"reason": ""}),
        ("revoke", {"why": "x"}),
        ("quarantine", {"reason": "x" * 201}),
        ("drain", {"within": "soon"}),
        ("drain", {"within": "0s"}),
        ("drain", {"within": "99d"}),
        ("undrain", {"within": "1m"}),
        ("release", {"reason": "x"}),
        ("decommission", {"force": "yes"}),
    ]:
        answer = plane.api("POST", f"/v1/nodes/{node.id}/{verb}", body)
        assert (verb, body, answer.status, answer.code) == (verb, body, 400, "bad_request")
    assert plane.node(node.id) == before
    assert act(plane, node.id, "quarantine", {"reason": "ü" * 200})["quarantined"] is True


def test_each_role_may_do_what_the_table_says(plane):
    """viewer none, operator all but decommission and reinstate, platform-admin all; the role comes before the node."""
    keys = {role: make_key(plane, role)["key"] for role in ("viewer", "operator", "platform-admin")}
    admin_only = {"decommission", "reinstate"}
    for verb in VERBS:
        for role, key in keys.items():
            node = active(plane)
            may = role == "platform-admin" or (role == "operator" and verb not in admin_only)
            status, _, body = curl(plane, "POST", f"/v1/nodes/{node.id}/{verb}", key=key)
            assert (verb, role, status) == (verb, role, 200 if may else 403), body
            if not may:
                assert code_of(body) == "forbidden"
                status, _, _ = curl(plane, "POST", f"/v1/nodes/no-such-node/{verb}", key=key)
                assert (verb, role, status) == (verb, role, 403)


def test_another_tenants_node_is_404(plane, tenants):
    """What lies in another tenant does not exist, and nothing happens to it."""
    key = make_key(plane, "platform-admin", "--tenant", "red")["key"]
    (red, _), (blue, _) = tenants["red"], tenants["blue"]
    before = plane.node(blue.id)
    for verb in VERBS:
        status, _, body = curl(plane, "POST", f"/v1/nodes/{blue.id}/{verb}", key=key)
        assert (verb, status, code_of(body)) == (verb, 404, "node_not_found")
    assert plane.node(blue.id) == before
    status, _, body = curl(plane, "POST", f"/v1/nodes/{red.id}/quarantine", key=key)
    assert (status, json.loads(body)["quarantined"]) == (200, True)
    line = lines(plane, "host.quarantined", red.id)[0]
    assert line["actor"].startswith("key:")


def test_the_command_line_does_the_same(plane):
    """Every act with --json gives the node; exit 3 for an unknown one, 2 for half a command."""
    node = active(plane)
    steps = [
        (("drain", node.id, "--within", "10m"), {"draining": True}),
        (("undrain", node.id), {"draining": False}),
        (("quarantine", node.id, "--reason", "odd"), {"quarantined": True}),
        (("release", node.id), {"quarantined": False}),
        (("rotate", node.id), {"state": "active"}),
        (("decommission", node.id, "--force"), {"state": "decommissioned"}),
        (("reinstate", node.id), {"state": "registered", "generation": 2}),
        (("revoke", node.id, "--reason", "key compromise"), {"state": "revoked"}),
    ]
    for arguments, expected in steps:
        shown = plane.cli("node", *arguments).json()
        assert {field: shown[field] for field in expected} == expected, arguments
    assert lines(plane, "host.revoked", node.id)[0]["reason"] == "key compromise"
    for verb in VERBS:
        done = plane.cli("host", verb, "no-such-node", ok=False)
        assert (verb, done.code, done.error()["code"]) == (verb, 3, "node_not_found")
        assert plane.cli("node", verb, ok=False).code == 2


def test_people_are_told_what_is_now_true(plane):
    """One line each; after a reinstatement also how the node enrolls again."""
    node = active(plane)
    for arguments, line in [
        (("drain", node.id), f"node {node.id} is active, draining"),
        (("quarantine", node.id), f"node {node.id} is active, draining, quarantined"),
        (("undrain", node.id), f"node {node.id} is active, quarantined"),
        (("release", node.id), f"node {node.id} is active"),
        (("rotate", node.id), f"node {node.id} is ordered to renew its certificate"),
        (("revoke", node.id), f"node {node.id} is revoked: its connections are closed, and its certificates are refused"),
        (("reinstate", node.id), f"node {node.id} is registered, generation 2"),
    ]:
        done = run(ENLIST, "node", *arguments, "--dir", plane.dir)
        first, _, more = done.out.partition("\n")
        assert (done.code, first, done.err) == (0, line, "")
        assert bool(more) == (arguments[0] == "reinstate") and (not more or f"token create --node {node.id}" in more)


def test_show_tells_what_the_live_stream_told(plane):
    """D21: the API shows the live value of last seen; evidence is the host's own word, null without one."""
    node = active(plane)
    shown = plane.node(node.id)
    assert (shown["connected"], shown["evidence"]) == (False, None)
    with Live(node) as live:
        until(lambda: plane.node(node.id)["connected"], "the node is connected")
        before = plane.node(node.id)["last_seen"]
        attempt = native.pb.Attempt(at="2026-01-01T00:00:00Z", ok=False, code="unavailable")
        told = {"cert_serial": node.serial, "clock_offset_ms": -12, "disk_free_bytes": 4096}
        live.say(evidence=native.pb.Evidence(last_renewal=attempt, **told))
        evidence = until(lambda: plane.node(node.id)["evidence"], "evidence arrived")
        assert {field: evidence[field] for field in told} == told
        assert evidence["last_renewal"] == {
            "at": "2026-01-01T00:00:00Z",
            "ok": False,
            "code": "unavailable",
            "correlation_id": None,
        }
        assert evidence["cert_not_after"] is None and evidence["at"]
        assert plane.node(node.id)["last_seen"] >= before

        def heard_again() -> bool:
            live.say(heartbeat=native.pb.Heartbeat())
            return plane.node(node.id)["last_seen"] > before

        until(heard_again, "a heartbeat moved last_seen")
        (listed,) = [n for n in plane.nodes() if n["node_id"] == node.id]
        assert listed["last_seen"] > before
    until(lambda: not plane.node(node.id)["connected"], "the node is gone")


def test_a_revoked_node_loses_its_stream(plane):
    """D14: told on the stream that it is gone, or cut; never left open."""
    node = active(plane)
    with Live(node) as live:
        act(plane, node.id, "revoke")
        try:
            for _ in live.down:
                pass
            ended = "closed"
        except native.grpc.RpcError as error:
            ended = error.code().name
        assert ended in ("closed", "PERMISSION_DENIED", "UNAVAILABLE", "UNKNOWN", "UNAUTHENTICATED"), ended
    until(lambda: not plane.node(node.id)["connected"], "the stream is gone")
