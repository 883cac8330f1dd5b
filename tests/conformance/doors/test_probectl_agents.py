"""The probectl door: what operators see of agents and do to them, and collectors. D08, D15."""

import uuid

import pytest

import certs
import native
import probectl
from operators import make_key
from probectl import ask_enroll, enroll, mint, reasons, said, token

FIELDS = {"agent_id", "tenant_id", "spiffe_id", "state", "serial", "not_after", "hostname", "version"}


@pytest.fixture(scope="module")
def plane(programs):
    with probectl.control_plane() as running:
        yield running


@pytest.fixture(scope="module")
def teams(plane):
    """Two tenants, each with an operator's key and an agent."""
    found = {}
    for name in ("red", "blue"):
        assert plane.api("POST", "/v1/tenants", {"name": name}).status == 201
        key = make_key(plane, "operator", "--tenant", name)["key"]
        found[name] = key, enroll(plane, mint(plane, {"X-Tenant": name})["token"])
    return found


def by(plane, key, method: str, path: str, body=None, **headers):
    return plane.https(method, path, body, {"Authorization": f"Bearer {key}", **headers})


def test_agents_are_listed_page_by_page(plane):
    """PROBE-16: everything that was issued is in the registry."""
    made = {enroll(plane).id for _ in range(3)}
    seen, after, pages = [], "", 0
    while after is not None:
        answer = plane.api("GET", f"/v1/agents?limit=2&after={after}")
        assert answer.status == 200, answer
        page = answer.json()
        assert len(page["agents"]) <= 2
        seen, after, pages = seen + page["agents"], page["next"], pages + 1
    assert made <= {agent["agent_id"] for agent in seen} and pages >= 2
    assert len({agent["agent_id"] for agent in seen}) == len(seen)
    assert all(FIELDS <= set(agent) for agent in seen)
    for query in ("limit=0", "limit=1001", "limit=x", "after=a%20b", "cursor=x"):
        answer = plane.api("GET", f"/v1/agents?{query}")
        assert (answer.status, answer.code) == (400, "bad_request"), query


def test_a_name_and_labels_are_kept_and_forgotten(plane):
    """`PATCH` changes what it names; null forgets; every change is in the trail once."""
    agent = enroll(plane, token(plane, name="Édge 1"))
    assert (agent.shown()["name"], agent.shown()["labels"]) == ("Édge 1", {})

    def patch(body):
        return plane.api("PATCH", f"/v1/agents/{agent.id}", body)

    shown = patch({"labels": {"site": "lon", "team/owner": ""}}).json()
    assert (shown["name"], shown["labels"]) == ("Édge 1", {"site": "lon", "team/owner": ""})
    assert patch({"labels": {"site": "par"}}).json()["labels"] == {"site": "par"}
    assert patch({"name": "Edge 2"}).json()["labels"] == {"site": "par"}
    before = len(plane.audit("host.described"))
    assert patch({"name": "Edge 2", "labels": {"site": "par"}}).status == 200
    assert patch({}).json()["name"] == "Edge 2"
    assert len(plane.audit("host.described")) == before, "the same again changes nothing"
    line = plane.audit("host.described")[-1]
    assert (line["host_id"], line["name"], line["labels"]) == (agent.id, "Edge 2", ["site=par"])
    shown = patch({"name": None, "labels": None}).json()
    assert (shown["name"], shown["labels"]) == (None, {})
    for bad in (
        {"name": ""},
        {"name": "x" * 129},
        {"name": "two\nlines"},
        {"labels": {"": "x"}},
        {"labels": {"a b": "x"}},
        {"labels": {"a": "\x00"}},
        {"labels": {"a": "x" * 129}},
        {"labels": {str(n): "" for n in range(33)}},
        {"labels": {"a": 1}},
        {"tenant_id": "acme"},
        {"state": "active"},
    ):
        answer = patch(bad)
        assert (answer.status, answer.code) == (400, "bad_request"), bad
    plane.restart()
    assert agent.shown()["name"] is None


