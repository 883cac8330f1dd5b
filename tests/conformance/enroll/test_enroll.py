"""Redeeming a token on the native door, by a client that shares no code with the server."""

import base64
import datetime
import re

import grpc
import pytest

import certs
import evidence
import native
from certs import good_csr
from machine import until
from plane import ControlPlane


def test_a_token_becomes_an_identity_once(plane, door):
    """Granted the first time, `token_used` the second. Proves PLFM-01, TASK-06."""
    minted = plane.mint()
    key = certs.ec_key()
    answer = door.enroll(minted["token"], certs.csr(key), hostname="host-1", agent_version="1.2.3")
    assert answer.tenant == "default" and answer.domain == "test.example"
    assert answer.servers == [plane.url]
    again = door.refused(minted["token"], certs.csr(key))
    assert (again.status, again.code) == (grpc.StatusCode.FAILED_PRECONDITION, "token_used")
    shown = plane.node(answer.node_id)
    assert shown["state"] == "enrolled" and shown["cert_serial"] == answer.cert_serial
    assert shown["cert_not_after"] == answer.not_after
    assert [c["fingerprint"] for c in shown["certificates"]] == [
        "sha256:" + certs.fingerprint(certs.certificate(answer.certificate))
    ]
    listed = plane.api("GET", f"/v1/tokens/{minted['token_id']}").json()
    assert listed["state"] == "used" and listed["used_by"] == answer.node_id


def test_confirming_makes_a_node_active(plane):
    """The node's first word with its certificate; its own, whatever else is asked."""
    node = native.enroll(plane)
    assert node.confirm().state == "active"
    assert plane.node(node.id)["state"] == "active"
    assert node.confirm().state == "active"
    assert len([line for line in plane.audit("host.active") if line["node_id"] == node.id]) == 1


