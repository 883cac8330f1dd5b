"""Operators: who they are, what they may do, and the tool they use."""

import json
import re
import subprocess

import pytest

import evidence
import native
from machine import PATIENCE, scratch, tool, until


def make_key(plane, role: str, *options) -> dict:
    made = plane.cli("operator", "key", "create", f"{role}-key", "--role", role, *options).json()
    evidence.token(made["key"])
    return made


def curl(plane, method: str, path: str, *options, key: str | None = None):
    """Status, headers and body as curl got them. The key is passed in a file, as anyone should."""
    arguments = ["curl", "-sS", "-i", "--http1.1", "-X", method, "--cacert", plane.dir / "ca" / "bundle.pem"]
    if key:
        config = scratch("curl") / "config"
        config.write_text(f'header = "Authorization: Bearer {key}"\n')
        arguments += ["-K", config]
    done = tool(*arguments, *options, f"{plane.url}{path}")
    head, _, body = done.out.replace("\r\n", "\n").partition("\n\n")
    status, *fields = head.split("\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    return int(status.split()[1]), headers, body


def code_of(body: str) -> str:
    return json.loads(body)["error"]["code"]


@pytest.fixture(scope="module")
def tenants(plane):
    """Two tenants with a node and a token in each."""
    found = {}
    for name in ("red", "blue"):
        assert plane.api("POST", "/v1/tenants", {"name": name}).status == 201
        node = native.enroll(plane, plane.token(tenant=name))
        found[name] = node, plane.mint(tenant=name)
    return found


def test_no_credential_is_401(plane):
    """On every route of the operator API; only health, OpenAPI and the like are open."""
    document = plane.https("GET", "/openapi.json").json()
    public = {"/healthz", "/readyz", "/openapi.json", "/v1/ca/crl"}
    for path, operations in document["paths"].items():
        for method in operations:
            if method not in ("get", "post", "put", "delete", "patch"):
                continue
            answer = plane.https(method.upper(), path.replace("{id}", "x").replace("{name}", "x"))
            if path in public:
                assert answer.status in (200, 503), (path, answer)
            elif path == "/metrics":
                assert answer.status in (401, 404), answer
            else:
                assert (method, path, answer.status, answer.code) == (method, path, 401, "unauthenticated")


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
    status, _, body = curl(plane, "POST", "/v1/tokens", "--cert", out / "cert.pem", "--key", out / "key.pem")
    assert status == 201, body
    evidence.token(json.loads(body)["token"])
    line = plane.audit("enrollment_token.created")[-1]
    assert line["actor"] == line["created_by"] == "user:dora"


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


def test_answers_carry_ids_and_time(plane):
    """X-Request-Id (the caller's own if well formed), X-Server-Time in milliseconds, Date."""
    _, headers, _ = curl(plane, "GET", "/healthz", "-H", "X-Request-Id: abc-123")
    assert headers["x-request-id"] == "abc-123"
    assert re.fullmatch(r"\d{13}", headers["x-server-time"]) and headers["date"]
    for bad in ("a b", "x" * 300):
        _, headers, _ = curl(plane, "GET", "/healthz", "-H", f"X-Request-Id: {bad}")
        assert headers["x-request-id"] not in (bad, "")
    status, headers, body = curl(plane, "GET", "/v1/nodes", "-H", "X-Request-Id: mine-1")
    assert status == 401 and headers["x-request-id"] == json.loads(body)["error"]["request_id"] == "mine-1"


def test_the_public_paths_are_public(plane):
    """Health, readiness and the description of the API need nothing; metrics do not leave the socket."""
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert curl(plane, "GET", path)[0] == 200
    document = json.loads(curl(plane, "GET", "/openapi.json")[2])
    assert document["openapi"].startswith("3.") and "/v1/tokens" in document["paths"]
    assert curl(plane, "GET", "/metrics")[0] in (401, 403, 404)
    assert plane.api("GET", "/metrics").status == 200
    assert json.loads(curl(plane, "GET", "/readyz")[2])["ready"] is True


def test_http2_serves_the_same_api(plane):
    """curl with HTTP/2 gets what HTTP/1.1 gets."""
    done = tool(
        "curl",
        "-sS",
        "--http2",
        "--cacert",
        plane.dir / "ca" / "bundle.pem",
        "-w",
        "%{http_version} %{http_code}",
        "-o",
        "/dev/null",
        f"{plane.url}/healthz",
    )
    assert done.out == "2 200"


def test_the_directory_is_closed_to_others(plane):
    """DIR 0750, keys 0700 with nothing readable in it, operator.sock 0660."""
    mode = lambda path: path.stat().st_mode & 0o777
    assert mode(plane.dir) == 0o750
    assert mode(plane.dir / "keys") == 0o700
    assert mode(plane.dir / "operator.sock") == 0o660
    assert all(mode(path) & 0o077 == 0 for path in (plane.dir / "keys").rglob("*") if path.is_file())
    assert mode(plane.dir / "ca" / "bundle.pem") & 0o444 == 0o444


def test_strangers_on_the_machine_are_refused_on_the_socket(plane):
    """Another user who could open the socket still is not an operator."""
    import os
    import stat

    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    script = (
        "import socket,sys\n"
        "s=socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1])\n"
        "s.sendall(b'GET /v1/nodes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "d=b''\n"
        "try:\n"
        "    while True:\n"
        "        c=s.recv(65536)\n"
        "        if not c: break\n"
        "        d+=c\n"
        "except ConnectionError: pass\n"
        "print(d.decode()[:300])\n"
    )
    socket_file = plane.dir / "operator.sock"
    doors = [plane.base, plane.dir]
    before = [stat.S_IMODE(path.stat().st_mode) for path in doors]
    for path, mode in zip(doors, before):
        path.chmod(mode | 0o005)
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
    try:
        done = subprocess.run(
            [python, "-c", script, str(socket_file)],
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        for path, mode in zip(doors, before):
            path.chmod(mode)
    assert " 200 " not in done.stdout.split("\n")[0], done.stdout
    assert '"items"' not in done.stdout


def test_events_are_told_as_they_happen(plane):
    """`/v1/events`: server-sent events, of the kind that /openapi.json describes."""
    import socket

    described = json.dumps(plane.https("GET", "/openapi.json").json()["paths"]["/v1/events"])
    with socket.socket(socket.AF_UNIX) as watch:
        watch.settimeout(PATIENCE)
        watch.connect(str(plane.dir / "operator.sock"))
        watch.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""

        def read(wanted: bytes) -> None:
            nonlocal received
            while wanted not in received:
                data = watch.recv(65536)
                assert data, "the stream ended"
                received += data

        read(b"\r\n\r\n")
        assert b"text/event-stream" in received
        node = native.enroll(plane)
        read(node.id.encode())
        read(b"}\n\n")
    events = [json.loads(line[5:]) for line in received.decode().split("\n") if line.startswith("data:")]
    assert any(event.get("node_id") == node.id for event in events), events
    if "audit line" in described:
        assert all({"seq", "event_type", "hash"} <= event.keys() for event in events), events[:1]
