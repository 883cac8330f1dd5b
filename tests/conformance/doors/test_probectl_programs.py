"""The probectl door as probectl's own programs read it: their names of fields, their header, the pin that they compare."""

import hashlib
import socket
import ssl

import pytest

import certs
import evidence
import probectl
import rolls
from machine import PATIENCE, tool, until
from operators import make_key
from plane import ControlPlane
from probectl import ask_enroll, enroll, mint, reasons, said, token

HEADERS = ("X-Tenant", "X-Probectl-Tenant")


@pytest.fixture(scope="module")
def plane(programs):
    with probectl.control_plane() as running:
        for name in ("red", "blue"):
            assert running.api("POST", "/v1/tenants", {"name": name}).status == 201
        yield running


def test_agents_have_both_sets_of_names(plane):
    """A list, a single agent and a changed one carry the document's names and those that its programs read."""
    enrolled, active = enroll(plane), enroll(plane, version="9.8.7")
    active.speak()
    revoked = enroll(plane)
    assert plane.api("POST", f"/v1/agents/{revoked.id}/revoke", {}).status == 200
    page = plane.api("GET", "/v1/agents?limit=2").json()
    assert page["items"] == page["agents"] and len(page["items"]) == 2
    assert page["next_cursor"] == page["next"] == page["items"][-1]["id"]
    page = plane.api("GET", "/v1/agents?limit=1000").json()
    assert page["next_cursor"] is None and page["next"] is None
    listed = {agent["id"]: agent for agent in page["items"]}
    for agent, status in ((enrolled, "enrolled"), (active, "online"), (revoked, "revoked")):
        for shown in (agent.shown(), listed[agent.id]):
            assert shown["id"] == shown["agent_id"] == agent.id
            assert shown["status"] == status and shown["state"] == {"online": "active"}.get(status, status)
            assert shown["agent_version"] == shown["version"]
            assert shown["last_seen_at"] == shown["last_seen"]
    shown = active.shown()
    assert shown["agent_version"] == "9.8.7" and shown["last_seen_at"]
    patched = plane.api("PATCH", f"/v1/agents/{active.id}", {"name": "edge"}).json()
    assert (patched["id"], patched["status"], patched["name"]) == (active.id, "online", "edge")


