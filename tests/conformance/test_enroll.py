"""Redeeming a token on the native door, by a client that shares no code with the server."""

import datetime
import re

import certs
import evidence
import grpc
import native
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from machine import until
from plane import ControlPlane


def good_csr() -> str:
    return certs.csr(certs.ec_key())


def state_of(plane, token_id: str) -> str:
    return plane.api("GET", f"/v1/tokens/{token_id}").json()["state"]


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
    """`enroll_` and 43 base64url characters, each different; 1 h. Proves PLFM-03, PLFM-05, PROBE-03, PROBE-06."""
    minted = [plane.mint() for _ in range(50)]
    values = {m["token"] for m in minted}
    assert len(values) == 50
    assert all(re.fullmatch(r"enroll_[A-Za-z0-9_-]{43}", value) for value in values)
    assert all(sum(value[i] != other[i] for i in range(7, 50)) > 20 for value, other in zip(sorted(values), sorted(values)[1:]))
    life = datetime.datetime.fromisoformat(minted[0]["expires_at"]) - datetime.datetime.now(datetime.UTC)
    assert 3500 < life.total_seconds() <= 3600
    shown = plane.api("GET", f"/v1/tokens/{minted[0]['token_id']}").body.decode()
    assert not any(value in shown for value in values)


@pytest.mark.parametrize(("expires", "code"), [("25h", "token_ttl_too_long"), ("24h", None), ("9s", "token_ttl_too_short"), ("10s", None)])
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
    lines = [l for l in plane.audit("enrollment_token.revoked") if l["token_id"] == minted["token_id"]]
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


BAD_CSRS = {
    "garbage": lambda: "garbage",
    "empty": lambda: "",
    "pem_of_nothing": lambda: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    "cut": lambda: good_csr()[:200],
    "bad_signature": lambda: certs.spoiled(good_csr()),
    "rsa_1024": lambda: certs.openssl_csr("-newkey", "rsa:1024", "-sha256"),
    "rsa_8192": lambda: certs.csr(certs.rsa_key(8192)),
    "sha1": lambda: certs.openssl_csr("-newkey", "rsa:2048", "-sha1"),
    "p521": lambda: certs.csr(certs.ec_key(ec.SECP521R1())),
    "secp256k1": lambda: certs.csr(certs.ec_key(ec.SECP256K1())),
    "a_certificate": lambda: certs.pem(self_signed()).decode(),
    "a_private_key": lambda: certs.key_pem(certs.ec_key()).decode(),
}


def self_signed():
    key, name = certs.ec_key(), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    return builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(1)).sign(key, hashes.SHA256())


def test_a_bad_request_for_a_certificate_spends_nothing(plane, door):
    """Every kind of bad CSR is `csr_invalid` and leaves the token as it was; then it still works."""
    minted = plane.mint()
    for kind, make in BAD_CSRS.items():
        refusal = door.refused(minted["token"], make())
        assert (kind, refusal.status, refusal.code) == (kind, grpc.StatusCode.INVALID_ARGUMENT, "csr_invalid")
        assert state_of(plane, minted["token_id"]) == "unused", kind
    assert door.enroll(minted["token"], good_csr()).node_id


def unknown_extension():
    return x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")


GOOD_KEYS = {
    "p256": lambda: (certs.ec_key(), {}),
    "p384_with_sha256": lambda: (certs.ec_key(ec.SECP384R1()), {}),
    "p256_with_sha384": lambda: (certs.ec_key(), {"digest": hashes.SHA384()}),
    "p256_with_sha512": lambda: (certs.ec_key(), {"digest": hashes.SHA512()}),
    "ed25519": lambda: (certs.ed25519_key(), {}),
    "rsa_2048": lambda: (certs.rsa_key(2048), {}),
    "rsa_4096_sha512": lambda: (certs.rsa_key(4096), {"digest": hashes.SHA512()}),
    "an_unknown_extension": lambda: (certs.ec_key(), {"extensions": (unknown_extension(),)}),
    "asks_to_be_a_ca": lambda: (certs.ec_key(), {"extensions": (x509.BasicConstraints(True, None),)}),
    "asks_for_another_name": lambda: (
        certs.ec_key(),
        {"name": "admin", "extensions": (x509.SubjectAlternativeName(
            [x509.UniformResourceIdentifier("spiffe://test.example/operator/root"), x509.DNSName("cp.example")]
        ),)},
    ),
}


@pytest.mark.parametrize("kind", GOOD_KEYS)
def test_only_the_key_of_a_request_counts(plane, door, kind):
    """Any allowed key with any allowed hash is granted, the key verbatim, every requested name ignored."""
    key, options = GOOD_KEYS[kind]()
    answer = door.enroll(plane.token(), certs.csr(key, **options))
    leaf = certs.certificate(answer.certificate)
    assert certs.public_der(leaf.public_key()) == certs.public_der(key)
    assert certs.uris(leaf) == [f"spiffe://test.example/tenant/default/agent/{answer.node_id}"]
    assert len(list(certs.names(leaf))) == 1
    assert not any(e.value.ca for e in leaf.extensions if isinstance(e.value, x509.BasicConstraints))
    assert "admin" not in leaf.subject.rfc4514_string()
    assert certs.verifies(answer.certificate.encode(), (answer.chain + answer.bundle).encode(), "-purpose", "sslclient")


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


