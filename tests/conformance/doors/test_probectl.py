"""The probectl door: join tokens, enrollment, and what a refusal says. D01, D02, D03, D08."""

import concurrent.futures
import re
import uuid

import pytest

import certs
import evidence
import native
import probectl
from certs import ec, x509
from machine import until
from operators import make_key
from probectl import ask_enroll, enroll, mint, reasons, said, seconds_from_now, token

YEAR = 365 * 86400


@pytest.fixture(scope="module")
def plane(programs):
    with probectl.control_plane() as running:
        yield running


def bearer(key: str, **more) -> dict:
    return {"Authorization": f"Bearer {key}", **more}


def test_an_agent_is_let_in_with_a_join_token(plane):
    """Proves PROBE-11, PROBE-12, PROBE-13, PROBE-15, PROBE-16."""
    agent = enroll(plane, hostname="edge-1.example", version="0.9.1")
    told = agent.told
    assert set(told) == {"cert_pem", "ca_bundle", "spiffe_id", "tenant_id", "agent_id", "serial", "not_after"}
    assert told["tenant_id"] == "default"
    drawn = uuid.UUID(agent.id)
    assert (str(drawn), drawn.version, drawn.variant) == (agent.id, 4, uuid.RFC_4122)
    assert told["spiffe_id"] == f"spiffe://probectl/tenant/default/agent/{agent.id}"
    leaf, intermediate = certs.certificates(agent.cert)
    assert certs.uris(leaf) == [told["spiffe_id"]]
    assert len(list(certs.names(leaf))) == 1
    assert re.fullmatch(r"[1-9a-f][0-9a-f]*", told["serial"]) and certs.serial(leaf) == told["serial"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", told["not_after"])
    assert abs(seconds_from_now(told["not_after"]) - 86400) < 300
    assert abs(certs.seconds(leaf) - 86400) <= 60
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certs.public_der(leaf.public_key()) == certs.public_der(agent.key)
    assert certs.verifies(certs.pem(leaf), told["ca_bundle"].encode(), "-purpose", "sslclient")
    bundle = [certs.fingerprint(cert) for cert in certs.certificates(told["ca_bundle"])]
    root = certs.certificate(plane.bundle)
    _, servers, *_ = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    assert bundle == [certs.fingerprint(one) for one in (intermediate, servers, root)]
    # On record at once, and let in at once.
    shown = agent.shown()
    assert (shown["state"], shown["serial"], shown["not_after"]) == ("enrolled", agent.serial, told["not_after"])
    assert (shown["hostname"], shown["version"]) == ("edge-1.example", "0.9.1")
    assert native.alert(plane, agent.files) is None
    agent.speak()
    assert agent.shown()["state"] == "active"


def test_the_hierarchy_is_the_documents(plane):
    """Proves PROBE-09, PROBE-10. The command that makes it is proven in test_probectl_cli.py."""
    agent = enroll(plane)
    _, intermediate = certs.certificates(agent.cert)
    root = certs.certificate(plane.bundle)
    for cert, length, years in ((root, 1, 10), (intermediate, 0, 1)):
        constraints = cert.extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.critical and constraints.value.ca and constraints.value.path_length == length
        usage = cert.extensions.get_extension_for_class(x509.KeyUsage).value
        assert usage.key_cert_sign and not usage.digital_signature
        assert isinstance(cert.public_key().curve, ec.SECP256R1)
        assert abs(certs.seconds(cert) - years * YEAR) < 5 * 86400
    assert intermediate.issuer == root.subject and root.issuer == root.subject
    root_key = plane.founded["root_key_pem"]
    assert "PRIVATE KEY" in root_key
    body = "".join(root_key.split("\n")[1:3]).encode()
    for file in plane.dir.rglob("*"):
        if file.is_file():
            assert body[:40] not in file.read_bytes(), f"the root key is in {file}"


def test_a_token_is_minted_by_operators_of_the_tenant_and_audited(plane):
    """Proves PROBE-02, PROBE-03, PROBE-06, PROBE-25. The command is proven in test_probectl_cli.py."""
    key = make_key(plane, "operator")
    answer = plane.https("POST", "/v1/agents/enroll-tokens", {"name": "Edge 7"}, bearer(key["key"]))
    assert answer.status == 201, answer
    minted = answer.json()
    evidence.token(minted["token"])
    assert set(minted) == {"token", "id", "tenant_id", "expires_at", "server_cert_pin"}
    assert re.fullmatch(r"pjt_[0-9a-f]{64}", minted["token"])
    assert abs(seconds_from_now(minted["expires_at"]) - 3600) < 120
    line = plane.audit("enrollment_token.created")[-1]
    assert (line["token_id"], line["actor"], line["name"]) == (minted["id"], f"key:{key['key_id']}", "Edge 7")
    assert seconds_from_now(line["expires_at"]) == pytest.approx(seconds_from_now(minted["expires_at"]), abs=1)
    assert token(plane) != token(plane)
    # Shown once: neither the value nor its bytes are anywhere in the registry or on disk.
    listed = plane.api("GET", "/v1/tokens?all=true&limit=1000").body + plane.api("GET", "/v1/audit?limit=1000").body
    secret = minted["token"].removeprefix("pjt_")
    for text in (secret.encode(), bytes.fromhex(secret)):
        assert text not in listed
        assert not any(text in file.read_bytes() for file in plane.dir.rglob("*") if file.is_file())
    # Its issuance is on record with where it came from.
    agent = enroll(plane, minted["token"])
    assert agent.shown()["name"] == "Edge 7"
    line = plane.audit("host.enrolled")[-1]
    assert (line["token_id"], line["cert_serial"], line["spiffe_id"]) == (
        minted["id"],
        agent.serial,
        agent.told["spiffe_id"],
    )
    assert line["mtls_cert_fingerprint"] == "SHA256:" + certs.fingerprint(agent.leaf)
    assert seconds_from_now(line["not_after"]) == pytest.approx(seconds_from_now(agent.told["not_after"]), abs=1)


def test_who_may_mint(plane):
    """Proves PROBE-02: `agent.write` is the role operator."""
    agent = enroll(plane)
    viewer = make_key(plane, "viewer")["key"]
    path = "/v1/agents/enroll-tokens"
    assert plane.https("POST", path, {}).status == 401
    refused = plane.https("POST", path, {}, bearer(viewer))
    assert (refused.status, refused.code) == (403, "forbidden")
    assert plane.https("POST", path, {}, certificate=agent.files).status == 403


def test_the_pin_of_the_servers_certificate_comes_with_the_token(plane):
    """Proves PROBE-22 as far as minting goes: hex of the SHA-256 of what the listener presents."""
    import hashlib
    import socket

    with socket.create_connection(("127.0.0.1", plane.port)) as raw:
        with plane.context().wrap_socket(raw, server_hostname="127.0.0.1") as tls:
            presented = tls.getpeercert(binary_form=True)
    assert mint(plane)["server_cert_pin"] == hashlib.sha256(presented).hexdigest()


def test_a_token_belongs_to_a_tenant_and_may_be_for_one_agent(plane):
    """Proves PROBE-04, PROBE-26: the tenant comes from the token alone."""
    assert plane.api("POST", "/v1/tenants", {"name": "acme"}).status == 201
    pinned = mint(plane, {"X-Tenant": "acme"}, agent_id="edge-7")
    assert pinned["tenant_id"] == "acme"
    agent = enroll(plane, pinned["token"])
    assert (agent.id, agent.told["tenant_id"]) == ("edge-7", "acme")
    assert certs.uris(agent.leaf) == ["spiffe://probectl/tenant/acme/agent/edge-7"]
    # An agent cannot ask for another one.
    free = token(plane)
    assert ask_enroll(plane, free, headers={"X-Tenant": "acme"}).status == 401
    assert enroll(plane, free).told["tenant_id"] == "default"
    for unknown in ({"X-Tenant": "nobody"},):
        answer = plane.api("POST", "/v1/agents/enroll-tokens", {}, unknown)
        assert (answer.status, answer.code) == (404, "not_found")
    answer = plane.api("POST", "/v1/agents/enroll-tokens", {"agent_id": "edge-7"})
    assert (answer.status, answer.code) == (404, "not_found"), "a pin on another tenant's node"


@pytest.mark.parametrize("claim", ["tenant_id", "tenant", "agent_id", "spiffe_id", "node"])
def test_a_body_that_claims_an_identity_is_refused(plane, claim):
    """Proves PROBE-01, PROBE-26: no such field exists, and the token stays good."""
    free = token(plane)
    answer = ask_enroll(plane, free, **{claim: "acme"})
    assert (answer.status, answer.code) == (400, "bad_request")
    agent = enroll(plane, free)
    answer = agent.ask_rotate(certs.good_csr(), **{claim: "acme"})
    assert (answer.status, answer.code) == (400, "bad_request")


def test_names_in_the_request_are_ignored(plane):
    """Proves PROBE-01, PROBE-19: who an agent is, is not for its request to say."""
    key = certs.ec_key()
    wanted = x509.SubjectAlternativeName(
        [x509.UniformResourceIdentifier("spiffe://probectl/tenant/acme/agent/root"), x509.DNSName("evil.example")]
    )
    answer = ask_enroll(plane, token(plane), certs.csr(key, "operator:root", extensions=(wanted,)))
    agent = probectl.Agent(plane, answer, key)
    assert certs.uris(agent.leaf) == [f"spiffe://probectl/tenant/default/agent/{agent.id}"]
    assert len(list(certs.names(agent.leaf))) == 1
    common = [name.value for name in agent.leaf.subject]
    assert "operator:root" not in common


def test_a_token_is_used_once_however_many_ask_at_once(plane):
    """Proves PROBE-05, PROBE-27: a used token is inert."""
    free = token(plane)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask_enroll(plane, free), range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 7
    winner = next(answer.json() for answer in answers if answer.status == 200)
    used = [item for item in plane.items("/v1/tokens?all=true&limit=1000") if item["used_by"] == winner["agent_id"]]
    assert len(used) == 1
    assert ask_enroll(plane, free).status == 401


def test_a_lost_answer_is_given_again(plane):
    """D30 on this door: the same key and the same Idempotency-Key, before anyone has used the certificate."""
    free, key = token(plane), certs.ec_key()
    again = {"Idempotency-Key": "boot-1"}
    first = ask_enroll(plane, free, certs.csr(key), again)
    second = ask_enroll(plane, free, certs.csr(key), again)
    assert first.status == 200 and first.body == second.body
    assert ask_enroll(plane, free, certs.csr(certs.ec_key()), again).status == 401
    assert ask_enroll(plane, free, certs.csr(key)).status == 401
    answer = ask_enroll(plane, free, certs.csr(key), {"Idempotency-Key": "a b"})
    assert (answer.status, answer.code) == (400, "bad_request")


@pytest.mark.parametrize("attestor", ["aws-iid", "gcp", "oidc", "tpm", "JOIN-TOKEN", " "])
def test_only_the_join_token_attests(plane, attestor):
    """Proves PROBE-08."""
    free = token(plane)
    answer = ask_enroll(plane, free, attestor=attestor)
    assert (answer.status, answer.code) == (400, "bad_request")
    accepted = {"attestor": "join-token"} if attestor == "gcp" else {"attestor": ""}
    assert ask_enroll(plane, free, **accepted).status == 200


def test_every_refusal_of_a_credential_is_one_and_the_same(plane):
    """Proves PROBE-05, PROBE-07, PROBE-24, PROBE-27, D02: the caller learns nothing, the trail has the reason."""
    short = token(plane, ttl_seconds=10)
    used, voided, lost = token(plane), mint(plane), enroll(plane)
    agent = enroll(plane, used)
    assert plane.api("DELETE", f"/v1/tokens/{voided['id']}").status == 204
    pinned = token(plane, agent_id=lost.id)
    assert plane.api("POST", f"/v1/agents/{lost.id}/revoke").status == 200
    foreign = certs.csr(certs.ec_key())
    causes = {
        "unknown": ask_enroll(plane, "pjt_" + "0" * 64),
        "empty": ask_enroll(plane, ""),
        "malformed": ask_enroll(plane, "no token at all"),
        "too long": ask_enroll(plane, "a" * 300),
        "not ASCII": ask_enroll(plane, "pjt_ü"),
        "used": ask_enroll(plane, used),
        "voided": ask_enroll(plane, voided["token"]),
        "of a revoked agent": ask_enroll(plane, pinned),
        "with a bad request": ask_enroll(plane, "pjt_" + "0" * 64, "no request"),
        "used, with a bad request": ask_enroll(plane, used, "no request"),
        "used, asked again with another key": ask_enroll(plane, used, "no request", {"Idempotency-Key": "guess"}),
        "proof of another key": agent.ask_rotate(foreign, signer=certs.ec_key()),
        "no certificate": probectl.ask_rotate(plane, "x", foreign, "00"),
        "revoked certificate": lost.ask_rotate(foreign),
        "collector": plane.https("POST", "/v1/collectors/register", {"token": used, "plane": "flow"}),
        "nobody": plane.https("GET", "/v1/agents"),
    }
    until(lambda: ask_enroll(plane, short, "no request").status == 401, "the token has expired")
    causes["expired"] = ask_enroll(plane, short)
    answer = plane.api("PUT", "/v1/policy", {"key": "attestors", "value": "hardware", "confirm": "attestors"})
    assert answer.status == 200, answer
    causes["not accepted by policy"] = ask_enroll(plane, token(plane))
    plane.policy("attestors", "join-token,recovery-token")
    told = {cause: said(answer) for cause, answer in causes.items()}
    expected = told["unknown"]
    assert {cause: one for cause, one in told.items() if one != expected} == {}
    assert expected[:2] == (401, b'{"error":{"code":"unauthorized","message":"not authorized"}}')
    for answer in causes.values():
        assert answer.headers["X-Request-Id"]
    known = {"token_invalid", "token_malformed", "token_used", "token_revoked", "token_expired", "node_revoked"}
    known |= {"attestor_not_allowed", "proof_invalid", "certificate_malformed", "certificate_revoked"}
    assert known <= reasons(plane), reasons(plane)


def test_the_policys_own_limit_is_no_refusal_of_a_credential(plane):
    """PROBE-24: `enroll.max_per_minute` is told apart, and leaves the token good."""
    free = [token(plane) for _ in range(3)]
    plane.policy("enroll.max_per_minute", "1")
    try:
        answers = [ask_enroll(plane, one) for one in free]
    finally:
        plane.policy("enroll.max_per_minute", "0")
    limited = [answer for answer in answers if answer.status != 200]
    assert limited and all((answer.status, answer.code) == (429, "rate_limited") for answer in limited)
    assert limited[0].headers["Retry-After"].isdigit()
    assert ask_enroll(plane, free[-1]).status == 200


BAD_REQUESTS = ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]


