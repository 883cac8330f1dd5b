"""The plfm door: its document's ten compliance tests by number, and everything a host can do wrong."""

import base64
import hashlib
import re
import threading

import pytest

import certs
import hosts
import native
import workers
from machine import until
from operators import code_of, curl, make_key
from plane import ControlPlane
from secluded import NOWHERE, Secluded

REVOKED = "SSLV3_ALERT_CERTIFICATE_REVOKED"


def test_compliance_01_valid_token_enrolls(plane):
    """Proves PLFM-01, PLFM-13, PLFM-17, PLFM-18, PLFM-33, PLFM-34: the whole answer, the token spent, state `enrolled`."""
    minted = hosts.mint(plane)
    host = hosts.enroll(plane, minted["token"], underlay_endpoint={"ipv6": "::1", "ipv4": "127.0.0.1", "port": 51820})
    answer = host.answer
    assert set(answer) == {"host_id", "mtls_cert", "mtls_ca_chain", "overlay_config", "cluster_config"}
    leaf, *rest = certs.certificates(answer["mtls_cert"])
    assert len(rest) == 1 and certs.public_der(leaf.public_key()) == certs.public_der(host.key)
    assert certs.verifies_by_chain(answer["mtls_cert"], answer["mtls_ca_chain"].encode())
    assert rest[0] not in certs.certificates(answer["mtls_ca_chain"]), "what signs nodes is no anchor for servers"
    assert certs.verifies((plane.dir / "ca" / "server.pem").read_bytes(), answer["mtls_ca_chain"].encode())
    config = answer["overlay_config"]
    assert set(config) == {"host_overlay_ipv6", "listen_port", "mtu", "peers"}
    assert (config["listen_port"], config["mtu"]) == (51820, 1420)
    assert re.fullmatch(r"fd[0-9a-f:]+", config["host_overlay_ipv6"])
    assert answer["cluster_config"] == {"control_plane_endpoints": [plane.url], "agent_version_policy": "auto"}
    shown = host.shown()
    assert shown == {
        "host_id": host.id,
        "state": "enrolled",
        "cluster_id": minted["cluster_id"],
        "underlay_endpoint": "[::1]:51820",
        "overlay_ipv6": host.address,
        "wireguard_public_key": host.wireguard,
        "hardware_facts": hosts.FACTS,
        "enrolled_at": shown["enrolled_at"],
        "last_seen": None,
        "cert_serial": certs.serial(leaf),
        "cert_not_after": shown["cert_not_after"],
    }
    spent = hosts.token(plane, minted["token_id"])
    assert spent["used"] and spent["used_at"] and spent["used_by_host_id"] == host.id


def test_compliance_02_expired_token_is_rejected(plane):
    """Proves PLFM-14, PLFM-16, PLFM-34: 401 `token_expired`; it was not consumed. Also before a bad request is looked at."""
    minted = hosts.mint(plane, expires_in="10s")
    until(lambda: not hosts.unused(plane, minted["token_id"]), "the token expired")
    for fields in ({}, {"mtls_csr": "no request"}, {"wireguard_public_key": "AAAA"}):
        answer = hosts.ask(plane, hosts.request(minted["token"], **fields))
        assert (answer.status, answer.code) == (401, "token_expired")
        assert "new token" in answer.json()["error"]["hint"]
    spent = hosts.token(plane, minted["token_id"])
    assert (spent["used"], spent["used_at"], spent["used_by_host_id"]) == (False, None, None)


def test_compliance_03_reused_token_is_rejected(plane):
    """Proves PLFM-01, PLFM-14, PLFM-16, PLFM-34: 409 `token_used`, for the same host and for another."""
    minted = hosts.mint(plane)
    host = hosts.enroll(plane, minted["token"])
    for body in (host.sent, hosts.request(minted["token"])):
        answer = hosts.ask(plane, body)
        assert (answer.status, answer.code) == (409, "token_used")
    assert hosts.token(plane, minted["token_id"])["used_by_host_id"] == host.id


