"""A web page in the browser of an operator whose certificate is in that browser: whatever it can make the browser send, nothing is
read and nothing changes. Programs go on as before."""

import json
import os
import re
import subprocess

import pytest

import certs
import native
from machine import scratch
from operators import make_key

PAGE = "https://evil.example"
PUBLIC = ("/healthz", "/readyz", "/openapi.json", "/v1/ca/crl")


@pytest.fixture(scope="module")
def admin(plane):
    """A platform-admin's certificate, as a browser holds it."""
    place = scratch("op") / "admin"
    plane.cli("operator", "add", "browsing", "--role", "platform-admin", "--out", place)
    return place / "cert.pem", place / "key.pem"


@pytest.fixture
def node(plane):
    made = native.enroll(plane)
    made.confirm()
    return made


def sent(plane, admin, method: str, path: str, body=None, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return plane.https(method, path, body, named, certificate=admin)


def test_a_body_without_a_content_type_changes_nothing(plane, admin, node):
    """`fetch(..., {mode: "no-cors", body: new Blob([json])})` names no type and needs no leave."""
    acts = [
        (f"/v1/nodes/{node.id}/revoke", b'{"reason":"x"}'),
        ("/v1/operators", json.dumps({"name": "mallory", "role": "platform-admin", "csr": certs.good_csr()}).encode()),
        ("/v1/operator-keys", b'{"name":"mallory","role":"platform-admin"}'),
        ("/v1/tokens", b"{}"),
        ("/v1/ca/rewrap", b'{"kek":"file:/dev/shm/enlist-attack-kek"}'),
    ]
    lines = len(plane.audit())
    for path, body in acts:
        answer = sent(plane, admin, "POST", path, body)
        assert (path, answer.status, answer.code) == (path, 415, "unsupported_media_type"), answer
    assert len(plane.audit()) <= lines + 1, "the first use of the certificate, at most"
    assert plane.node(node.id)["state"] == "active"
    assert not os.path.exists("/dev/shm/enlist-attack-kek")


def test_an_empty_post_of_another_page_changes_nothing(plane, admin, node):
    """Such a page can send an empty POST without a type; the browser says in one of two headers whose page it is."""
    lines = len(plane.audit())
    for act in ("revoke", "quarantine", "drain"):
        for headers in ({"Origin": PAGE}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
            answer = sent(plane, admin, "POST", f"/v1/nodes/{node.id}/{act}", b"", **headers)
            assert (act, answer.status, answer.code) == (act, 403, "cross_site"), answer
    assert len(plane.audit()) == lines and plane.node(node.id)["state"] == "active"


def test_a_program_posts_without_a_body_and_without_a_type(plane, admin, node):
    """As curl and clients written from the documents do, with an operator's certificate, over HTTP/1.1 and HTTP/2, on all four APIs."""
    reach = ("--cacert", plane.dir / "ca" / "bundle.pem", "--cert", admin[0], "--key", admin[1])

    def post(path: str, *more) -> int:
        command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", *map(str, (*reach, *more)), plane.url + path]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)

    for version in ("--http1.1", "--http2"):
        assert post(f"/v1/nodes/{node.id}/drain", version) == 200
        assert post(f"/v1/nodes/{node.id}/undrain", version) == 200
        assert post("/v1/hosts/enroll-tokens", version) == 201
        assert post("/v1/agents/enroll-tokens", version) == 201
        for api in ("hosts", "agents", "workers"):
            left = native.enroll(plane)
            assert post(f"/v1/{api}/{left.id}/revoke", version) == 200, api
        body = ("--data-binary", "{}", "-H", "Content-Type:")
        assert post("/v1/tokens", version, *body) == 415, "a body has a type"
        assert post("/v1/agents/enroll-tokens", version, *body) == 400, "the document of probectl has no 415"


def changing(plane) -> list:
    """Every path that changes something, with ids that lead nowhere."""
    served = plane.api("GET", "/openapi.json").json()["paths"]
    found = [(method.upper(), re.sub(r"{[^}]*}", "none", path)) for path, told in served.items() for method in told]
    return sorted(found)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": PAGE},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": PAGE, "Sec_Fetch_Site": "same-origin"},
    ],
    ids=str,
)
def test_what_a_browser_says_of_another_site_is_refused_everywhere(plane, admin, headers):
    """On every path, reading and the nodes' own included; with an API key in place of the certificate too."""
    for method, path in changing(plane):
        answer = sent(plane, admin, method, path, {} if method != "GET" else None, **headers)
        assert (method, path, answer.status) == (method, path, 403), answer
        assert answer.headers.get("access-control-allow-origin") is None
    key = make_key(plane, "viewer")["key"]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = plane.https("GET", "/v1/nodes", None, {"Authorization": f"Bearer {key}", **named})
    assert (answer.status, answer.code) == (403, "cross_site")
    assert plane.api("GET", "/v1/nodes", None, named).status == 403, "nor on the socket"


