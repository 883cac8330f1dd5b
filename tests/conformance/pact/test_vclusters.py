"""vClusters and their configuration, assignment, capability (PACT-01, PACT-26, PACT-28, PACT-33)."""

import hashlib
import json
import threading

import pytest

import racks
from machine import ENLIST, until
from plane import UnixConnection
from terminal import shown

BUILT_IN = {"enforcement_mode": "observe", "whitelists": [], "regulated": False}
LIMIT = 262_144


def put(plane, path: str, body: bytes, method: str = "PUT"):
    return plane.api(method, path, body, {"Content-Type": "application/json"})


def lines(plane, event_type: str, **fields) -> list[dict]:
    return [line for line in plane.audit(event_type) if all(line.get(key) == value for key, value in fields.items())]


def test_a_vcluster_is_created_listed_shown_and_removed(plane):
    """PACT-01: names are taken once; one that has nodes is not removed."""
    made = plane.cli("vcluster", "create", "life").json()
    assert (made["name"], made["version"], made["nodes"], made["tenant"]) == ("life", 0, 0, "default")
    again = plane.cli("vcluster", "create", "life", ok=False)
    assert (again.code, again.error()["code"]) == (3, "vcluster_exists")
    racks.register(plane, "life-1", vcluster="life")
    (item,) = [item for item in plane.cli("vcluster", "list").lines() if item["name"] == "life"]
    assert (item["version"], item["nodes"]) == (0, 1)
    told = plane.cli("vcluster", "show", "life").json()
    assert told["config"] == {} and told["version"] == 0 and told["checksum"] == hashlib.sha256(b"{}").hexdigest()
    used = plane.cli("vcluster", "remove", "life", ok=False)
    assert (used.code, used.error()["code"]) == (3, "vcluster_in_use")
    plane.cli("node", "unassign", "life-1")
    assert plane.cli("vcluster", "remove", "life").json() == {"name": "life", "removed": True}
    for missing in (("show", "life"), ("remove", "life"), ("show", "no such/name")):
        done = plane.cli("vcluster", *missing, ok=False)
        assert (done.code, done.error()["code"]) == (3, "vcluster_not_found"), missing
    assert plane.api("POST", "/v1/vclusters", {"name": "not a name"}).code == "bad_request"
    assert plane.api("POST", "/v1/vclusters", {"name": "x", "nodes": 1}).code == "bad_request"
    assert len(lines(plane, "vcluster.created", vcluster="life")) == len(lines(plane, "vcluster.removed", vcluster="life")) == 1


def test_a_document_is_versioned_and_kept_byte_for_byte(plane, place):
    """PACT-26: each change is a version, the same again is none; the checksum is over the bytes."""
    racks.vcluster(plane, "doc")
    text = b' {"b": 1,\n "a": [1.0, "\\u00e9"]}\n'
    (place / "doc.json").write_bytes(text)
    for _ in range(2):
        assert plane.cli("vcluster", "set-config", "doc", "--file", place / "doc.json").json()["version"] == 1
    shown = plane.api("GET", "/v1/vclusters/doc").json()
    assert shown["config"] == json.loads(text) and shown["checksum"] == hashlib.sha256(text).hexdigest()
    assert plane.api("GET", "/v1/vclusters/doc/config").body == text.strip()
    for version, method in ((2, "PUT"), (3, "POST")):
        assert put(plane, "/v1/vclusters/doc/config", b'{"n":%d}' % version, method).json()["version"] == version
    told = lines(plane, "vcluster.configured", vcluster="doc")
    assert [line["version"] for line in told] == [1, 2, 3]
    assert told[0]["checksum"] == hashlib.sha256(text).hexdigest() and "enforcement" not in json.dumps(told)
    piped = plane.cli("vcluster", "set-config", "doc", "--file", "-", stdin=b'{"n":4}').json()
    assert piped["version"] == 4
    missing = plane.cli("vcluster", "set-config", "nowhere", "--file", place / "doc.json", ok=False)
    assert (missing.code, missing.error()["code"]) == (3, "vcluster_not_found")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"{}"',
        b"{",
        b"{} {}",
        b"not json",
        b'{"a":"\xff"}',
        b'{"a":1,"b":2,"a":3}',
        b'{"x":[{"k":1,"\\u006b":2}]}',
        b'{"a":' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"a":' + b"[" * 130_000 + b"]" * 130_000 + b"}",
        b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
    ],
    ids=lambda body: f"{len(body)}-{body[:12]!r}",
)
def test_what_is_no_document_is_refused_and_the_old_one_stays(plane, body):
    """PACT-26: not JSON, no object, a key twice, nested too deep: `document_invalid`, everywhere a document goes."""
    for made, path in (("/v1/vclusters", "/v1/vclusters/bad/config"), (None, "/v1/vcluster-defaults"), (None, "/v1/nodes/bad-1/config")):
        if made and plane.api("GET", "/v1/vclusters/bad").status == 404:
            racks.vcluster(plane, "bad")
            racks.register(plane, "bad-1")
        answer = put(plane, path, body)
        assert (answer.status, answer.code) == (400, "document_invalid"), (path, answer)
    assert plane.api("GET", "/v1/vclusters/bad").json()["version"] == 0