@pytest.mark.parametrize("csr", ["", "no request", "spoiled", "sha1", "rsa1024"])
def test_compliance_04_invalid_csr_is_rejected_without_consuming_the_token(plane, csr):
    """Proves PLFM-14, PLFM-15, PLFM-16, PLFM-34: 400 `csr_invalid`, and the token still works."""
    made = {
        "spoiled": lambda: certs.spoiled(certs.good_csr()),
        "sha1": lambda: certs.openssl_csr("-newkey", "rsa:2048", "-sha1"),
        "rsa1024": lambda: certs.openssl_csr("-newkey", "rsa:1024"),
    }.get(csr, lambda: csr)()
    minted = hosts.mint(plane)
    answer = hosts.ask(plane, {**hosts.request(minted["token"]), "mtls_csr": made})
    assert (answer.status, answer.code) == (400, "csr_invalid")
    assert answer.json()["error"]["hint"]
    assert hosts.unused(plane, minted["token_id"])
    hosts.enroll(plane, minted["token"])


def test_compliance_05_duplicate_wireguard_key_is_rejected(plane):
    """Proves PLFM-14, PLFM-15, PLFM-16, PLFM-34: 409 `wireguard_key_in_use`, and that token is spent on nobody."""
    first = hosts.enroll(plane)
    minted = hosts.mint(plane)
    answer = hosts.ask(plane, hosts.request(minted["token"], wireguard_public_key=first.wireguard))
    assert (answer.status, answer.code) == (409, "wireguard_key_in_use")
    burned = hosts.token(plane, minted["token_id"])
    assert burned["used"] and burned["used_at"] and burned["used_by_host_id"] is None
    again = hosts.ask(plane, hosts.request(minted["token"]))
    assert (again.status, again.code) == (409, "token_used")
    refused = [line for line in plane.audit("enrollment.refused") if line.get("token_id") == minted["token_id"]]
    assert [line["reason"] for line in refused] == ["wireguard_key_in_use"]


@pytest.mark.parametrize("verb", ["revoke", "decommission"])
def test_compliance_06_revoked_host_leaves_the_peer_sets(plane, verb):
    """Proves PLFM-24, PLFM-25, PLFM-26, PLFM-34: out of every peer set within 60 s."""
    stays, goes = hosts.active(plane), hosts.active(plane)
    assert goes.wireguard in stays.peers()
    goes.act(verb)
    until(lambda: goes.wireguard not in stays.peers(), "the host left the peer set", patience=60.0)


def test_compliance_07_audit_log_has_every_field(plane):
    """Proves PLFM-28, PLFM-29, PLFM-30, PLFM-34: the three events word for word, each line on its host."""
    minted = hosts.mint(plane)
    host = hosts.enroll(plane, minted["token"], underlay_endpoint={"ipv6": "::1", "port": 51821})
    host.confirm()
    host.act("revoke", {"reason": "compromised"})
    (created,) = [line for line in plane.audit("enrollment_token.created") if line["token_id"] == minted["token_id"]]
    assert created["created_by"] == minted["created_by"] == created["actor"]
    assert created["expires_at"] == minted["expires_at"] and created["timestamp"] == created["at"]
    (enrolled,) = [line for line in plane.audit("host.enrolled") if line["host_id"] == host.id]
    raw = base64.b64decode(host.wireguard)
    leaf = certs.certificates(host.answer["mtls_cert"])[0]
    assert enrolled["token_id"] == minted["token_id"]
    assert enrolled["enrolled_by"] == "system:enrollment-service"
    assert enrolled["underlay_endpoint"] == "[::1]:51821"
    assert enrolled["wireguard_pubkey_fingerprint"] == "SHA256:" + hashlib.sha256(raw).hexdigest()
    assert enrolled["mtls_cert_fingerprint"] == "SHA256:" + certs.fingerprint(leaf)
    (revoked,) = [line for line in plane.audit("host.revoked") if line["host_id"] == host.id]
    assert (revoked["revoked_by"], revoked["reason"]) == (revoked["actor"], "compromised")
    about = [line for line in plane.audit() if line.get("host_id") == host.id]
    assert [line["event_type"] for line in about] == ["host.enrolled", "host.confirmed", "host.active", "host.revoked"]
    for line in about:
        assert line["node_id"] == host.id and line["timestamp"] == line["at"]
    ipv4 = hosts.enroll(plane)
    (line,) = [line for line in plane.audit("host.enrolled") if line["host_id"] == ipv4.id]
    assert line["underlay_endpoint"] == "127.0.0.1:51820"