@pytest.mark.parametrize("csr", [*BAD_REQUESTS, certs.spoiled(certs.good_csr()), certs.good_csr() * 2])
def test_a_bad_request_leaves_the_token_good(plane, csr):
    """Proves PROBE-16, PROBE-24: 400, and only after the token was found good."""
    free = token(plane)
    answer = plane.https("POST", "/enroll/agent", {"token": free, "csr_pem": csr})
    assert (answer.status, answer.code) == (400, "bad_request"), answer
    assert answer.json()["error"]["request_id"] == answer.headers["X-Request-Id"]
    assert plane.https("POST", "/enroll/agent", {"token": "pjt_x", "csr_pem": csr}).status == 401
    assert ask_enroll(plane, free).status == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"token":"x"}', b'{"csr_pem":"x"}', b'{"token":1,"csr_pem":"x"}', b"\xff\xfe"],
)
def test_what_is_no_request_is_400(plane, body):
    """PROBE-15: strict JSON, in the document's words."""
    for path in ("/enroll/agent", "/enroll/agent/rotate"):
        answer = plane.https("POST", path, body, {"Content-Type": "application/json"})
        assert (answer.status, answer.code) == (400, "bad_request"), (path, answer)
        assert set(answer.json()["error"]) == {"code", "message", "request_id"}


