"""Operators narrowed to vClusters: they assign, move and read what is in theirs, and nothing else (PACT-35, E10)."""

import http.client
import json
import threading

import pytest

import evidence
import racks
from machine import ENLIST, run, until
from operators import code_of, curl, make_key

MINE, THEIRS = "mine", "theirs"
READABLE = {
    "/v1/nodes",
    "/v1/nodes/{id}",
    "/v1/nodes/{id}/timeline",
    "/v1/overlay",
    "/v1/vclusters",
    "/v1/vclusters/{name}",
    "/v1/vclusters/{name}/config",
    "/v1/events",
}
"""What such an operator may read; every other path is refused."""
PUBLIC = {"/healthz", "/readyz", "/openapi.json", "/v1/ca/crl", "/v1/ca/trust"}


@pytest.fixture(scope="module")
def world(plane):
    """Two vClusters with nodes, one more of both, a node in none, and an operator of the first."""
    for name in (MINE, "also-mine", THEIRS):
        racks.vcluster(plane, name)
    for id, name in (("m-1", MINE), ("m-2", "also-mine"), ("secret-1", THEIRS), ("free-1", None), ("free-2", None)):
        racks.register(plane, id, vcluster=name)
    plane.api("PUT", f"/v1/vclusters/{THEIRS}/config", b'{"secret":"theirs"}', {"Content-Type": "application/json"})
    plane.api("PUT", f"/v1/vclusters/{MINE}/config", b'{"open":"mine"}', {"Content-Type": "application/json"})
    return make_key(plane, "operator", "--vcluster", MINE, "--vcluster", "also-mine")["key"]


def get(plane, key, path):
    return curl(plane, "GET", path, key=key)


def post(plane, key, path, body: dict):
    status, _, text = curl(plane, "POST", path, "-H", "Content-Type: application/json", "-d", json.dumps(body), key=key)
    return status, json.loads(text) if text else {}


def test_the_narrowing_is_on_record(plane, world):
    """PACT-35: shown with the key and with the operator; only the role operator and only vClusters that are there."""
    (key,) = [key for key in plane.items("/v1/operator-keys") if key["vclusters"]]
    assert key["vclusters"] == ["also-mine", MINE] and key["role"] == "operator"
    added = plane.cli("operator", "add", "nora", "--role", "operator", "--vcluster", MINE).json()
    assert added["vclusters"] == [MINE]
    (listed,) = [item for item in plane.cli("operator", "list").lines() if item["name"] == "nora"]
    assert listed["vclusters"] == [MINE]
    for role in ("viewer", "platform-admin"):
        done = plane.cli("operator", "add", "x", "--role", role, "--vcluster", MINE, ok=False)
        assert (done.code, done.error()["code"]) == (3, "bad_request"), done
    done = plane.cli("operator", "key", "create", "x", "--role", "operator", "--vcluster", "nowhere", ok=False)
    assert (done.code, done.error()["code"]) == (3, "vcluster_not_found")
    answer = plane.api("POST", "/v1/operator-keys", {"name": "one", "role": "operator", "vcluster": MINE})
    assert answer.status == 201 and answer.json()["vclusters"] == [MINE]


def test_it_reads_what_is_in_its_vclusters(plane, world):
    """PACT-35: nodes and vClusters of its own, and nothing of others: neither listed, nor shown, nor counted."""
    _, _, text = get(plane, world, "/v1/nodes?limit=1000")
    assert {node["node_id"] for node in json.loads(text)["items"]} == {"m-1", "m-2"}
    for query in (f"?vcluster={THEIRS}", "?unassigned=true"):
        assert json.loads(get(plane, world, f"/v1/nodes{query}")[2])["items"] == []
    _, _, text = get(plane, world, "/v1/vclusters")
    assert [item["name"] for item in json.loads(text)["items"]] == ["also-mine", MINE]
    assert json.loads(get(plane, world, f"/v1/vclusters/{MINE}")[2])["config"] == {"open": "mine"}
    assert json.loads(get(plane, world, f"/v1/vclusters/{MINE}/config")[2]) == {"open": "mine"}
    assert json.loads(get(plane, world, "/v1/nodes/m-1")[2])["vcluster"] == MINE
    missing = {
        "/v1/nodes/secret-1": "node_not_found",
        "/v1/nodes/free-1": "node_not_found",
        "/v1/nodes/secret-1/timeline": "node_not_found",
        f"/v1/vclusters/{THEIRS}": "vcluster_not_found",
        f"/v1/vclusters/{THEIRS}/config": "vcluster_not_found",
    }
    for path, code in missing.items():
        status, _, text = get(plane, world, path)
        assert (status, code_of(text)) == (404, code), path