def test_compliance_08_mtls_works_after_enrollment(plane):
    """Proves PLFM-21, PLFM-34: `active` with the certificate of the host, also with the leaf alone, and once only."""
    host = hosts.enroll(plane)
    leaf = certs.pem(certs.certificates(host.answer["mtls_cert"])[0]).decode()
    files = certs.identity(host.files[0].parent / "leaf", host.key, leaf)
    for certificate in (host.files, files):
        path = f"/v1/hosts/{host.id}/confirm-enrollment"
        answer = plane.https("POST", path, certificate=certificate)
        assert (answer.status, answer.json()) == (200, {"host_id": host.id, "state": "active"}), answer
    assert host.shown()["state"] == "active" and host.shown()["last_seen"]
    assert len([line for line in plane.audit("host.active") if line["host_id"] == host.id]) == 1


def test_compliance_09_partial_enrollment_can_be_recovered(plane):
    """Proves PLFM-20, PLFM-22, PLFM-34: stays `enrolled`, is revoked, and enrolls anew with the WireGuard key it has."""
    host = hosts.enroll(plane)
    for _ in range(2):
        assert host.confirm({"status": "failed", "reason": "disk full"}) == {"host_id": host.id, "state": "enrolled"}
    assert host.shown()["state"] == "enrolled"
    alerts = [alert for alert in plane.items("/v1/alerts") if alert["node_id"] == host.id]
    assert [(alert["kind"], alert["detail"]) for alert in alerts] == [("enrollment_not_persisted", "disk full")]
    taken = hosts.ask(plane, hosts.request(hosts.mint(plane)["token"], wireguard_public_key=host.wireguard))
    assert (taken.status, taken.code) == (409, "wireguard_key_in_use"), "only after the revocation"
    assert host.act("revoke")["state"] == "disabled"
    again = hosts.enroll(plane, wireguard_public_key=host.wireguard)
    assert again.id != host.id and again.confirm()["state"] == "active"
    assert not [alert for alert in plane.items("/v1/alerts") if alert["node_id"] == host.id]


def test_compliance_10_token_creation_requires_an_operator(plane):
    """Proves PLFM-09, PLFM-34: 401 for nobody, 403 for a viewer and for a host; the creator is on record."""
    path = "/v1/hosts/enroll-tokens"
    nobody = plane.https("POST", path, {})
    assert (nobody.status, nobody.code) == (401, "unauthenticated")
    viewer = make_key(plane, "viewer")["key"]
    status, _, body = curl(plane, "POST", path, key=viewer)
    assert (status, code_of(body)) == (403, "forbidden")
    host = hosts.active(plane)
    answer = host.ask("POST", path, {})
    assert (answer.status, answer.code) == (403, "forbidden")
    made = make_key(plane, "operator")
    answer = plane.https("POST", path, {}, {"Authorization": f"Bearer {made['key']}"})
    assert answer.status == 201 and answer.json()["created_by"] == f"key:{made['key_id']}"
    line = next(line for line in plane.audit("enrollment_token.created") if line["token_id"] == answer.json()["token_id"])
    assert line["actor"] == line["created_by"] == f"key:{made['key_id']}"


def test_a_token_of_another_control_plane_is_unknown_here(plane):
    """Proves PLFM-04: two clusters, one token; refused by the other, and still good where it was made."""
    with ControlPlane(domain="other.example") as other:
        minted = hosts.mint(other)
        assert minted["cluster_id"] != hosts.mint(plane)["cluster_id"]
        answer = hosts.ask(plane, hosts.request(minted["token"]))
        assert (answer.status, answer.code) == (401, "token_invalid")
        assert hosts.unused(other, minted["token_id"])
        hosts.enroll(other, minted["token"])