def test_a_document_has_at_most_262144_bytes(plane, place):
    """PACT-26: one byte more is `too_large`, as is what the body may not hold; the control plane goes on."""
    racks.vcluster(plane, "size")

    def document(size: int) -> bytes:
        return b'{"a":"' + b"x" * (size - 8) + b'"}'

    assert put(plane, "/v1/vclusters/size/config", document(LIMIT)).json()["version"] == 1
    for size in (LIMIT + 1, 512 * 1024, 512 * 1024 + 1, 3_000_000):
        answer = put(plane, "/v1/vclusters/size/config", document(size))
        assert (answer.status, answer.code) == (413, "too_large"), size
    (place / "big.json").write_bytes(document(LIMIT + 1))
    done = plane.cli("vcluster", "set-config", "size", "--file", place / "big.json", ok=False)
    assert (done.code, done.error()["code"]) == (3, "too_large")
    assert plane.api("GET", "/v1/vclusters/size").json()["version"] == 1
    stranger = plane.https("PUT", "/v1/vclusters/size/config", document(100_000), {"Content-Type": "application/json"})
    assert stranger.status in (401, 413), stranger


def test_the_defaults_are_those_of_maintenance_mode_until_an_operator_says_otherwise(plane_of_its_own, place):
    """PACT-28: observe, empty whitelists, not regulated, at version 0; an operator may set another."""
    plane = plane_of_its_own
    told = plane.cli("vcluster", "show", "--defaults").json()
    assert (told["version"], told["config"]) == (0, BUILT_IN)
    (place / "d.json").write_text('{"enforcement_mode":"enforce"}')
    assert plane.cli("vcluster", "set-config", "--defaults", "--file", place / "d.json").json()["version"] == 1
    assert plane.api("GET", "/v1/vcluster-defaults").json()["config"] == {"enforcement_mode": "enforce"}
    (line,) = lines(plane, "vcluster.configured")
    assert line["vcluster"] is None and line["version"] == 1
    for both in (("x", "--defaults", "--file", "f"), ("--file", "f"), ("--defaults",)):
        assert plane.cli("vcluster", "set-config", *both, ok=False).code == 2


def test_assigning_moving_and_unassigning_are_one_command_each(plane):
    """PACT-01, PACT-26: each answers with the node, again changes nothing and writes no second line, and no certificate is touched."""
    for name in ("as-a", "as-b"):
        racks.vcluster(plane, name)
    racks.register(plane, "as")

    def act(verb: str, body: dict):
        answer = plane.api("POST", f"/v1/nodes/as/{verb}", body)
        return answer.status, answer.json().get("vcluster"), answer.code

    assert act("move", {"vcluster": "as-a"}) == (409, None, "not_assigned")
    for _ in range(2):
        assert act("unassign", {}) == (200, None, None)
    for _ in range(2):
        assert act("assign", {"vcluster": "as-a"}) == (200, "as-a", None)
    assert act("assign", {"vcluster": "as-b"}) == (409, None, "already_assigned")
    for _ in range(2):
        assert act("move", {"vcluster": "as-b"}) == (200, "as-b", None)
    assert act("assign", {"vcluster": "nowhere"}) == (404, None, "vcluster_not_found")
    assert act("move", {"vcluster": "nowhere"}) == (404, None, "vcluster_not_found")
    assert act("assign", {}) == (400, None, "bad_request")
    assert act("move", {"vcluster": "no such/name"})[2] == "bad_request"
    assert plane.api("POST", "/v1/nodes/nobody/assign", {"vcluster": "as-a"}).code == "node_not_found"
    capability = plane.node("as")["capability"]
    assert capability == {"vcluster": "as-b", "schedulable": False, "reasons": ["registered"]}
    for _ in range(2):
        assert act("unassign", {}) == (200, None, None)
    assert plane.node("as")["capability"]["reasons"] == ["registered", "unassigned"]
    for event in ("host.assigned", "host.moved", "host.unassigned"):
        assert len(lines(plane, event, node_id="as")) == 1, event
    plane.cli("node", "decommission", "as")
    assert act("assign", {"vcluster": "as-a"})[2] == "node_revoked"