def test_a_certificate_is_narrowed_like_a_key_and_stays_so_when_renewed(plane, world, place):
    """PACT-35: by the command line from elsewhere; its own renewal is the one thing more that it may ask for."""
    plane.cli("operator", "add", "otto", "--role", "operator", "--vcluster", MINE, "--out", place / "otto")
    evidence.private_key("operator", (place / "otto/key.pem").read_bytes())
    files = ("--cert", place / "otto/cert.pem", "--key", place / "otto/key.pem", "--ca", place / "otto/ca.pem")
    reach = ("--server", plane.url, *files, "--json")

    def otto(*arguments):
        return run(ENLIST, *arguments, *reach)

    def check():
        assert {node["vcluster"] for node in otto("node", "list").lines()} == {MINE}
        assert otto("node", "assign", "free-1", MINE).json()["vcluster"] == MINE
        assert otto("node", "unassign", "free-1").json()["vcluster"] is None
        assert otto("node", "assign", "free-1", THEIRS).error()["code"] == "forbidden"
        assert otto("node", "show", "secret-1").error()["code"] == "node_not_found"
        for refused in (("audit", "list"), ("alert", "list"), ("token", "create"), ("node", "drain", "m-1"), ("policy", "show")):
            done = otto(*refused)
            assert (done.code, done.error()["code"]) == (3, "forbidden"), refused

    check()
    assert otto("operator", "renew").code == 0
    evidence.private_key("operator", (place / "otto/key.pem").read_bytes())
    check()
    plane.api("DELETE", "/v1/operators/otto", headers={"Content-Type": "application/json"})


def test_every_other_path_is_refused(plane, world):
    """PACT-35: each GET of the API's own description, asked as such an operator, is readable by the list above or refused,
    and no answer names anything of another vCluster."""
    described = plane.api("GET", "/openapi.json").json()["paths"]
    paths = [path for path, methods in described.items() if "get" in methods]
    assert READABLE <= set(paths) and len(paths) > 25
    names = {"{id}": "m-1", "{name}": MINE}
    for path in paths:
        if path == "/v1/events":
            continue  # never ends; below
        asked = path
        for part, name in names.items():
            asked = asked.replace(part, name)
        status, _, text = get(plane, world, asked)
        if path in PUBLIC:
            assert status == 200, (path, status)
        elif path in READABLE:
            assert status == 200, (path, status, text)
        else:
            assert status in (401, 403, 404), (path, status, text)
        for word in ("secret-1", "free-1", THEIRS, "free-2"):
            assert word not in text or path == "/openapi.json", (path, word)


def test_it_assigns_moves_and_unassigns_within_its_vclusters(plane, world):
    """PACT-35, E10: from nowhere into its own, between its own, out of its own; a move needs both."""
    answer = lambda verb, id, vcluster=None: post(
        plane, world, f"/v1/nodes/{id}/{verb}", {"vcluster": vcluster} if vcluster else {}
    )
    assert answer("assign", "free-2", MINE)[1]["vcluster"] == MINE
    assert answer("move", "free-2", "also-mine")[1]["vcluster"] == "also-mine"
    for verb, id, vcluster in (
        ("move", "free-2", THEIRS),
        ("assign", "free-1", THEIRS),
        ("move", "secret-1", MINE),
        ("assign", "secret-1", MINE),
        ("unassign", "secret-1", None),
    ):
        status, body = answer(verb, id, vcluster)
        assert (status, body["error"]["code"]) == (403, "forbidden"), (verb, id, vcluster)
    status, body = answer("unassign", "free-2")
    assert status == 200 and body["vcluster"] is None
    assert plane.node("secret-1")["vcluster"] == THEIRS and plane.node("free-2")["vcluster"] is None
    (line,) = [line for line in plane.audit("host.moved") if line["node_id"] == "free-2"]
    assert line["actor"].startswith("key:")


