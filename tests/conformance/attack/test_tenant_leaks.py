"""What an operator of one tenant can read: nothing of another one, in any answer of any route, nor in any event."""

import http.client
import json

import pytest

import certs
import evidence
import hosts
import native
import probectl
import rolls
import workers
from machine import PATIENCE, ROOT, until
from operators import make_key
from plane import ControlPlane

OWN, OTHER = "aardvark", "zebra"


class Side:
    """A tenant with something of everything in it. `marks` is whatever would give it away."""

    def __init__(self, plane, tenant: str):
        self.plane, self.tenant = plane, tenant
        assert plane.api("POST", "/v1/tenants", {"name": tenant}).status == 201
        named = {"X-Tenant": tenant}
        minted = plane.mint(tenant=tenant)
        self.token = minted["token_id"]
        self.node = native.enroll(plane, plane.token(tenant=tenant), hostname=f"{tenant}-hostname")
        self.node.confirm()
        self.failed = native.enroll(plane, plane.token(tenant=tenant))
        self.failed.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason=f"{tenant}-disk-full")
        self.host = hosts.active(plane, tenant=tenant)
        joined = probectl.mint(plane, headers=named)
        self.agent = probectl.enroll(plane, joined["token"], hostname=f"{tenant}-probe")
        described = {"name": f"{tenant} vague name", "labels": {"site": f"{tenant}-site"}}
        assert plane.api("PATCH", f"/v1/agents/{self.agent.id}", described, named).status == 200
        self.worker = workers.enroll(plane, id=f"{tenant}-worker", tenant=tenant)
        self.keys = {role: make_key(plane, role, "--tenant", tenant) for role in ("viewer", "operator")}
        plane.cli("operator", "add", f"{tenant}-person", "--role", "viewer", "--tenant", tenant, "--out", hosts.scratch("op"))
        self.alerts = [one["alert_id"] for one in plane.items(f"/v1/alerts?node={self.failed.id}")]
        assert self.alerts, "a failed confirmation raises an alert"
        self.stream = (door := self.node.door()).live(self.node.id)
        self.stream.next("welcome")
        self.door = door

    @property
    def ids(self) -> list[str]:
        return [self.node.id, self.failed.id, self.host.id, self.agent.id, self.worker.id]

    def marks(self) -> set[str]:
        nodes = [self.plane.node(one) for one in self.ids]
        serials = {one["serial"] for node in nodes for one in node["certificates"]}
        tokens = {one["token_id"] for one in self.plane.items(f"/v1/tokens?all=true&tenant={self.tenant}")}
        keys = {key["key_id"] if "key_id" in key else key["id"] for key in self.keys.values()}
        host = {self.host.wireguard, self.host.address}
        return {self.tenant, *self.ids, *serials, *tokens, *keys, *host, *self.alerts}

    def close(self) -> None:
        self.stream.close()
        self.door.close()


@pytest.fixture(scope="module")
def sides(programs):
    with probectl.control_plane() as plane:
        own, other = Side(plane, OWN), Side(plane, OTHER)
        # From here on some nodes of both lack the newest bundle.
        rolls.prepare(plane)
        until(lambda: rolls.status(plane)["missing"], "a roll is under way")
        yield own, other
        own.close()
        other.close()


def asker(side: Side, role: str):
    """GET with an API key of this tenant: status and whole answer, headers included."""

    def get(path: str, **headers) -> tuple[int, str]:
        answer = side.plane.https("GET", path, headers={"Authorization": f"Bearer {side.keys[role]['key']}", **headers})
        return answer.status, f"{sorted(answer.headers.items())}\n{answer.body.decode(errors='replace')}"

    return get


def described() -> dict:
    """Every GET route of the description, with the names of its parameters; the streams are read elsewhere."""
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    found = {path: methods["get"] for path, methods in paths.items() if "get" in methods}
    return {path: [one["name"] for one in about.get("parameters", [])] for path, about in found.items()}


def asked(side: Side, path: str, parameters: list[str]) -> list[str]:
    """A route with every id of a tenant in its path, and with every parameter that can narrow or page."""
    ids = [*side.ids, side.token] if "{id}" in path else [""]
    wanted = [path.replace("{id}", one) for one in ids]
    choices = {
        "limit": "limit=1",
        "tenant": f"tenant={side.tenant}",
        "node": f"node={side.node.id}",
        "all": "all=true",
        "cursor": f"cursor={side.node.id}",
        "after": f"after={side.node.id}",
    }
    queries = [""] + [f"?{choices[name]}" for name in parameters if name in choices]
    return [one + query for one in wanted for query in queries]