def test_the_documents_words_for_other_failures(plane):
    """PROBE-15: 413, 404, 405 and 400 for another kind of body."""
    answer = plane.https("POST", "/enroll/agent", b"{" + b" " * 70_000, {"Content-Type": "application/json"})
    assert (answer.status, answer.code) == (413, "too_large")
    answer = plane.https("POST", "/enroll/agent", b"token=x", {"Content-Type": "text/plain"})
    assert (answer.status, answer.code) == (400, "bad_request")
    answer = plane.https("GET", "/enroll/agent")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    answer = plane.https("POST", "/enroll/agent/nothing", {})
    assert (answer.status, answer.code) == (404, "not_found")
    for fields in ({"hostname": "two words"}, {"version": "x" * 200}, {"hostname": 7}):
        answer = ask_enroll(plane, token(plane), **fields)
        assert (answer.status, answer.code) == (400, "bad_request"), fields


@pytest.mark.parametrize("fields", [{"ttl_seconds": 0}, {"ttl_seconds": 9}, {"ttl_seconds": 86401}, {"ttl_seconds": -1}])
def test_a_tokens_life_has_limits(plane, fields):
    """Proves PROBE-06, PROBE-27: an unused token is bounded."""
    answer = plane.api("POST", "/v1/agents/enroll-tokens", fields)
    assert (answer.status, answer.code) == (400, "bad_request")
    longest = mint(plane, ttl_seconds=86400)
    assert abs(seconds_from_now(longest["expires_at"]) - 86400) < 120


