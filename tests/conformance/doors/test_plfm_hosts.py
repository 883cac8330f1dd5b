"""Hosts as operators of the plfm door see them, and the walls between tenants on it."""

import pytest

import certs
import evidence
import hosts
import native
from machine import scratch
from operators import make_key
from plane import ControlPlane


def test_hosts_are_listed_in_pages_and_shown(plane_of_its_own):
    """Proves PLFM-27: `hosts` with `next_cursor`, and each as it is shown alone."""
    plane = plane_of_its_own
    fleet = sorted(hosts.enroll(plane).id for _ in range(5))
    found = []
    for page in plane.pages("/v1/hosts?limit=2"):
        assert set(page) == {"hosts", "next_cursor"} and len(page["hosts"]) <= 2
        found += page["hosts"]
    assert [host["host_id"] for host in found] == fleet
    for host in found:
        assert plane.api("GET", f"/v1/hosts/{host['host_id']}").json() == host
    answer = plane.api("GET", "/v1/hosts/01JNOBODY")
    assert (answer.status, answer.code) == (404, "node_not_found")
    for query in ("limit=0", "limit=x", "cursor=a%2Fb"):
        assert plane.api("GET", f"/v1/hosts?{query}").status == 400


def test_the_life_of_a_host_in_the_documents_words(plane):
    """Proves PLFM-24, PLFM-26, PLFM-35: enrolled, active, draining, decommissioned; any to disabled; twice is once."""
    host = hosts.enroll(plane)
    assert host.shown()["state"] == "enrolled"
    host.confirm()
    for verb, state in (("drain", "draining"), ("decommission", "decommissioned")):
        for _ in range(2):
            assert host.act(verb)["state"] == state
    events = [line["event_type"] for line in plane.audit() if line.get("host_id") == host.id]
    assert events == ["host.enrolled", "host.confirmed", "host.active", "host.draining", "host.decommissioned"]
    assert host.shown()["overlay_ipv6"] is None, "its address is given back"
    for stage in (lambda host: None, hosts.Host.confirm, lambda host: (host.confirm(), host.act("drain"))):
        host = hosts.enroll(plane)
        stage(host)
        for _ in range(2):
            assert host.act("revoke")["state"] == "disabled"
        (line,) = [line for line in plane.audit("host.revoked") if line["host_id"] == host.id]
        assert line["reason"] == "unspecified"
        for verb in ("drain", "decommission"):
            answer = plane.api("POST", f"/v1/hosts/{host.id}/{verb}")
            assert (answer.status, answer.code) == (403, "node_revoked")
    for verb in ("drain", "decommission", "revoke"):
        answer = plane.api("POST", f"/v1/hosts/01JNOBODY/{verb}")
        assert (answer.status, answer.code) == (404, "node_not_found")
    for reason in ("", "x" * 201, "a\nb", 7):
        answer = plane.api("POST", f"/v1/hosts/{host.id}/revoke", {"reason": reason})
        assert (answer.status, answer.code) == (400, "bad_request"), reason


def test_the_wireguard_key_of_a_host_that_was_active_stays_its_own(plane):
    """Small print of 000: the tombstone of a host that was ever active keeps its key; a copy of it is refused."""
    host = hosts.active(plane)
    host.act("revoke")
    answer = hosts.ask(plane, hosts.request(hosts.mint(plane)["token"], wireguard_public_key=host.wireguard))
    assert (answer.status, answer.code) == (409, "wireguard_key_in_use")


@pytest.fixture(scope="module")
def two(plane):
    """A host and an operator's key in each of two tenants."""
    found = {}
    for name in ("red", "blue"):
        assert plane.api("POST", "/v1/tenants", {"name": name}).status == 201
        key = make_key(plane, "platform-admin", "--tenant", name)["key"]
        found[name] = hosts.active(plane, tenant=name), {"Authorization": f"Bearer {key}"}
    return found


def test_a_machine_that_lost_its_name_to_another_is_no_peer_through_it(plane):
    """A stolen host's id goes to another machine, by a door that knows no WireGuard: the old key stays out."""
    watching, stolen = hosts.active(plane), hosts.active(plane)
    assert stolen.wireguard in watching.peers()
    key = certs.ec_key()
    with native.door(plane) as door:
        cert = door.enroll(plane.token(node=stolen.id), certs.csr(key)).certificate
    files = certs.identity(scratch("host"), key, cert)
    assert plane.https("POST", f"/v1/hosts/{stolen.id}/confirm-enrollment", certificate=files).status == 200
    assert plane.node(stolen.id)["state"] == "active"
    assert stolen.wireguard not in watching.peers()
    refused = hosts.ask(plane, hosts.request(hosts.mint(plane)["token"], wireguard_public_key=stolen.wireguard))
    assert (refused.status, refused.code) == (409, "wireguard_key_in_use")


