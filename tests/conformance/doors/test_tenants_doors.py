"""Two tenants on every door: nothing minted, enrolled, listed or revoked in one can be seen or touched from the other,
except that an id that a worker chooses may be refused as taken."""

import base64
import os

import certs
import evidence
import pytest
from machine import scratch
from operators import make_key

RED, BLUE = "red", "blue"


class Rest:
    """An operator of one tenant, with an API key, and hosts that enroll with tokens of that tenant."""

    tokens: str
    wanted: dict = {}
    """Where tokens are minted, and what is asked for."""

    def __init__(self, plane, tenant: str):
        self.plane, self.tenant = plane, tenant
        self.key = make_key(plane, "operator", "--tenant", tenant)["key"]

    def ask(self, method: str, path: str, body=None, tenant: str | None = None, certificate=None):
        headers = {} if certificate else {"Authorization": f"Bearer {self.key}"}
        if tenant:
            headers["X-Tenant"] = tenant
        return self.plane.https(method, path, body, headers=headers, certificate=certificate)

    def mint(self, tenant=None):
        answer = self.ask("POST", self.tokens, self.wanted, tenant)
        if answer.status == 201:
            evidence.token(answer.json()["token"])
        return answer


class Plfm(Rest):
    tokens = "/v1/hosts/enroll-tokens"

    def enroll(self):
        key = certs.ec_key()
        token = self.mint().json()
        answer = self.plane.https(
            "POST",
            "/v1/hosts/enroll",
            {
                "enrollment_token": token["token"],
                "underlay_endpoint": {"ipv4": "127.0.0.1", "port": 51820},
                "hardware_facts": {},
                "wireguard_public_key": base64.b64encode(os.urandom(31) + b"\x09").decode(),
                "mtls_csr": certs.csr(key),
                "tenant": BLUE,
                "host_id": "of-my-choice",
            },
        )
        assert answer.status == 201, answer
        made = answer.json()
        return made["host_id"], certs.identity(scratch("tenant"), key, made["mtls_cert"]), token["token_id"]

    def listed(self, tenant=None):
        answer = self.ask("GET", "/v1/hosts", None, tenant)
        return answer.status, [host["host_id"] for host in answer.json().get("hosts", [])]

    def touches(self, node: str, token: str) -> list[tuple]:
        return [
            ("GET", f"/v1/hosts/{node}", None),
            ("POST", f"/v1/hosts/{node}/drain", {}),
            ("POST", f"/v1/hosts/{node}/revoke", {"reason": "not mine"}),
            ("DELETE", f"/v1/hosts/enroll-tokens/{token}", None),
        ]


class Probectl(Rest):
    tokens = "/v1/agents/enroll-tokens"

    def enroll(self):
        key = certs.ec_key()
        token = self.mint().json()
        answer = self.plane.https("POST", "/enroll/agent", {"token": token["token"], "csr_pem": certs.csr(key)})
        assert answer.status == 200, answer
        made = answer.json()
        assert made["tenant_id"] == self.tenant
        return made["agent_id"], certs.identity(scratch("tenant"), key, made["cert_pem"]), token["id"]

    def listed(self, tenant=None):
        answer = self.ask("GET", "/v1/agents", None, tenant)
        return answer.status, [agent["agent_id"] for agent in answer.json().get("agents", [])]

    def touches(self, node: str, token: str) -> list[tuple]:
        return [
            ("GET", f"/v1/agents/{node}", None),
            ("PATCH", f"/v1/agents/{node}", {"name": "mine"}),
            ("POST", f"/v1/agents/{node}/revoke", {}),
            ("DELETE", f"/v1/agents/{node}", None),
            ("POST", "/v1/agents/enroll-tokens", {"agent_id": node}),
        ]


class Taskrun(Rest):
    tokens = "/v1/tokens"
    wanted = {"door": "taskrun"}

    def enroll(self):
        key = certs.ec_key()
        token = self.mint().json()
        name = f"{self.tenant}-{os.urandom(4).hex()}"
        body = {"bootstrap_token": token["token"], "csr": certs.csr(key, f"worker:{name}")}
        answer = self.plane.https("POST", "/v1/enroll", body)
        assert answer.status == 200, answer
        return name, certs.identity(scratch("tenant"), key, answer.json()["worker_cert"]), token["token_id"]

    def listed(self, tenant=None):
        answer = self.ask("GET", "/v1/workers", None, tenant)
        return answer.status, [worker["worker_id"] for worker in answer.json().get("workers", [])]

    def touches(self, node: str, token: str) -> list[tuple]:
        return [
            ("GET", f"/v1/workers/{node}", None),
            ("POST", f"/v1/workers/{node}/revoke", {}),
            ("DELETE", f"/v1/tokens/{token}", None),
        ]


@pytest.fixture(scope="module", params=[Plfm, Probectl, Taskrun], ids=["plfm", "probectl", "taskrun"])
def pair(request, plane):
    """One operator in each of two tenants, with a node of theirs."""
    known = {tenant["name"] if "name" in tenant else tenant["tenant"] for tenant in plane.items("/v1/tenants")}
    for tenant in {RED, BLUE} - known:
        assert plane.api("POST", "/v1/tenants", {"name": tenant}).status == 201
    red, blue = request.param(plane, RED), request.param(plane, BLUE)
    return red, red.enroll(), blue, blue.enroll()


def test_a_list_shows_ones_own_and_nothing_else(pair):
    """Proves PROBE-01, PROBE-26."""
    red, (mine, _, _), blue, (theirs, _, _) = pair
    assert mine in red.listed()[1] and theirs not in red.listed()[1]
    assert theirs in blue.listed()[1] and mine not in blue.listed()[1]
    assert red.listed(BLUE)[0] in (403, 404), "the header chooses among one's own tenants only"


def test_what_lies_in_another_tenant_is_not_there(pair):
    """Neither seen nor touched, and none the worse for the attempts."""
    red, _, blue, (theirs, _, token) = pair
    spare = blue.mint().json()
    spare = spare.get("token_id") or spare.get("id")
    for method, path, body in red.touches(theirs, spare):
        answer = red.ask(method, path, body)
        assert answer.status == 404, (method, path, answer)
    assert red.mint(BLUE).status == 404
    assert blue.plane.node(theirs)["state"] != "revoked"
    assert blue.plane.token_state(spare) == "unused"


def test_the_tenant_comes_from_the_token_and_from_nothing_else(pair):
    """Proves PROBE-01, PROBE-26: whatever body or header say, the certificate is of the token's tenant."""
    red, (mine, (cert, _), _), _, _ = pair
    leaf = certs.certificates(cert.read_bytes())[0]
    assert certs.uris(leaf) == [f"spiffe://{red.plane.domain}/tenant/{RED}/agent/{mine}"]
    assert red.plane.node(mine)["tenant"] == RED


def test_a_node_has_no_rights_of_an_operator(pair):
    """A node's certificate lists nobody, not even its own tenant, and revokes nobody."""
    red, (mine, certificate, token), _, (theirs, _, _) = pair
    for node in (mine, theirs):
        for method, path, body in red.touches(node, token):
            answer = red.ask(method, path, body, certificate=certificate)
            assert answer.status in (401, 403, 404), (method, path, answer)
    assert red.plane.node(mine)["state"] != "revoked"