def test_bad_words_at_minting_are_400(plane):
    for fields in ({"agent_id": "a b"}, {"agent_id": ""}, {"name": "x" * 129}, {"name": "\n"}, {"tenant_id": "acme"}):
        answer = plane.api("POST", "/v1/agents/enroll-tokens", fields)
        assert (answer.status, answer.code) == (400, "bad_request"), fields


def test_strangers_are_throttled_and_agents_are_not(programs):
    """Proves PROBE-24: failures are limited like those of any login, in the document's shape."""
    from plane import ControlPlane

    with ControlPlane(domain="probectl") as limited:
        free = token(limited)
        answers = [ask_enroll(limited, "pjt_" + "0" * 64, "x") for _ in range(130)]
        assert answers[0].status == 401
        last = answers[-1]
        assert (last.status, last.code) == (429, "rate_limited")
        assert int(last.headers["Retry-After"]) > 0
        assert 90 <= [answer.status for answer in answers].count(401) <= 110
        agent = enroll(limited, free)
        assert agent.rotated().id == agent.id
        assert not [line for line in limited.audit("host.enrolled") if line["host_id"] != agent.id]


def test_a_door_that_is_not_served_is_not_there(programs):
    """D23: 404 for every path of it."""
    from plane import ControlPlane

    with ControlPlane(domain="probectl", init=("--door", "taskrun")) as closed:
        for method, path in (("POST", "/enroll/agent"), ("GET", "/v1/agents"), ("POST", "/v1/collectors/register")):
            assert closed.https(method, path, {}).status == 404, path