def test_tenants_do_not_see_each_other(plane, two):
    """What lies in another tenant is 404 on every route, with the operator's own rights and with a header."""
    (red, key), (blue, _) = two["red"], two["blue"]
    minted = hosts.mint(plane, "blue")
    ask = lambda method, path, body=None, **headers: plane.https(method, path, body, {**key, **headers})
    assert [host["host_id"] for host in ask("GET", "/v1/hosts").json()["hosts"]] == [red.id]
    tokens = ask("GET", "/v1/hosts/enroll-tokens?all=true").json()["tokens"]
    assert {token["used_by_host_id"] for token in tokens} == {red.id}
    assert ask("GET", f"/v1/hosts/{red.id}").status == 200
    for headers in ({}, {"X-Tenant": "blue"}, {"X-Tenant": "default"}):
        for method, path in (
            ("GET", f"/v1/hosts/{blue.id}"),
            ("POST", f"/v1/hosts/{blue.id}/drain"),
            ("POST", f"/v1/hosts/{blue.id}/decommission"),
            ("POST", f"/v1/hosts/{blue.id}/revoke"),
            ("DELETE", f"/v1/hosts/enroll-tokens/{minted['token_id']}"),
        ):
            answer = ask(method, path, **headers)
            assert answer.status == 404, (headers, method, path, answer)
    for name in ("blue", "default", "nobody"):
        for method, path in (("GET", "/v1/hosts"), ("GET", "/v1/hosts/enroll-tokens"), ("POST", "/v1/hosts/enroll-tokens")):
            answer = ask(method, path, **{"X-Tenant": name})
            assert (answer.status, answer.code) == (404, "tenant_not_found"), (name, path)
    assert ask("GET", "/v1/hosts", **{"X-Tenant": "no/name"}).status == 400
    assert blue.shown()["state"] == "active" and hosts.unused(plane, minted["token_id"], "blue")
    assert blue.wireguard not in red.peers() and red.wireguard not in blue.peers()


def test_the_header_chooses_the_tenant(plane, two):
    """`X-Tenant` chooses; without it an operator of all tenants means `default`, one of a single tenant that one."""
    (red, key), _ = two["red"], two["blue"]
    here = hosts.active(plane)
    listed = lambda tenant: [
        host["host_id"] for host in plane.api("GET", "/v1/hosts?limit=1000", headers=hosts.named(tenant)).json()["hosts"]
    ]
    assert here.id in listed(None) and here.id in listed("default")
    assert listed("red") == [red.id]
    assert plane.api("GET", f"/v1/hosts/{red.id}").status == 404
    assert plane.api("GET", f"/v1/hosts/{red.id}", headers={"X-Tenant": "red"}).status == 200
    answer = plane.https("POST", "/v1/hosts/enroll-tokens", {}, key)
    assert answer.status == 201
    evidence.token(answer.json()["token"])
    assert hosts.unused(plane, answer.json()["token_id"], "red")


def test_a_viewer_sees_and_does_nothing(plane):
    """Roles hold on this door too."""
    host = hosts.active(plane)
    key = {"Authorization": f"Bearer {make_key(plane, 'viewer')['key']}"}
    assert plane.https("GET", f"/v1/hosts/{host.id}", headers=key).status == 200
    for verb in ("drain", "decommission", "revoke"):
        answer = plane.https("POST", f"/v1/hosts/{host.id}/{verb}", headers=key)
        assert (answer.status, answer.code) == (403, "forbidden")
    for method, path in (("GET", "/v1/hosts"), ("GET", f"/v1/hosts/{host.id}"), ("POST", f"/v1/hosts/{host.id}/revoke")):
        assert plane.https(method, path).status == 401
        assert host.ask(method, path).status == 403, "a host is no operator"
    assert host.shown()["state"] == "active"


def test_a_door_that_is_not_served_is_not_there():
    """`[doors] serve` without plfm: its paths are 404, a token in the body or not."""
    plane = ControlPlane().found()
    file = plane.dir / "enlist.toml"
    file.write_text(file.read_text() + '\n[doors]\nserve = ["taskrun"]\n')
    plane.start()
    try:
        for method, path in (("GET", "/v1/hosts"), ("POST", "/v1/hosts/enroll"), ("GET", "/v1/hosts/enroll-tokens")):
            answer = plane.https(method, path, {} if method == "POST" else None)
            assert (answer.status, answer.code) == (404, "not_found")
    finally:
        plane.close()
