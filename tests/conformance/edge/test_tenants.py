"""Tenants: what lies in another one is not there."""

import json

import evidence
from operators import curl, make_key


def test_a_tenants_operator_sees_its_tenant_only(plane, tenants):
    """What lies in another tenant is 404, in lists it is not there, and minting for it is refused."""
    key = make_key(plane, "operator", "--tenant", "red")["key"]
    (red, _), (blue, blue_token) = tenants["red"], tenants["blue"]

    def get(path):
        status, _, body = curl(plane, "GET", path, key=key)
        return status, json.loads(body)

    assert get(f"/v1/nodes/{red.id}")[0] == 200
    assert get(f"/v1/nodes/{blue.id}")[0] == 404
    assert {n["tenant"] for n in get("/v1/nodes")[1]["items"]} == {"red"}
    assert {t["tenant"] for t in get("/v1/tokens?all=true")[1]["items"]} == {"red"}
    assert get(f"/v1/tokens/{blue_token['token_id']}")[0] == 404
    assert curl(plane, "DELETE", f"/v1/tokens/{blue_token['token_id']}", key=key)[0] == 404
    assert {t["name"] if "name" in t else t["tenant"] for t in get("/v1/tenants")[1]["items"]} == {"red"}
    assert get("/v1/nodes?tenant=blue")[0] == 404
    json_body = ("-H", "Content-Type: application/json", "-d")
    assert curl(plane, "POST", "/v1/tokens", *json_body, '{"tenant":"blue"}', key=key)[0] == 404
    assert curl(plane, "POST", "/v1/tokens", "-H", "X-Tenant: blue", key=key)[0] == 404
    assert curl(plane, "POST", "/v1/tokens", *json_body, json.dumps({"node": blue.id}), key=key)[0] == 404
    status, _, body = curl(plane, "POST", "/v1/tokens", key=key)
    minted = json.loads(body)
    assert (status, minted["tenant"]) == (201, "red"), "an operator's only tenant is meant when none is named"
    evidence.token(minted["token"])
    assert plane.api("GET", f"/v1/tokens/{blue_token['token_id']}").json()["state"] == "unused"


def test_a_tenants_operator_does_not_read_others_in_the_trail(plane, tenants):
    """The audit trail is either not theirs at all, or shows nothing of another tenant."""
    key = make_key(plane, "viewer", "--tenant", "red")["key"]
    for path in ("/v1/audit?limit=1000", "/v1/audit/export"):
        status, _, body = curl(plane, "GET", path, key=key)
        assert status in (200, 403, 404), body
        assert tenants["blue"][0].id not in body
        assert tenants["blue"][1]["token_id"] not in body


def test_the_tenant_header_narrows(plane, tenants):
    """`X-Tenant` chooses among the tenants that one may see."""
    answer = plane.api("GET", "/v1/nodes?limit=1000", headers={"X-Tenant": "blue"})
    assert {n["tenant"] for n in answer.json()["items"]} == {"blue"}