def by(plane, key, method: str, path: str, body=None, **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return plane.https(method, path, body, {"Authorization": f"Bearer {key}", **sent})


def test_the_header_of_its_programs_chooses_the_tenant(plane):
    """`X-Probectl-Tenant` means `X-Tenant` on every route of this door, and nothing on others."""
    agent = enroll(plane, mint(plane, {"X-Probectl-Tenant": "red"})["token"])
    assert agent.told["tenant_id"] == "red"
    for header in HEADERS:
        ids = [item["id"] for item in plane.api("GET", "/v1/agents", headers={header: "red"}).json()["items"]]
        assert agent.id in ids
        assert plane.api("GET", f"/v1/agents/{agent.id}", headers={header: "red"}).status == 200
        assert plane.api("GET", f"/v1/agents/{agent.id}", headers={header: "blue"}).status == 404
    body = {"plane": "flow"}
    registered = plane.api("POST", "/v1/collectors/register", body, {"X-Probectl-Tenant": "blue"})
    assert registered.status == 201 and registered.json()["tenant_id"] == "blue"
    elsewhere = plane.api("GET", "/v1/nodes?limit=1000", headers={"X-Probectl-Tenant": "blue"}).json()["items"]
    assert agent.id in {node["node_id"] for node in elsewhere}, "the operator API knows no such header"


def test_a_tenant_that_does_not_fit_the_credential_is_refused(plane):
    """An operator of one tenant, a token and a certificate: another tenant in the header is a refusal, never ignored."""
    red = make_key(plane, "operator", "--tenant", "red")["key"]
    agent = enroll(plane, mint(plane, {"X-Tenant": "red"})["token"])
    for header in ("X_Tenant", "X_Probectl_Tenant"):
        assert by(plane, red, "GET", f"/v1/agents/{agent.id}", **{header: "red"}).status == 200
        for method, path, body in (
            ("GET", "/v1/agents", None),
            ("GET", f"/v1/agents/{agent.id}", None),
            ("PATCH", f"/v1/agents/{agent.id}", {"name": "x"}),
            ("POST", f"/v1/agents/{agent.id}/revoke", {}),
            ("DELETE", f"/v1/agents/{agent.id}", None),
            ("POST", "/v1/agents/enroll-tokens", {}),
            ("POST", "/v1/collectors/register", {"plane": "flow"}),
        ):
            for other in ("blue", "nobody", "default"):
                answer = by(plane, red, method, path, body, **{header: other})
                assert answer.status in (403, 404), (header, other, method, path, answer)
            answer = by(plane, red, method, path, body, **{header: "no such/name"})
            assert (answer.status, answer.code) == (400, "bad_request"), (header, method, path, answer)
    assert agent.shown()["state"] == "enrolled"


def test_a_token_and_a_certificate_are_of_their_tenant_alone(plane):
    """Proves PROBE-26: a header with another tenant is refused like any bad credential, and costs nothing."""
    uniform = said(ask_enroll(plane, "pjt_" + "0" * 64))
    free, key = mint(plane, {"X-Tenant": "red"})["token"], certs.ec_key()
    for header in HEADERS:
        for other in ("blue", "default", "nobody"):
            assert said(ask_enroll(plane, free, headers={header: other})) == uniform, (header, other)
            answer = plane.https("POST", "/v1/collectors/register", {"token": free, "plane": "flow"}, {header: other})
            assert said(answer) == uniform, (header, other)
    assert "tenant_mismatch" in reasons(plane)
    agent = probectl.Agent(plane, ask_enroll(plane, free, certs.csr(key), {"X-Probectl-Tenant": "red"}), key)
    request = certs.good_csr()
    body = {"cert_pem": agent.cert, "csr_pem": request, "proof": probectl.proof(key, request)}
    for header in HEADERS:
        assert said(plane.https("POST", "/enroll/agent/rotate", body, {header: "blue"})) == uniform
    assert plane.https("POST", "/enroll/agent/rotate", body, {"X-Probectl-Tenant": "red"}).status == 200


def test_two_tenants_in_the_headers_are_a_bad_request(plane):
    """Both headers with different names: 400; with the same name: that tenant."""
    both = {"X-Tenant": "red", "X-Probectl-Tenant": "blue"}
    same = {"X-Tenant": "red", "X-Probectl-Tenant": "red"}
    for method, path, body in (
        ("GET", "/v1/agents", None),
        ("POST", "/v1/agents/enroll-tokens", {}),
        ("POST", "/v1/collectors/register", {"plane": "flow"}),
    ):
        answer = plane.api(method, path, body, both)
        assert (answer.status, answer.code) == (400, "bad_request"), (path, answer)
        assert plane.api(method, path, body, same).status in (200, 201), path
    answer = ask_enroll(plane, token(plane), headers=both)
    assert (answer.status, answer.code) == (400, "bad_request"), answer
    assert plane.api("GET", "/v1/nodes", headers=both).status == 200, "only this door has two names for it"


def presented(plane, name: str = "localhost") -> bytes:
    """The certificate that the listener shows, whoever signed it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as raw:
        with context.wrap_socket(raw, server_hostname=name) as tls:
            return tls.getpeercert(binary_form=True)


def pin(plane, name: str = "localhost") -> str:
    return hashlib.sha256(presented(plane, name)).hexdigest()


def brought(place, subject: str) -> None:
    """A server certificate from elsewhere, as an operator would bring it."""
    tool(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-keyout", place / "server.key", "-out", place / "server.crt", "-subj", f"/CN={subject}", "-days", "30"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"),
    )
    (place / "server.key").chmod(0o600)
    evidence.private_key("server", (place / "server.key").read_bytes())


@pytest.fixture
def with_own_certificate(place):
    """A control plane whose enlist.toml names a certificate and key of the operator's."""
    plane = ControlPlane(domain="probectl").found()
    brought(place, "first")
    file = plane.dir / "enlist.toml"
    files = f'server_cert = "{place}/server.crt"\nserver_key = "{place}/server.key"\n'
    file.write_text(file.read_text() + f"\n[tls]\n{files}")
    plane.start()
    yield plane
    plane.close()


def test_the_pin_is_that_of_the_certificate_which_is_presented(with_own_certificate, place):
    """Proves PROBE-22: also when the operator brought the server certificate, for every name, and after it was replaced."""
    plane = with_own_certificate
    given = hashlib.sha256(certs.der(certs.certificate((place / "server.crt").read_bytes()))).hexdigest()
    assert mint(plane)["server_cert_pin"] == given
    assert {pin(plane, name) for name in ("localhost", "elsewhere.example")} == {given}
    brought(place, "second")
    # Replaced on disk, but not yet presented: the pin is still what a client meets.
    assert mint(plane)["server_cert_pin"] == pin(plane) == given
    plane.restart()
    assert mint(plane)["server_cert_pin"] == pin(plane) != given


def test_the_pin_follows_a_roll(programs):
    """Proves PROBE-22: the server certificate that a roll makes is the one that is pinned from then on."""
    with probectl.control_plane() as plane:
        before = pin(plane)
        assert mint(plane)["server_cert_pin"] == before
        rolls.prepare(plane, "server")
        plane.cli("ca", "roll", "activate", "--force")
        until(lambda: pin(plane) != before, "the listener presents its next certificate")
        assert mint(plane)["server_cert_pin"] == pin(plane)


def test_the_command_line_prints_the_pin_from_any_machine(names, with_own_certificate, place):
    """Proves PROBE-22: `probectl-control enroll-token` prints the pin of the presented leaf, never the root's."""
    plane = with_own_certificate
    key = place / "api-key"
    key.write_text(make_key(plane, "operator")["key"])
    key.chmod(0o600)
    away = ("--server", f"https://localhost:{plane.port}", "--ca", place / "server.crt", "--api-key-file", key)
    for done in (
        names("probectl-control", "enroll-token", "-json", plane=plane),
        names("probectl-control", "enroll-token", "-json", *away),
    ):
        minted = done.json()
        evidence.token(minted["token"])
        assert minted["server_cert_pin"] == pin(plane) and done.out.count("server_cert_pin") == 1
        assert minted["agent_command"].endswith(f"--ca-pin {pin(plane)}")
    plain = names("probectl-control", "enroll-token", *away).out
    evidence.token(plain.split("pjt_")[1][:64])
    assert f"--ca-pin {pin(plane)}\n" in plain and plane.pin.removeprefix("sha256:") not in plain