def found(marks: set[str], text: str, sent: str) -> set[str]:
    """What gives the other away, apart from what was sent."""
    return {mark for mark in marks if mark in text and mark not in sent}


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_no_route_tells_anything_of_another_tenant(sides, role):
    """Every GET route of the description, about one's own ids and about the other's, with every parameter: no id, name,
    serial, address or number of the other tenant is in any answer."""
    own, other = sides
    get, marks, leaks, read = asker(own, role), other.marks(), {}, 0
    for path, parameters in described().items():
        if path in ("/v1/events", "/v1/ca/crl"):
            continue  # a stream, read below; and the list of revocations, which is public
        for target in {*asked(own, path, parameters), *asked(other, path, parameters)}:
            status, text = get(target)
            assert status < 500, (target, text)
            read += status == 200
            if said := found(marks, text, target):
                leaks[target] = said
    assert not leaks, leaks
    assert read > 30, "hardly anything could be read"


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_what_the_ca_says_counts_ones_own_nodes_only(sides, role):
    """`/v1/ca` and `/v1/ca/roll` count and name the caller's part; the whole is for operators of all tenants."""
    own, _ = sides
    get = asker(own, role)
    ca, roll = (json.loads(get(path)[1].partition("\n")[2]) for path in ("/v1/ca", "/v1/ca/roll"))
    whole = own.plane.api("GET", "/v1/ca").json()
    for part in (ca, roll):
        assert part["adoption"]["total"] == len(own.ids)
    assert whole["adoption"]["total"] == 2 * len(own.ids)
    assert set(roll["missing"]) <= set(own.ids) and roll["missing"]
    assert set(rolls.status(own.plane)["missing"]) > set(roll["missing"])
    assert sum(issuer["leaves"] for issuer in ca["issuers"]) == len(own.ids)
    assert all(issuer["other_leaves"] == 0 for issuer in ca["issuers"])
    assert sum(issuer["other_leaves"] for issuer in whole["issuers"]) >= 3


def test_no_event_tells_anything_of_another_tenant(sides):
    """While everything happens to the other tenant's nodes, a follower of one's own sees only what happens to one's own."""
    own, other = sides
    plane, marks = own.plane, other.marks()
    connection = http.client.HTTPSConnection("127.0.0.1", plane.port, timeout=PATIENCE, context=plane.context())
    connection.request("GET", "/v1/events", headers={"Authorization": f"Bearer {own.keys['viewer']['key']}"})
    stream = connection.getresponse()
    assert stream.status == 200
    assert b"following" in stream.readline()
    late = native.enroll(plane, plane.token(tenant=OTHER), hostname="zebra-late")
    late.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="zebra-again")
    for verb in ("drain", "undrain", "quarantine", "release", "rotate"):
        assert plane.api("POST", f"/v1/nodes/{other.node.id}/{verb}", {}).status == 200, verb
    assert plane.api("POST", f"/v1/alerts/{other.alerts[0]}/ack", {}).status == 200
    assert plane.api("POST", f"/v1/nodes/{late.id}/revoke", {"reason": "zebra gone"}).status == 200
    assert plane.api("POST", f"/v1/nodes/{own.worker.id}/drain", {}).status == 200
    heard = ""
    while f'"node_id":"{own.worker.id}"' not in heard:
        line = stream.readline()
        assert line, heard
        heard += line.decode()
    connection.close()
    assert not found(marks | {late.id}, heard, ""), heard


def test_acts_on_another_tenants_things_are_refused_as_if_they_did_not_exist(sides):
    """With every verb, connected or not: the same answer as for an id that nobody has, and nothing is told in it."""
    own, other = sides
    headers = {"Authorization": f"Bearer {own.keys['operator']['key']}"}

    def ask(method: str, path: str, body=None):
        answer = own.plane.https(method, path, body, headers)
        if answer.status == 201:
            evidence.token(answer.json()["token"])
        said = answer.json()["error"]
        said.pop("request_id", None)
        return answer.status, json.dumps(said)

    verbs = ("drain", "undrain", "quarantine", "release", "rotate", "revoke", "recovery/revoke")
    absent = "n-of-nobody"
    for verb in verbs:
        there, nobody = (ask("POST", f"/v1/nodes/{one}/{verb}", {}) for one in (other.node.id, absent))
        assert there[0] == 404, (verb, there)
        assert there[1].replace(other.node.id, absent) == nobody[1], verb
    for one in other.ids:
        status, said = ask("POST", "/v1/tokens", {"node": one})
        assert status == 404 and "connected" not in said, said
        assert not found(other.marks() - {one}, said, one), said
    assert ask("POST", f"/v1/alerts/{other.alerts[0]}/ack", {})[0] == 404
    assert ask("DELETE", f"/v1/tokens/{other.token}")[0] == 404


def test_a_host_hears_of_its_own_tenant_only(sides):
    """Its peers, its Welcome, and its own record on every API that a host can ask."""
    own, other = sides
    marks = other.marks()
    assert not found(marks, json.dumps(own.host.overlay()), "")
    with own.node.door() as door:
        stream = door.live(own.node.id, instance="again")
        assert not found(marks, str(stream.next("welcome")), "")
        stream.close()
    for path in ("/v1/nodes", f"/v1/nodes/{other.node.id}", "/v1/hosts", f"/v1/hosts/{other.host.id}", "/v1/ca", "/v1/events"):
        answer = own.host.ask("GET", path)
        assert answer.status in (401, 403, 404), (path, answer)
        assert not found(marks, answer.body.decode(), path), path