def test_confirm_needs_a_certificate(door):
    """Without a client certificate nobody confirms anything."""
    with pytest.raises(native.Refused) as refusal:
        door.confirm()
    assert (refusal.value.status, refusal.value.code) == (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")


def test_a_host_that_could_not_keep_its_identity_stays_enrolled(plane):
    """Confirm with status FAILED and a reason: no `active`, an alert on record."""
    node = native.enroll(plane)
    answer = node.confirm(status=native.pb.CONFIRM_STATUS_FAILED, reason="disk full")
    assert answer.state == "enrolled"
    raised = [line for line in plane.audit("alert.raised") if line["node_id"] == node.id]
    assert [line["kind"] for line in raised] == ["enrollment_not_persisted"]


def test_tokens_have_the_promised_form_and_life(plane):
    """`enroll_` and 43 base64url characters, each different; 1 h.

    Proves PLFM-03, PLFM-05, PROBE-03, PROBE-06, TASK-06.
    """
    minted = [plane.mint() for _ in range(50)]
    values = {m["token"] for m in minted}
    assert len(values) == 50
    assert all(re.fullmatch(r"enroll_[A-Za-z0-9_-]{43}", value) for value in values)
    assert all(
        sum(value[i] != other[i] for i in range(7, 50)) > 20 for value, other in zip(sorted(values), sorted(values)[1:])
    )
    shown = plane.api("GET", f"/v1/tokens/{minted[0]['token_id']}")
    created, expires = (datetime.datetime.fromisoformat(shown.json()[at]) for at in ("created_at", "expires_at"))
    assert expires - created == datetime.timedelta(hours=1)
    assert not any(value in shown.body.decode() for value in values)


@pytest.mark.parametrize(
    ("expires", "code"), [("25h", "token_ttl_too_long"), ("24h", None), ("9s", "token_ttl_too_short"), ("10s", None)]
)
def test_a_token_lives_between_ten_seconds_and_a_day(plane, expires, code):
    """More than 24 h is refused, not shortened. Proves PLFM-02."""
    answer = plane.api("POST", "/v1/tokens", {"expires": expires})
    assert (answer.status, answer.code) == ((400, code) if code else (201, None))
    if not code:
        evidence.token(answer.json()["token"])


def test_an_expired_token_says_so(plane, door):
    """`token_expired`, and it says so before a bad CSR is even looked at."""
    token = plane.token(expires="10s")

    # Garbage is no CSR, so the token is not spent while its end is awaited.
    def expired():
        refusal = door.refused(token, "garbage")
        assert refusal.code in ("csr_invalid", "token_expired"), refusal
        return refusal.code == "token_expired"

    until(expired, "the token expired")
    refusal = door.refused(token, good_csr())
    assert (refusal.status, refusal.code) == (grpc.StatusCode.UNAUTHENTICATED, "token_expired")


def test_a_revoked_token_says_so(plane, door):
    """`token_revoked`; and revoking is an operator's act on record."""
    minted = plane.mint()
    assert plane.api("DELETE", f"/v1/tokens/{minted['token_id']}").status == 204
    refusal = door.refused(minted["token"], good_csr())
    assert (refusal.status, refusal.code) == (grpc.StatusCode.UNAUTHENTICATED, "token_revoked")
    assert plane.api("DELETE", f"/v1/tokens/{minted['token_id']}").status == 204
    lines = [line for line in plane.audit("enrollment_token.revoked") if line["token_id"] == minted["token_id"]]
    assert len(lines) == 1


def test_a_used_token_cannot_be_revoked(plane):
    """409 `token_used`."""
    minted = plane.mint()
    native.enroll(plane, minted["token"])
    answer = plane.api("DELETE", f"/v1/tokens/{minted['token_id']}")
    assert (answer.status, answer.code) == (409, "token_used")


def test_a_token_of_another_domain_is_unknown_here(door):
    """Bound to its cluster: elsewhere it is `token_invalid`, and stays good at home. Proves PLFM-04."""
    with ControlPlane(domain="other.example") as other:
        token = other.token()
        refusal = door.refused(token, good_csr())
        assert (refusal.status, refusal.code) == (grpc.StatusCode.UNAUTHENTICATED, "token_invalid")
        assert native.enroll(other, token).answer.domain == "other.example"


def test_one_wrong_character_is_an_unknown_token(plane, door):
    """`token_invalid`, nothing more; and the right one still works."""
    token = plane.token()
    for position in (7, 20, 49):
        wrong = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        refusal = door.refused(wrong, good_csr())
        assert refusal.code == "token_invalid"
    assert door.enroll(token, good_csr()).node_id


@pytest.mark.parametrize("token", ["", "x" * 257, "enroll_<script>", "enroll_ \n", "ένα", "a,b"])
def test_what_could_not_be_a_token_is_malformed(door, token):
    """Empty, over 256 characters, or characters that no token has: 400 `token_malformed`."""
    refusal = door.refused(token, good_csr())
    assert (refusal.status, refusal.code) == (grpc.StatusCode.INVALID_ARGUMENT, "token_malformed")


def test_the_credential_is_judged_before_the_request(plane, door):
    """A dead or unknown token with a bad CSR is the token's error; a malformed one is malformed."""
    used = plane.token()
    native.enroll(plane, used)
    assert door.refused(used, "garbage").code == "token_used"
    assert door.refused("enroll_" + "A" * 43, "garbage").code == "token_invalid"
    assert door.refused("", "garbage").code == "token_malformed"


def test_a_refusal_explains_itself(plane, door):
    """Status, `enlist-code`, `enlist-hint` and `enlist-request-id`; a caller's own request id is kept."""
    refusal = door.refused("enroll_" + "A" * 43, good_csr())
    assert refusal.hint and "enlist token create" in refusal.hint
    assert re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", refusal.request_id)
    own = door.refused("enroll_" + "A" * 43, good_csr(), metadata=(("x-request-id", "my-id.1"),))
    assert own.request_id == "my-id.1"
    assert native.Refused is type(refusal) and refusal.message


def test_an_answer_carries_the_servers_time(plane, door):
    """`date` and `x-server-time` (milliseconds) come with every answer to a node."""
    call = door.begin(plane.token(), good_csr())
    headers = dict(call.initial_metadata())
    call.result()
    assert "date" in headers and headers["x-server-time"].isdigit()
    now = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    assert abs(int(headers["x-server-time"]) - now) < 60_000


def test_an_enrollment_is_on_record_with_its_fingerprints(plane):
    """`host.enrolled` has the fields of 000 under its names; what an enrollment lacks is null."""
    minted = plane.mint()
    node = native.enroll(plane, minted["token"])
    (line,) = [line for line in plane.audit("host.enrolled") if line["node_id"] == node.id]
    assert line["host_id"] == node.id and line["timestamp"] == line["at"]
    assert line["token_id"] == minted["token_id"]
    assert line["enrolled_by"] == "system:enrollment-service"
    digest = certs.fingerprint(certs.certificate(node.answer.certificate))
    assert line["mtls_cert_fingerprint"] == f"SHA256:{digest}"
    assert line["underlay_endpoint"] is None and line["wireguard_pubkey_fingerprint"] is None


def test_a_token_is_scoped_to_its_tenant(plane):
    """The tenant comes from the token and from nowhere else."""
    assert plane.api("POST", "/v1/tenants", {"name": "acme"}).status == 201
    node = native.enroll(plane, plane.token(tenant="acme"))
    assert node.answer.tenant == "acme"
    assert node.answer.spiffe_id == f"spiffe://test.example/tenant/acme/agent/{node.id}"
    answer = plane.api("POST", "/v1/tokens", {"tenant": "nobody"})
    assert (answer.status, answer.code) == (404, "tenant_not_found")
    pinned = plane.api("POST", "/v1/tokens", {"tenant": "default", "node": node.id})
    assert pinned.status == 404, "a pin on another tenant's node"


@pytest.mark.parametrize(
    "said, code",
    [
        ({"wireguard_public_key": "nonsense"}, "wireguard_key_invalid"),
        ({"wireguard_public_key": "A" * 43 + "="}, "wireguard_key_invalid"),
        ({"wireguard_public_key": base64.b64encode(b"\x09" * 31 + b"\x89").decode()}, "wireguard_key_invalid"),
        ({"underlay": {"port": 51820}}, "bad_request"),
        ({"underlay": {"ipv4": "127.0.0.1", "port": 0}}, "endpoint_invalid"),
        ({"underlay": {"ipv4": "127.0.0.1", "port": 70000}}, "bad_request"),
        ({"underlay": {"ipv6": "fd00:plfm::1", "port": 51820}}, "bad_request"),
        ({"underlay": {"ipv4": "0.0.0.0", "port": 51820}}, "endpoint_invalid"),
        ({"hardware": {"arch": "x" * 200}}, "bad_request"),
    ],
)
def test_what_a_host_says_of_its_network_is_checked(plane, door, said, code):
    """A key that is none or of low order, an address that is none: refused in so many words, the token unspent."""
    minted = plane.mint()
    refusal = door.refused(minted["token"], certs.good_csr(), **said)
    assert refusal.code == code, refusal
    assert plane.token_state(minted["token_id"]) == "unused"