def test_a_node_stays_in_its_tenant(plane):
    """D03: a vCluster of another tenant does not exist for a node."""
    for tenant in ("vt-red", "vt-blue"):
        assert plane.api("POST", "/v1/tenants", {"name": tenant}).status == 201
        racks.vcluster(plane, f"{tenant}-v", tenant=tenant)
    racks.register(plane, "vt-1", tenant="vt-red", vcluster="vt-red-v")
    answer = plane.api("POST", "/v1/nodes/vt-1/move", {"vcluster": "vt-blue-v"})
    assert (answer.status, answer.code) == (404, "vcluster_not_found")
    refused = plane.api("POST", "/v1/nodes", {"node_id": "vt-2", "mac": racks.mac(), "vcluster": "vt-blue-v"}, {"X-Tenant": "vt-red"})
    assert refused.code == "vcluster_not_found"
    listed = plane.api("GET", "/v1/vclusters", headers={"X-Tenant": "vt-red"}).json()["items"]
    assert [item["name"] for item in listed] == ["vt-red-v"]


def test_a_node_has_a_document_of_its_own(plane, place):
    """PACT-26: beside that of its vCluster; `node show` has the versions."""
    racks.vcluster(plane, "own")
    racks.register(plane, "own-1", vcluster="own")
    put(plane, "/v1/vclusters/own/config", b'{"a":1}')
    (place / "n.json").write_text('{"n":1}')
    done = plane.cli("node", "set-config", "own-1", "--file", place / "n.json").json()
    assert (done["config"]["base_version"], done["config"]["node_version"]) == (1, 1)
    sequence = done["config"]["sequence"]
    again = put(plane, "/v1/nodes/own-1/config", b'{"n":2}', "POST").json()["config"]
    assert again["node_version"] == 2 and again["sequence"] > sequence
    assert [line["version"] for line in lines(plane, "host.configured", node_id="own-1")] == [1, 2]
    assert put(plane, "/v1/nodes/nobody/config", b"{}").code == "node_not_found"


def test_lists_are_narrowed_and_paged(plane):
    """PACT-33: `node list --vcluster V`, `--unassigned`; vClusters come in pages."""
    for n in range(5):
        racks.vcluster(plane, f"pg-{n}")
    racks.register(plane, "ls-1", vcluster="pg-1")
    racks.register(plane, "ls-2")
    assert [node["node_id"] for node in plane.cli("node", "list", "--vcluster", "pg-1").lines()] == ["ls-1"]
    free = {node["node_id"] for node in plane.cli("node", "list", "--unassigned").lines()}
    assert "ls-2" in free and "ls-1" not in free
    assert plane.cli("node", "list", "--vcluster", "pg-1", "--unassigned", ok=False).code == 2
    names = [item["name"] for item in plane.items("/v1/vclusters?limit=2") if item["name"].startswith("pg-")]
    assert names == [f"pg-{n}" for n in range(5)]


def test_a_change_of_assignment_is_an_event(plane):
    """PACT-26: who follows /v1/events is told of the node with its vCluster."""
    racks.vcluster(plane, "ev")
    racks.register(plane, "ev-1")
    told: list[dict] = []
    connection = UnixConnection(str(plane.dir / "operator.sock"), 60)
    connection.request("GET", "/v1/events")
    stream = connection.getresponse()
    assert stream.readline() == b": following\n"

    def follow():
        try:
            for line in stream:
                if line.startswith(b"data: "):
                    told.append(json.loads(line[6:]))
        except (OSError, ValueError, AttributeError):
            pass  # closed below

    threading.Thread(target=follow, daemon=True).start()
    try:
        plane.cli("node", "assign", "ev-1", "ev")
        seen = lambda vcluster: any(event.get("node_id") == "ev-1" and event["vcluster"] == vcluster for event in told)
        until(lambda: seen("ev"), "the assignment was told")
        plane.cli("node", "unassign", "ev-1")
        until(lambda: seen(None), "the end of it was told")
    finally:
        connection.sock.shutdown(2)
        connection.close()


@pytest.mark.parametrize("columns", [80, 140])
def test_tables_fit_the_terminal(plane, columns):
    """A row is one line, and the vCluster is there at 80 columns."""
    if plane.api("GET", "/v1/vclusters/table").status == 404:
        racks.vcluster(plane, "table")
        racks.register(plane, "table-1", vcluster="table", bmc_serial="T1")
    for command in (
        ("node", "list"),
        ("vcluster", "list"),
        ("vcluster", "show", "table"),
        ("vcluster", "show", "--defaults"),
        ("node", "show", "table-1"),
        ("node", "show", "table-1", "--timeline"),
    ):
        terminal = shown(ENLIST, *command, "--dir", plane.dir, columns=columns)
        assert not terminal.too_wide(), (command, terminal.too_wide())
    said = "\n".join(shown(ENLIST, "node", "show", "table-1", "--dir", plane.dir, columns=columns).lines())
    assert "table" in said and "T1" in said and "MAC addresses" in said
    assert "VCLUSTER" in shown(ENLIST, "node", "list", "--vcluster", "table", "--dir", plane.dir, columns=columns).written