def test_one_of_many_hosts_gets_the_token(plane):
    """Proves PLFM-01: eight at once, one is let in."""
    minted = hosts.mint(plane)
    answers = []
    bodies = [hosts.request(minted["token"]) for _ in range(8)]
    threads = [threading.Thread(target=lambda body=body: answers.append(hosts.ask(plane, body))) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    assert {answer.code for answer in answers if answer.status == 409} == {"token_used"}


BAD_SHAPES = {
    "no body": b"",
    "not JSON": b"{",
    "an array": b"[]",
    "nothing in it": {},
    "a number as token": {"enrollment_token": 7},
    "no token": {"enrollment_token": None},
    "no CSR": {"mtls_csr": None},
    "no WireGuard key": {"wireguard_public_key": None},
    "no endpoint": {"underlay_endpoint": None},
    "an endpoint without address": {"underlay_endpoint": {"port": 51820}},
    "IPv4 as IPv6": {"underlay_endpoint": {"ipv6": "127.0.0.1", "port": 51820}},
    "an address that is none": {"underlay_endpoint": {"ipv4": "256.0.0.1", "port": 51820}},
    "port 65536": {"underlay_endpoint": {"ipv4": "127.0.0.1", "port": 65536}},
    "less than no cores": {"hardware_facts": {"cpu_cores": -1}},
    "an architecture with a newline": {"hardware_facts": {"arch": "amd64\n"}},
}


@pytest.mark.parametrize("name", BAD_SHAPES)
def test_what_cannot_be_read_is_400_and_consumes_nothing(plane, name):
    """Proves PLFM-15, PLFM-16: bad format does not consume the token."""
    minted, bad = hosts.mint(plane), BAD_SHAPES[name]
    body = bad if isinstance(bad, bytes) or not bad else {**hosts.request(minted["token"]), **bad}
    answer = hosts.ask(plane, body)
    assert (answer.status, answer.code) == (400, "bad_request"), answer
    assert hosts.unused(plane, minted["token_id"])
    assert b"panic" not in answer.body


@pytest.mark.parametrize("token", ["", "with space", "ünicode", "x" * 257, "a\nb"])
def test_what_could_be_no_token_is_told_so(plane, token):
    """Proves PLFM-15, PLFM-16, PLFM-36: 400 `token_malformed`: fix the input."""
    answer = hosts.ask(plane, hosts.request(token))
    assert (answer.status, answer.code) == (400, "token_malformed")
    assert answer.json()["error"]["hint"]


@pytest.mark.parametrize("token", ["x", "enroll_" + "A" * 43, "enroll_dGhpcyBpcyBhIHRlc3QgdG9rZW4gd2l0aCBlbm91Z2ggZW50cm9weQ"])
def test_an_unknown_token_learns_nothing(plane, token):
    """Proves PLFM-05, PLFM-14: 401 `token_invalid`, whatever else is wrong; the document's own example is not refused for its length."""
    for fields in ({}, {"mtls_csr": "no request"}, {"wireguard_public_key": "AAAA"}):
        answer = hosts.ask(plane, hosts.request(token, **fields))
        assert (answer.status, answer.code) == (401, "token_invalid")


def test_a_revoked_token_is_told_so(plane):
    """Proves PLFM-08, PLFM-14: 401 `token_revoked`."""
    minted = hosts.mint(plane)
    assert plane.api("DELETE", f"/v1/hosts/enroll-tokens/{minted['token_id']}").status == 204
    answer = hosts.ask(plane, hosts.request(minted["token"]))
    assert (answer.status, answer.code) == (401, "token_revoked")


LOW_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
    "00" * 31 + "80",
    "ec" + "ff" * 31,
]
# Other encodings of points that are good: with bit 255, and not below 2^255 - 19.
TWINS = ["09" * 31 + "89", "f0" + "ff" * 30 + "7f"]


@pytest.mark.parametrize(
    "key",
    ["", "no base64!", hosts.random_key(31), hosts.random_key(33), hosts.random_key()[:-1], hosts.random_key() + "\n"]
    + [base64.b64encode(bytes.fromhex(point)).decode() for point in LOW_ORDER + TWINS],
)
def test_a_wireguard_key_that_is_none_is_400_and_consumes_nothing(plane, key):
    """Proves PLFM-14, PLFM-15: not 32 bytes, a point with which every exchange gives the same secret, or one in an encoding of its own."""
    minted = hosts.mint(plane)
    answer = hosts.ask(plane, hosts.request(minted["token"], wireguard_public_key=key))
    assert (answer.status, answer.code) == (400, "wireguard_key_invalid")
    assert hosts.unused(plane, minted["token_id"])


def test_every_refusal_says_what_to_do(plane):
    """Proves PLFM-36: code, message, hint and request id, and an id of the caller's own is kept."""
    answer = plane.https("POST", "/v1/hosts/enroll", hosts.request("x"), {"X-Request-Id": "mine-1"})
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "hint", "request_id", "retryable"}
    assert error["request_id"] == answer.headers["X-Request-Id"] == "mine-1"
    assert error["code"] == "token_invalid" and error["message"] and error["hint"]
    assert answer.headers["Date"] and int(answer.headers["X-Server-Time"])