def test_the_same_request_again_gives_the_same_certificate(plane, door):
    """Same token, key and idempotency key, unconfirmed: byte for byte the same, and one node."""
    token, key = plane.token(), certs.ec_key()
    first = door.enroll(token, certs.csr(key), "retry-1")
    for _ in range(3):
        # A CSR is signed anew each time; it is the key in it that counts.
        again = door.enroll(token, certs.csr(key), "retry-1")
        assert again == first
    assert len([n for n in plane.nodes() if n["cert_serial"] == first.cert_serial]) == 1
    assert len([l for l in plane.audit("host.enrolled") if l["node_id"] == first.node_id]) == 1


def test_anything_less_than_the_same_request_is_a_reuse(plane, door):
    """Without the idempotency key, with another one, or with another key pair: `token_used`."""
    token, key = plane.token(), certs.ec_key()
    door.enroll(token, certs.csr(key), "retry-2")
    assert door.refused(token, certs.csr(key)).code == "token_used"
    assert door.refused(token, certs.csr(key), "retry-3").code == "token_used"
    assert door.refused(token, good_csr(), "retry-2").code == "token_used"


def test_an_idempotency_key_cannot_be_added_later(plane, door):
    """A first use without the header stays a use: nobody gets it again by naming a key afterwards."""
    token, key = plane.token(), certs.ec_key()
    door.enroll(token, certs.csr(key))
    assert door.refused(token, certs.csr(key), "late").code == "token_used"


def test_after_confirming_the_same_request_is_a_reuse(plane, door):
    """The repeat is for lost replies only: once the node was heard of, the token is spent for good."""
    token, key = plane.token(), certs.ec_key()
    node = native.Node(plane, door.enroll(token, certs.csr(key), "retry-4"), key)
    node.confirm()
    assert door.refused(token, certs.csr(key), "retry-4").code == "token_used"


def test_after_its_end_a_token_gives_nothing_again(plane, door):
    """The repeat ends with the token's life."""
    token, key = plane.token(expires="10s"), certs.ec_key()
    first = door.enroll(token, certs.csr(key), "retry-5")

    def over():
        try:
            assert door.enroll(token, certs.csr(key), "retry-5") == first
        except native.Refused as refusal:
            assert refusal.code in ("token_used", "token_expired")
            return True
        return False

    until(over, "the token's life ended")


@pytest.mark.parametrize("key", ["a b", "x" * 129, "\x7f"])
def test_a_malformed_idempotency_key_is_refused(plane, door, key):
    """1 to 128 visible ASCII characters, else 400; the token is not spent."""
    minted = plane.mint()
    try:
        refusal = door.refused(minted["token"], good_csr(), key)
    except (TypeError, ValueError):
        return
    if refusal.code is None:
        assert "metadata" in refusal.message.lower(), "refused by the client itself"
    else:
        assert refusal.code == "idempotency_key_invalid"
    assert state_of(plane, minted["token_id"]) == "unused"


def test_a_pinned_token_makes_that_node_and_no_other(plane, door):
    """`token create --node ID`: the id is the pin's, whatever the CSR says."""
    minted = plane.mint(node="rack1-07")
    assert minted["node"] == "rack1-07"
    answer = door.enroll(minted["token"], certs.csr(certs.ec_key(), name="rack9-99"))
    assert answer.node_id == "rack1-07"
    assert certs.uris(certs.certificate(answer.certificate)) == ["spiffe://test.example/tenant/default/agent/rack1-07"]


def test_enrolling_again_with_a_pinned_token_denies_the_old_certificate(plane):
    """In the same command every older serial is denied: its next handshake meets alert 44, and it may say nothing."""
    old = native.enroll(plane, plane.token(node="again-1"))
    old.confirm()
    assert native.alert(plane, old.files) is None
    new = native.enroll(plane, plane.token(node="again-1"))
    assert new.id == old.id and new.serial != old.serial
    assert native.alert(plane, old.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    assert native.alert(plane, new.files) is None
    statuses = {c["serial"]: c["status"] for c in plane.node("again-1")["certificates"]}
    assert statuses == {old.serial: "denied", new.serial: "live"}
    line = [l for l in plane.audit("host.enrolled") if l["node_id"] == "again-1"][-1]
    assert old.serial in str(line)


def test_a_denied_certificate_is_cut_off_on_an_open_connection(plane):
    """Not only the next handshake: the connection that is already open may not speak either."""
    old = native.enroll(plane, plane.token(node="again-2"))
    with native.door(plane, old.files) as connection:
        assert connection.confirm().state == "active"
        native.enroll(plane, plane.token(node="again-2"))
        with pytest.raises(native.Refused) as refusal:
            connection.confirm()
        assert refusal.value.code in ("unauthenticated", "node_revoked", None)
    assert plane.node("again-2")["state"] == "enrolled"


def test_certificates_of_strangers_meet_the_right_alert(plane, place):
    """48 for an unknown issuer, 44 for a denied serial, 42 for what is not a node's at all."""
    key = certs.ec_key()
    with ControlPlane(domain="third.example") as other:
        foreign = native.enroll(other)
        assert native.alert(plane, foreign.files) == "TLSV1_ALERT_UNKNOWN_CA"
    lone = certs.identity(place, key, certs.pem(signed_by(key)).decode())
    assert native.alert(plane, lone) in ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE")


def signed_by(key):
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "self")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    return builder.serial_number(7).not_valid_before(now).not_valid_after(now + datetime.timedelta(1)).sign(key, hashes.SHA256())


def test_an_enrollment_is_on_record_with_its_fingerprints(plane):
    """`host.enrolled` has the fields of 000 under its names; what an enrollment lacks is null."""
    minted = plane.mint()
    node = native.enroll(plane, minted["token"])
    (line,) = [l for l in plane.audit("host.enrolled") if l["node_id"] == node.id]
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
