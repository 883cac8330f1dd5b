"""Operators: who they are, what they may do, and the tool they use."""

import json
import re

import pytest

import evidence
import native
from machine import scratch, until
from operators import code_of, curl, make_key


def test_no_credential_is_401(plane):
    """On every route of the operator API and of the doors; only health, OpenAPI and the like are open, and what is
    redeemed by what its body holds."""
    document = plane.https("GET", "/openapi.json").json()
    public = {"/healthz", "/readyz", "/openapi.json", "/v1/ca/crl", "/v1/ca/trust"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method not in ("get", "post", "put", "delete", "patch"):
                continue
            answer = plane.https(method.upper(), path.replace("{id}", "x").replace("{name}", "x"))
            if path in public:
                assert answer.status in (200, 503), (path, answer)
            elif operation["security"] == [{}]:
                assert (method, path, answer.status) == (method, path, 400)
            elif path == "/metrics":
                assert answer.status in (401, 404), answer
            else:
                assert (method, path, answer.status) == (method, path, 401)
                words = answer.json()["error"]
                code = words.split(":")[0] if isinstance(words, str) else words["code"]
                assert code in ("unauthenticated", "unauthorized"), answer


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer ", "Basic eDp5", "Bearer " + "x" * 5000, "bearer"])
def test_a_made_up_credential_is_401(plane, header):
    """Whatever its shape."""
    answer = plane.https("GET", "/v1/nodes", headers={"Authorization": header})
    assert (answer.status, answer.code) == (401, "unauthenticated")


def test_a_nodes_certificate_is_no_operators(plane):
    """A node may not read the registry, mint or make itself an operator."""
    node = native.enroll(plane)
    node.confirm()
    for method, path, body in [
        ("GET", "/v1/nodes", None),
        ("POST", "/v1/tokens", {}),
        ("GET", "/v1/audit", None),
        ("POST", "/v1/operators", {"name": "x", "role": "platform-admin"}),
        ("PUT", "/v1/policy", {"key": "a", "value": "b"}),
    ]:
        answer = plane.https(method, path, body, certificate=node.files)
        assert answer.status in (401, 403), (method, path, answer)


def test_an_api_key_may_do_what_its_role_may(plane):
    """viewer reads, operator mints, platform-admin rules."""
    keys = {role: make_key(plane, role)["key"] for role in ("viewer", "operator", "platform-admin")}
    acts = [
        (("GET", "/v1/nodes"), {"viewer": 200, "operator": 200, "platform-admin": 200}),
        (
            ("POST", "/v1/tokens", "-d", "{}", "-H", "Content-Type: application/json"),
            {"viewer": 403, "operator": 201, "platform-admin": 201},
        ),
        (
            (
                "PUT",
                "/v1/policy",
                "-d",
                '{"key":"overlay.cooldown","value":"31d"}',
                "-H",
                "Content-Type: application/json",
            ),
            {"viewer": 403, "operator": 403, "platform-admin": 200},
        ),
        (("GET", "/v1/ca"), {"viewer": 200, "operator": 200, "platform-admin": 200}),
    ]
    for act, expected in acts:
        for role, status in expected.items():
            got, _, body = curl(plane, *act, key=keys[role])
            assert (act[:2], role, got) == (act[:2], role, status), body
            if status == 403:
                assert code_of(body) == "forbidden"
            for token in re.findall(r"enroll_[A-Za-z0-9_-]{43}", body):
                evidence.token(token)


def test_minting_needs_an_operator_and_is_signed_by_name(plane):
    """A token's record and audit line say who made it: `key:ID` for an API key, `user:NAME` for a certificate."""
    made = make_key(plane, "operator")
    status, _, body = curl(plane, "POST", "/v1/tokens", key=made["key"])
    assert status == 201
    evidence.token(json.loads(body)["token"])
    line = plane.audit("enrollment_token.created")[-1]
    assert line["actor"] == line["created_by"] == f"key:{made['key_id']}"
    out = scratch("op") / "o"
    plane.cli("operator", "add", "dora", "--role", "operator", "--out", out)
    evidence.private_key("operator", (out / "key.pem").read_bytes())
    identity = ("--cert", out / "cert.pem", "--key", out / "key.pem")
    typed = ("-H", "Content-Type: application/json")
    status, _, body = curl(plane, "POST", "/v1/tokens", *identity, *typed)
    assert status == 201, body
    evidence.token(json.loads(body)["token"])
    line = plane.audit("enrollment_token.created")[-1]
    assert line["actor"] == line["created_by"] == "user:dora"


def test_a_revoked_key_is_401_at_once(plane):
    """And revoking twice is no error and no second line."""
    made = make_key(plane, "viewer")
    assert curl(plane, "GET", "/v1/nodes", key=made["key"])[0] == 200
    plane.cli("operator", "key", "revoke", made["key_id"])
    status, _, body = curl(plane, "GET", "/v1/nodes", key=made["key"])
    assert (status, code_of(body)) == (401, "unauthenticated")
    lines = [line for line in plane.audit("operator_key.revoked") if line["key_id"] == made["key_id"]]
    assert len(lines) == 1


def test_a_key_ends_when_it_said_it_would(plane):
    """401 after its time."""
    answer = plane.api("POST", "/v1/operator-keys", {"name": "short", "role": "viewer", "expires": "3s"})
    if answer.status == 400:
        limits = re.search(r"\d+[smhd]", answer.json()["error"]["message"])
        answer = plane.api("POST", "/v1/operator-keys", {"name": "short", "role": "viewer", "expires": limits.group()})
    key = evidence.token(answer.json()["key"])
    until(lambda: curl(plane, "GET", "/v1/nodes", key=key)[0] == 401, "the key expired", 90)


def test_an_operators_certificate_works_until_the_operator_is_removed(plane):
    """Then it is refused, on the open connection and in the next handshake."""
    out = scratch("op") / "o"
    plane.cli("operator", "add", "erin", "--role", "viewer", "--out", out)
    evidence.private_key("operator", (out / "key.pem").read_bytes())
    files = out / "cert.pem", out / "key.pem"
    assert plane.https("GET", "/v1/nodes", certificate=files).status == 200
    assert plane.https("POST", "/v1/tokens", {}, certificate=files).status == 403
    import http.client

    open_connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=plane.context(files), timeout=30)
    open_connection.request("GET", "/v1/nodes")
    assert open_connection.getresponse().read()
    plane.cli("operator", "remove", "erin")
    try:
        open_connection.request("GET", "/v1/nodes")
        assert open_connection.getresponse().status in (401, 403)
    except (http.client.HTTPException, OSError):
        pass
    open_connection.close()
    assert native.alert(plane, files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    assert "erin" not in {o["name"] for o in plane.cli("operator", "list").lines()}


def test_the_last_operator_may_go_because_the_socket_remains(plane):
    """Whoever is root on the machine can always make a new one."""
    for operator in plane.cli("operator", "list").lines():
        plane.cli("operator", "remove", operator["name"])
    assert plane.cli("operator", "list").lines() == []
    assert plane.cli("node", "list").code == 0