# The rows of the document's table: what is wrong, what is answered, whether the token is consumed, what the agent is to do.
TABLE = {
    "Token expired": (401, "token_expired", False, "new token"),
    "Token already used": (409, "token_used", False, "a new one"),
    "Token invalid format": (400, "token_malformed", False, "exactly as it was printed"),
    "WireGuard key already enrolled": (409, "wireguard_key_in_use", True, "find out which host has this key"),
    "CSR invalid": (400, "csr_invalid", False, "generate the CSR again"),
    "Underlay unreachable": (422, "underlay_unreachable", False, "check the network"),
}


@pytest.fixture
def strict(plane, row):
    """A control plane that lets in only who can be reached. One that reaches nobody where that is what is wrong."""
    if row == "Underlay unreachable":
        with Secluded() as running:
            running.policy("underlay.probe", "require")
            running.policy("underlay.probe_any", "true")
            yield running
        return
    plane.policy("underlay.probe", "require")
    plane.policy("underlay.probe_any", "true")
    yield plane
    plane.policy("underlay.probe", "warn")
    plane.policy("underlay.probe_any", "false")


@pytest.mark.parametrize("row", TABLE)
def test_each_row_of_the_failure_table_names_the_agents_action(strict, row):
    """Proves PLFM-16, PLFM-36: the hint is the document's "Agent Action", and following it works."""
    status, code, consumed, action = TABLE[row]
    minted = hosts.mint(strict, **({"expires_in": "10s"} if row == "Token expired" else {}))
    fields, token = {}, minted["token"]
    if row == "Token expired":
        until(lambda: not hosts.unused(strict, minted["token_id"]), "the token expired")
    elif row == "Token already used":
        first = hosts.enroll(strict, token)
    elif row == "Token invalid format":
        token = f'"{token}"'
    elif row == "WireGuard key already enrolled":
        fields = {"wireguard_public_key": hosts.enroll(strict).wireguard}
    elif row == "CSR invalid":
        fields = {"mtls_csr": certs.spoiled(certs.good_csr())}
    else:
        fields = {"underlay_endpoint": NOWHERE}
    answer = hosts.ask(strict, hosts.request(token, **fields))
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["retryable"]) == (status, code, False), answer
    assert error["message"] and error["message"] != error["hint"]
    assert action in error["hint"], error
    another = consumed or status in (401, 409)
    assert ("new token" in error["hint"] or "a new one" in error["hint"]) == another, "whether this token is still good"
    spent = hosts.token(strict, minted["token_id"])
    if row == "Token already used":
        assert spent["used_by_host_id"] == first.id
    else:
        assert (spent["used"], spent["used_by_host_id"]) == (consumed, None)
    # What the agent does next works: with the same token where the table says so, else with a new one.
    hosts.enroll(strict, hosts.mint(strict)["token"] if another else minted["token"])