def test_it_does_nothing_else(plane, world):
    """PACT-35: neither to its own nodes nor to the domain."""
    acts = ("drain", "undrain", "quarantine", "release", "rotate", "revoke", "decommission", "reinstate", "repair-bundle")
    tries = [(f"/v1/nodes/m-1/{act}", {}) for act in (*acts, "recovery/revoke", "config")]
    tries += [
        ("/v1/nodes", {"node_id": "new", "mac": racks.mac(), "vcluster": MINE}),
        ("/v1/nodes/batch", {"nodes": []}),
        ("/v1/tokens", {}),
        ("/v1/tokens", {"node": "m-1"}),
        ("/v1/tenants", {"name": "new"}),
        ("/v1/vclusters", {"name": "new"}),
        (f"/v1/vclusters/{MINE}/config", {}),
        ("/v1/vcluster-defaults", {}),
        ("/v1/operators", {"name": "new", "role": "viewer"}),
        ("/v1/operator-keys", {"name": "new", "role": "viewer"}),
        ("/v1/ca/roll/prepare", {}),
        ("/v1/hosts/enroll-tokens", {}),
        ("/v1/hosts/m-1/drain", {}),
        ("/v1/hosts/m-1/revoke", {}),
        ("/v1/agents/enroll-tokens", {}),
        ("/v1/agents/m-1/revoke", {}),
    ]
    before = len(plane.audit())
    for path, body in tries:
        status, answer = post(plane, world, path, body)
        assert status in (403, 404), (path, status, answer)
    for path in (f"/v1/vclusters/{MINE}", "/v1/operators/nora"):
        status, _, text = curl(plane, "DELETE", path, "-H", "Content-Type: application/json", key=world)
        assert status in (403, 404), (path, text)
    status, _, _ = curl(plane, "PUT", "/v1/policy", "-H", "Content-Type: application/json", "-d", '{"key":"attestors","value":"hardware"}', key=world)
    assert status == 403
    assert plane.node("m-1")["state"] == "registered" and len(plane.audit()) == before


def test_the_history_of_a_node_begins_when_it_came(plane, world):
    """PACT-35: of a node that was elsewhere before, the lines since then, and no name of the other vCluster."""
    racks.register(plane, "wanderer", vcluster=THEIRS)
    assert get(plane, world, "/v1/nodes/wanderer/timeline")[0] == 404
    assert plane.api("POST", "/v1/nodes/wanderer/move", {"vcluster": MINE}).status == 200
    plane.cli("node", "drain", "wanderer")
    _, _, text = get(plane, world, "/v1/nodes/wanderer/timeline")
    assert [line["event_type"] for line in json.loads(text)["items"]] == ["host.draining"] and THEIRS not in text
    assert THEIRS not in get(plane, world, "/v1/nodes/wanderer")[2]
    whole = [line["event_type"] for line in plane.items("/v1/nodes/wanderer/timeline")]
    assert whole == ["host.registered", "host.moved", "host.draining"]
    assert plane.api("POST", "/v1/nodes/wanderer/move", {"vcluster": THEIRS}).status == 200
    assert get(plane, world, "/v1/nodes/wanderer")[0] == 404


def test_it_is_told_of_its_own_nodes_alone(plane, world):
    """PACT-35: /v1/events has nodes of its vClusters, and neither others nor alerts."""
    racks.register(plane, "told-mine", vcluster=MINE)
    racks.register(plane, "told-theirs", vcluster=THEIRS)
    told: list[str] = []
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=60, context=plane.context())
    connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {world}"})
    stream = connection.getresponse()
    assert stream.status == 200 and stream.readline() == b": following\n"

    def follow():
        try:
            for line in stream:
                told.append(line.decode())
        except (OSError, ValueError, AttributeError):
            pass  # closed below

    threading.Thread(target=follow, daemon=True).start()
    try:
        plane.cli("node", "drain", "told-theirs")
        plane.cli("node", "drain", "told-mine")
        until(lambda: any("told-mine" in line for line in told), "its own node was told")
        plane.api("POST", "/v1/nodes/told-theirs/unassign", {})
        plane.cli("node", "undrain", "told-mine")
        until(lambda: sum("told-mine" in line for line in told) >= 2, "the second change was told")
        whole = "".join(told)
        assert "told-theirs" not in whole and THEIRS not in whole and "event: alert" not in whole
    finally:
        connection.sock.shutdown(2)
        connection.close()


def test_a_node_of_another_tenant_does_not_exist(plane):
    """D03, PACT-35: whatever it is in, such an operator is told `node_not_found`."""
    for tenant in ("on-red", "on-blue"):
        assert plane.api("POST", "/v1/tenants", {"name": tenant}).status == 201
        racks.vcluster(plane, f"{tenant}-v", tenant=tenant)
    racks.register(plane, "on-in", tenant="on-blue", vcluster="on-blue-v")
    racks.register(plane, "on-out", tenant="on-blue")
    key = make_key(plane, "operator", "--tenant", "on-red", "--vcluster", "on-red-v")["key"]
    for id in ("on-in", "on-out", "nobody"):
        for verb, body in (("assign", {"vcluster": "on-red-v"}), ("move", {"vcluster": "on-red-v"}), ("unassign", {})):
            status, answer = post(plane, key, f"/v1/nodes/{id}/{verb}", body)
            assert (status, answer["error"]["code"]) == (404, "node_not_found"), (id, verb, answer)