def test_a_preflight_is_never_answered_with_leave(plane, admin):
    """So JSON, DELETE, PUT and every header of one's own stay out of a page's reach."""
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    for path in ("/v1/nodes", "/v1/tokens", "/v1/ca/rewrap", "/healthz", "/enlist.agent.v1.Agent/Confirm"):
        for origin in ({"Origin": PAGE}, {"Origin": plane.url}, {}):
            answer = sent(plane, admin, "OPTIONS", path, **asked, **origin)
            assert answer.status >= 400, answer
            assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def test_other_ways_of_a_browser_are_closed(plane, admin, node):
    """WebSocket, gRPC-Web, and the bytes of a gRPC call by another name: with a node's certificate as well."""
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Key": "x", "Sec_WebSocket_Version": "13"}
    assert sent(plane, admin, "GET", "/v1/events", **upgrade).status == 400
    call = b"\x00\x00\x00\x00\x00"
    for kind in (None, "text/plain", "application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"):
        named = {"Content_Type": kind} if kind else {}
        for files in (admin, node.files):
            answer = sent(plane, files, "POST", "/enlist.agent.v1.Agent/Confirm", call, **named)
            assert (kind, answer.status) == (kind, 415), answer


def test_what_is_not_public_is_kept_nowhere(plane, admin):
    """Nor is any answer taken for something else than it says."""
    for path in ("/v1/nodes", "/v1/tokens", "/v1/ca", "/v1/ca/bundle", "/v1/policy", "/v1/audit", "/v1/none", "/metrics"):
        answer = sent(plane, admin, "GET", path)
        kept = (answer.headers.get("cache-control"), answer.headers.get("x-content-type-options"))
        assert (path, *kept) == (path, "no-store", "nosniff")
    for path in PUBLIC:
        answer = plane.https("GET", path)
        assert answer.status == 200 and answer.headers.get("cache-control") != "no-store", path
        assert answer.headers.get("x-content-type-options") == "nosniff", path


def test_programs_go_on(plane, admin, node):
    """The own page, JSON with a certificate, an empty POST with an API key or on the socket, DELETE without a type; curl."""
    own = {"Origin": plane.url, "Sec_Fetch_Site": "same-origin"}
    assert sent(plane, admin, "GET", "/v1/nodes", **own).status == 200
    assert sent(plane, admin, "POST", "/v1/tokens", {}, **own).status == 201
    assert sent(plane, admin, "POST", f"/v1/nodes/{node.id}/drain", {}).status == 200
    typed = sent(plane, admin, "POST", f"/v1/nodes/{node.id}/undrain", b"", Content_Type="application/json")
    assert typed.status == 200, typed
    key = make_key(plane, "operator")["key"]
    bearer = {"Authorization": f"Bearer {key}"}
    assert plane.https("POST", f"/v1/nodes/{node.id}/drain", None, bearer).status == 200
    assert plane.https("POST", "/v1/tokens", b"{}", bearer).status == 415, "a body has a type"
    assert plane.api("POST", f"/v1/nodes/{node.id}/undrain").status == 200
    token = plane.mint()["token_id"]
    assert sent(plane, admin, "DELETE", f"/v1/tokens/{token}").status == 204
    reach = ("--cacert", plane.dir / "ca" / "bundle.pem", "--cert", admin[0], "--key", admin[1])
    json_body = ("-H", "Content-Type: application/json", "-d", "{}")
    command = ["curl", "-sS", *map(str, reach), *json_body, f"{plane.url}/v1/nodes/{node.id}/drain"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["draining"] is True


def test_the_key_encryption_key_is_changed_on_the_machine_alone(plane_of_its_own):
    """From afar not even a platform-admin names files of the control plane's machine. On the socket it works, and warns where
    the file that it makes would be gone after a restart."""
    plane = plane_of_its_own
    place = scratch("op") / "admin"
    plane.cli("operator", "add", "far", "--role", "platform-admin", "--out", place)
    files, kek = (place / "cert.pem", place / "key.pem"), scratch("kek") / "next"
    answer = plane.https("POST", "/v1/ca/rewrap", {"kek": f"file:{kek}"}, certificate=files)
    assert (answer.status, answer.code) == (403, "local_only"), answer
    key = make_key(plane, "platform-admin")["key"]
    answer = plane.https("POST", "/v1/ca/rewrap", {"kek": f"file:{kek}"}, {"Authorization": f"Bearer {key}"})
    assert (answer.status, answer.code) == (403, "local_only"), answer
    assert not kek.exists()
    reach = ("--server", plane.url, "--cert", files[0], "--key", files[1], "--ca", place / "ca.pem")
    from machine import ENLIST, run

    done = run(ENLIST, "ca", "rewrap", "--kek", f"file:{kek}", "--json", *reach)
    assert done.code == 3 and done.error()["code"] == "local_only", done
    volatile = f"/dev/shm/enlist-kek-{os.getpid()}"
    try:
        done = plane.cli("ca", "rewrap", "--kek", f"file:{volatile}").json()
        (warning,) = done["warnings"]
        assert "tmpfs" in warning and volatile in warning
        done = plane.cli("ca", "rewrap", "--kek", f"file:{kek}").json()
        assert done["warnings"] == [] or str(kek).startswith("/dev/shm"), done
    finally:
        if os.path.exists(volatile):
            os.unlink(volatile)
    plane.kek_file = kek
    plane.restart()
    assert plane.token()