def test_a_revoked_agent_is_out_at_once(plane):
    """Proves PROBE-23: refused at the handshake, its serials counted, and said again without harm."""
    agent = enroll(plane)
    agent.speak()
    with native.door(plane, agent.files) as open_door:
        live = open_door.live(agent.id)
        live.next("welcome")
        answer = plane.api("POST", f"/v1/agents/{agent.id}/revoke", {"reason": "stolen"})
        assert answer.status == 200
        assert answer.json() == {
            "agent_id": agent.id,
            "spiffe_id": agent.told["spiffe_id"],
            "live_serials_revoked": 1,
        }
        live.wait_end()
    assert native.alert(plane, agent.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    line = plane.audit("host.revoked")[-1]
    assert (line["host_id"], line["reason"]) == (agent.id, "stolen")
    again = plane.api("POST", f"/v1/agents/{agent.id}/revoke")
    assert (again.status, again.json()["live_serials_revoked"]) == (200, 0)
    assert len([line for line in plane.audit("host.revoked") if line["host_id"] == agent.id]) == 1
    assert agent.shown()["state"] == "revoked"


def test_a_deleted_agent_is_a_tombstone_without_a_name(plane):
    """Revoked, and what people called it is forgotten; the id is never given again."""
    agent = enroll(plane, token(plane, name="Edge 3"))
    assert plane.api("PATCH", f"/v1/agents/{agent.id}", {"labels": {"a": "b"}}).status == 200
    for _ in range(2):
        assert plane.api("DELETE", f"/v1/agents/{agent.id}").status == 204
    shown = agent.shown()
    assert (shown["state"], shown["name"], shown["labels"]) == ("revoked", None, {})
    assert native.alert(plane, agent.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    answer = plane.api("POST", "/v1/agents/enroll-tokens", {"agent_id": agent.id})
    assert (answer.status, answer.code) == (403, "forbidden")
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/revoke")):
        body = {} if method in ("PATCH", "POST") else None
        for unknown in (str(uuid.uuid4()), "a%20b"):
            answer = plane.api(method, f"/v1/agents/{unknown}{path}", body)
            assert (answer.status, answer.code) == (404, "not_found"), (method, path)


def test_who_may_do_what(plane):
    """PROBE-02: reading is the viewer's, `agent.write` the operator's, and agents are no operators."""
    agent = enroll(plane)
    path = f"/v1/agents/{agent.id}"
    acts = (("PATCH", path, {"name": "x"}), ("DELETE", path, None), ("POST", f"{path}/revoke", {}))
    viewer = make_key(plane, "viewer")["key"]
    assert by(plane, viewer, "GET", path).status == 200
    for act in acts:
        answer = by(plane, viewer, *act)
        assert (answer.status, answer.code) == (403, "forbidden"), act
        assert plane.https(*act, certificate=agent.files).status == 403, act
        answer = plane.https(*act)
        assert (answer.status, answer.code) == (401, "unauthorized"), act
    assert agent.shown()["state"] != "revoked"


def test_tenants_do_not_see_or_touch_each_other(plane, teams):
    """Proves PROBE-04, PROBE-26."""
    (red, mine), (_, theirs) = teams["red"], teams["blue"]
    path = f"/v1/agents/{theirs.id}"
    for act in (
        ("GET", path, None),
        ("PATCH", path, {"name": "mine"}),
        ("DELETE", path, None),
        ("POST", f"{path}/revoke", {}),
        ("POST", "/v1/agents/enroll-tokens", {"agent_id": theirs.id}),
    ):
        answer = by(plane, red, *act)
        assert (answer.status, answer.code) == (404, "not_found"), act
    listed = by(plane, red, "GET", "/v1/agents?limit=1000").json()["agents"]
    assert [agent["agent_id"] for agent in listed] == [mine.id]
    for act in (("GET", "/v1/agents", None), ("POST", "/v1/agents/enroll-tokens", {})):
        assert by(plane, red, *act, **{"X-Tenant": "blue"}).status == 404, act
    minted = by(plane, red, "POST", "/v1/agents/enroll-tokens", {})
    assert minted.json()["tenant_id"] == "red", "the only tenant that it has"
    agent = enroll(plane, minted.json()["token"])
    assert agent.told["spiffe_id"] == f"spiffe://probectl/tenant/red/agent/{agent.id}"
    narrowed = plane.api("GET", f"/v1/agents/{theirs.id}", headers={"X-Tenant": "red"})
    assert narrowed.status == 404, "who may see all sees the one that was chosen"
    assert theirs.shown()["state"] == "enrolled" and theirs.shown()["name"] is None


def test_without_a_tenant_the_default_one_is_meant(plane, teams):
    """Also for who may see all: agents of another tenant are neither listed nor touched unless it is named."""
    _, theirs = teams["blue"]
    path = f"/v1/agents/{theirs.id}"
    for act in (
        ("GET", path, None),
        ("PATCH", path, {"name": "mine"}),
        ("DELETE", path, None),
        ("POST", f"{path}/revoke", {}),
    ):
        assert plane.api(*act).status == 404, act
    listed = plane.api("GET", "/v1/agents?limit=1000").json()["agents"]
    assert {agent["tenant_id"] for agent in listed} <= {"default"}
    listed = plane.api("GET", "/v1/agents?limit=1000", headers={"X-Tenant": "blue"}).json()["agents"]
    assert {agent["tenant_id"] for agent in listed} == {"blue"}
    assert plane.api("GET", "/v1/agents", headers={"X-Tenant": "nope"}).status == 404


def register(plane, body: dict, key: str | None = None, **headers):
    sent = {**headers, **({"Authorization": f"Bearer {key}"} if key else {})}
    return plane.https("POST", "/v1/collectors/register", body, sent)


def test_an_operator_registers_a_collector(plane, teams):
    """D08, D16: known before it has a certificate, in the operator's own tenant."""
    red, _ = teams["red"]
    answer = register(plane, {"plane": "flow", "hostname": "edge-9"}, red)
    assert answer.status == 201, answer
    made = answer.json()
    assert set(made) == {"tenant_id", "agent_id", "plane", "hostname"}
    assert (made["tenant_id"], made["plane"], made["hostname"]) == ("red", "flow", "edge-9")
    assert uuid.UUID(made["agent_id"]).version == 4
    shown = plane.api("GET", f"/v1/agents/{made['agent_id']}", headers={"X-Tenant": "red"}).json()
    assert (shown["state"], shown["serial"], shown["not_after"]) == ("registered", None, None)
    line = plane.audit("host.registered")[-1]
    assert (line["host_id"], line["plane"], line["token_id"]) == (made["agent_id"], "flow", None)
    pinned = by(plane, red, "POST", "/v1/agents/enroll-tokens", {"agent_id": made["agent_id"]}).json()
    assert enroll(plane, pinned["token"]).id == made["agent_id"]
    assert register(plane, {"plane": "flow"}, red, **{"X-Tenant": "blue"}).status == 404
    viewer = make_key(plane, "viewer")["key"]
    assert register(plane, {"plane": "flow"}, viewer).status == 403


def test_a_token_registers_one_collector_and_then_enrolls_it(plane):
    """PROBE-05, I1: the token is for that agent from then on, and the second call names the same one."""
    minted = mint(plane, name="Edge 5")
    first = register(plane, {"token": minted["token"], "plane": "device", "hostname": "edge-5"})
    assert first.status == 201, first
    again = register(plane, {"token": minted["token"], "plane": "other"})
    assert (again.status, again.json()) == (201, first.json())
    agent_id = first.json()["agent_id"]
    listed = plane.api("GET", f"/v1/tokens/{minted['id']}").json()
    assert (listed["state"], listed["node"]) == ("unused", agent_id)
    agent = enroll(plane, minted["token"])
    assert (agent.id, agent.shown()["name"], agent.shown()["plane"]) == (agent_id, "Edge 5", "device")
    assert register(plane, {"token": minted["token"], "plane": "device"}).status == 401
    assert len([line for line in plane.audit("host.registered") if line["host_id"] == agent_id]) == 1


def test_a_refused_registration_says_nothing(plane, teams):
    """Proves PROBE-24: one and the same 401, and no collector."""
    red, _ = teams["red"]
    before = len(plane.nodes())
    voided = mint(plane)
    plane.api("DELETE", f"/v1/tokens/{voided['id']}")
    refused = [register(plane, {"token": one, "plane": "flow"}) for one in ("", "x y", "pjt_0", voided["token"])]
    refused.append(register(plane, {"plane": "flow"}))
    # An operator gains nothing by a token of another tenant, and the token stays good.
    found = token(plane)
    refused.append(register(plane, {"token": found, "plane": "flow"}, red))
    told = {repr(said(answer)) for answer in refused}
    assert len(told) == 1 and refused[0].status == 401, refused
    assert len(plane.nodes()) == before
    assert {"token_invalid", "token_malformed", "token_revoked"} <= reasons(plane)
    for bad in ({}, {"plane": ""}, {"plane": "a b"}, {"plane": "x", "hostname": "a b"}, {"plane": "x", "tenant": "y"}):
        answer = register(plane, {"token": found, **bad})
        assert (answer.status, answer.code) == (400, "bad_request"), bad
    assert ask_enroll(plane, found, certs.good_csr()).status == 200