def test_a_body_is_bounded_and_may_hold_more_than_we_know(plane):
    """Unknown fields are ignored; more than 64 KiB is 413 `too_large`; another media type 415."""
    host = hosts.enroll(plane, some_later_field={"a": 1}, hardware_facts={"cpu_cores": 4, "gpus": 8})
    assert host.shown()["hardware_facts"] == {"cpu_cores": 4, "memory_bytes": None, "disk_bytes": None, "arch": None}
    large = hosts.ask(plane, hosts.request("x", padding="x" * 70_000))
    assert (large.status, large.code) == (413, "too_large")
    other = plane.https("POST", "/v1/hosts/enroll", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"})
    assert (other.status, other.code) == (415, "unsupported_media_type")
    assert plane.https("GET", "/v1/hosts/enroll").status == 405


def test_what_another_door_let_in_has_no_overlay_to_repeat(plane):
    """D30 across doors: the repeat is known, but was given no address; 404 `no_overlay`, and no error in the log."""
    token, key = workers.token(plane), certs.ec_key()
    first = workers.ask_enroll(plane, token, certs.csr(key), headers={"Idempotency-Key": "door-1"})
    assert first.status == 200, first
    answer = hosts.ask(plane, hosts.request(token, certs.csr(key)), "door-1")
    assert (answer.status, answer.code) == (404, "no_overlay"), answer
    assert "ERROR" not in plane.log()


def test_only_the_host_itself_confirms(plane):
    """Proves PLFM-21: 401 without a certificate, 403 `not_your_host` with another's, the same for ids that nobody has."""
    host, other = hosts.enroll(plane), hosts.enroll(plane)
    path = f"/v1/hosts/{host.id}/confirm-enrollment"
    nobody = plane.https("POST", path)
    assert (nobody.status, nobody.code) == (401, "unauthenticated")
    key = make_key(plane, "platform-admin")["key"]
    operator = plane.https("POST", path, headers={"Authorization": f"Bearer {key}"})
    assert (operator.status, operator.code) == (401, "unauthenticated")
    told = []
    for id in (host.id, "01JNOBODY", "a%2Fb", host.id.lower()):
        for method, what in (("POST", "confirm-enrollment"), ("GET", "overlay")):
            answer = other.ask(method, f"/v1/hosts/{id}/{what}")
            assert (answer.status, answer.code) == (403, "not_your_host"), answer
            told.append(answer.json()["error"]["message"])
    assert len(set(told)) == 1
    # The other one has shown its own certificate where it was refused: that is contact, its own and no other's.
    assert (host.shown()["state"], other.shown()["state"]) == ("enrolled", "active")
    wrong = host.ask("POST", "confirm-enrollment", {"status": "perhaps"})
    assert (wrong.status, wrong.code) == (400, "bad_request")


def test_a_revoked_host_confirms_nothing(plane):
    """Proves PLFM-24: its certificate is refused in the handshake, and it is on the revocation list."""
    host = hosts.active(plane)
    host.act("revoke", {"reason": "compromised"})
    assert native.alert(plane, host.files) == REVOKED
    serial = int(certs.serial(certs.certificates(host.answer["mtls_cert"])[0]), 16)
    from cryptography import x509

    crl = x509.load_der_x509_crl(plane.https("GET", "/v1/ca/crl").body)
    assert crl.get_revoked_certificate_by_serial_number(serial) is not None


def test_the_first_request_counts_as_confirmation(plane):
    """Proves PLFM-21 as D17 reads it: a host that asks for its overlay is `active`; failing afterwards is too late."""
    host = hosts.enroll(plane)
    host.overlay()
    assert host.shown()["state"] == "active"
    late = host.ask("POST", "confirm-enrollment", {"status": "failed", "reason": "changed my mind"})
    assert (late.status, late.code) == (409, "already_confirmed")


def test_an_enrollment_that_nobody_confirms_is_stuck(plane_of_its_own):
    """Proves PLFM-23: alert `enrollment_stuck` after `enrolled.stuck_after`; the operator revokes, and it is over."""
    plane = plane_of_its_own
    assert {p["key"]: p["value"] for p in plane.api("GET", "/v1/policy").json()["items"]}["enrolled.stuck_after"] == "10m"
    plane.policy("enrolled.stuck_after", "1s")
    host = hosts.enroll(plane)
    kinds = lambda: [alert["kind"] for alert in plane.items("/v1/alerts") if alert["node_id"] == host.id]
    until(lambda: kinds() == ["enrollment_stuck"], "the alert was raised")
    assert host.act("revoke")["state"] == "disabled"
    assert kinds() == []


def test_certificates_live_for_90_days_and_are_renewed(plane):
    """Proves PLFM-31: 90 days for what is enrolled here, and renewal over mTLS with the certificate in use."""
    host = hosts.active(plane)
    leaf = certs.certificates(host.answer["mtls_cert"])[0]
    assert certs.seconds(leaf) == 90 * 86400 + 60
    with native.door(plane, host.files) as door:
        renewed = door.renew(certs.good_csr())
    assert renewed.cert_serial != certs.serial(leaf)
    assert certs.uris(certs.certificate(renewed.certificate)) == certs.uris(leaf)


def test_a_host_renews_on_the_doors_that_have_a_call_for_it(plane):
    """Proves PLFM-31: 000 names no call; with its certificate a host may use probectl's, and stays itself. TaskRun's is for
    workers, whose common name says so."""
    import probectl

    refused = hosts.active(plane).ask("POST", "/v1/renew", {"csr": certs.csr(certs.ec_key())})
    assert refused.status == 403, refused
    host = hosts.active(plane)
    request = certs.csr(certs.ec_key())
    rotated = probectl.ask_rotate(plane, host.answer["mtls_cert"], request, probectl.proof(host.key, request))
    assert rotated.status == 200, rotated
    assert rotated.json()["agent_id"] == host.id
