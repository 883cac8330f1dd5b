"""The TaskRun door over REST: bootstrap tokens, enrollment, renewal, revocation. TASK-01 .. TASK-15, D07, D08."""

import base64
import datetime
import http.client
import json
import ssl
import stat
import threading

import certs
import native
import pytest
import workers
from machine import PATIENCE, until
from operators import curl, make_key
from plane import ControlPlane

DAY = 86_400


@pytest.fixture(scope="module")
def plane(programs):
    """A control plane for TaskRun."""
    with ControlPlane(init=workers.TASKRUN) as running:
        running.policy("failures.per_minute", "0")
        yield running


def moment(text: str) -> datetime.datetime:
    assert text.endswith("Z")
    return datetime.datetime.fromisoformat(text)


def test_a_bootstrap_token_is_256_bits_of_base64_and_kept_as_a_hash(plane):
    """Proves TASK-05, TASK-06: 44 characters of base64, one hour, nowhere in the store."""
    minted = plane.mint(door="taskrun")
    assert len(minted["token"]) == 44
    assert len(base64.b64decode(minted["token"], validate=True)) == 32
    assert minted["profile"] == "taskrun"
    left = moment(minted["expires_at"]) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(minutes=55) < left < datetime.timedelta(minutes=65)
    for file in plane.dir.rglob("*"):
        if file.is_file():
            assert minted["token"].encode() not in file.read_bytes(), file


def test_a_worker_enrolls(plane):
    """Proves TASK-04, TASK-07, TASK-09: token and CSR become a certificate for `worker:<id>` that lasts 7 days."""
    key, token = certs.ec_key(), workers.token(plane)
    answer = workers.ask_enroll(plane, token, workers.csr(key, "worker:w-1"), colour="blue")
    assert answer.status == 200, answer
    body = answer.json()
    assert set(body) == {"worker_cert", "ca_cert", "expires_at"}
    chain = certs.certificates(body["worker_cert"])
    leaf = chain[0]
    assert len(chain) == 2, "leaf, then its intermediate"
    assert leaf.subject.rfc4514_string() == "CN=worker:w-1"
    assert certs.uris(leaf) == [f"spiffe://{plane.domain}/tenant/default/agent/w-1"]
    assert certs.public_der(leaf.public_key()) == certs.public_der(key)
    assert abs(certs.seconds(leaf) - 7 * DAY) <= 120
    uses = leaf.extensions.get_extension_for_class(certs.x509.ExtendedKeyUsage).value
    assert [use._name for use in uses] == ["clientAuth"]
    assert moment(body["expires_at"]) == leaf.not_valid_after_utc
    assert certs.verifies_by_chain(body["worker_cert"], body["ca_cert"].encode(), "-purpose", "sslclient")
    trust = certs.certificates(body["ca_cert"])
    assert chain[1] not in trust, "what signs nodes is no anchor for servers"
    assert [certs.fingerprint(c) for c in trust][-1] == plane.pin.removeprefix("sha256:"), "roots come last"
    assert plane.node("w-1")["state"] == "enrolled"
    assert plane.node("w-1")["profile"] == "taskrun"


def test_the_worker_trusts_its_ca_and_no_other(plane):
    """Proves TASK-01, TASK-21: `ca_cert` alone verifies the control plane, the system's store does not."""
    answer = workers.ask_enroll(plane, workers.token(plane), workers.csr()).json()
    pinned = ssl.create_default_context(cadata=answer["ca_cert"])
    connection = http.client.HTTPSConnection("localhost", plane.port, context=pinned, timeout=PATIENCE)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    system = http.client.HTTPSConnection(
        "localhost", plane.port, context=ssl.create_default_context(), timeout=PATIENCE
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        system.request("GET", "/healthz")


def test_the_server_certificate_is_named_as_the_document_says(plane):
    """Proves TASK-02, TASK-03: CN, names and a year; the root is P-256 and lasts ten years."""
    leaf, *_, root = certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())
    assert leaf.subject.rfc4514_string() == "CN=taskrun-control-plane"
    names = certs.names(leaf)
    assert "localhost" in names.get_values_for_type(certs.x509.DNSName)
    addresses = {str(a) for a in names.get_values_for_type(certs.x509.IPAddress)}
    assert {"::1", "127.0.0.1"} <= addresses
    assert abs(certs.seconds(leaf) - 365 * DAY) < DAY
    assert root.public_key().curve.name == "secp256r1"
    assert abs(certs.seconds(root) - 3652 * DAY) < 5 * DAY


def test_what_is_kept_is_kept_close(plane):
    """Proves TASK-15: keys are for their owner alone, certificates for everyone."""
    modes = {"keys/server.key.sealed": 0o600, "ca/server.pem": 0o644, "ca/bundle.pem": 0o644}
    for name, mode in modes.items():
        assert stat.S_IMODE((plane.dir / name).stat().st_mode) == mode, name
    assert stat.S_IMODE((plane.dir / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE(plane.kek_file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"{}", b'{"bootstrap_token":"t"}', b'{"csr":"x"}', b'{"bootstrap_token":1,"csr":"x"}'],
)
def test_a_body_that_is_none_is_400(plane, body):
    """Proves TASK-08: shape comes first."""
    answer = plane.https("POST", "/v1/enroll", body, {"Content-Type": "application/json"})
    assert (answer.status, workers.flat(answer)) == (400, "bad_request")


@pytest.mark.parametrize("token", ["", "no such token", "ä", "x" * 257, "enroll_\n", base64.b64encode(b"0" * 32).decode()])
def test_a_token_that_is_none_is_401(plane, token):
    """Proves TASK-08: malformed or unknown, it is 401 on this door; and the token comes before the CSR."""
    for request in (workers.csr(), "no CSR"):
        answer = workers.ask_enroll(plane, token, request)
        assert (answer.status, workers.flat(answer)[:6]) == (401, "token_")


def test_a_used_token_is_409(plane):
    """Proves TASK-06, TASK-08, TASK-21: a token works once, so a stolen one that was used is worth nothing."""
    token = workers.token(plane)
    assert workers.ask_enroll(plane, token, workers.csr()).status == 200
    answer = workers.ask_enroll(plane, token, workers.csr())
    assert (answer.status, workers.flat(answer)) == (409, "token_used")


def test_an_expired_or_revoked_token_is_401(plane):
    """Proves TASK-08: too late is too late, also with a bad CSR."""
    short = plane.mint(door="taskrun", expires="10s")
    gone = plane.mint(door="taskrun")
    assert plane.api("DELETE", f"/v1/tokens/{gone['token_id']}").status == 204
    assert workers.flat(workers.ask_enroll(plane, gone["token"], workers.csr())) == "token_revoked"
    until(lambda: plane.token_state(short["token_id"]) == "expired", "the token expires")
    for request in (workers.csr(), "no CSR"):
        answer = workers.ask_enroll(plane, short["token"], request)
        assert (answer.status, workers.flat(answer)) == (401, "token_expired")


def test_a_bad_csr_is_400_and_spends_nothing(plane):
    """Proves TASK-08, TASK-09: an invalid CSR is refused and the token stays good, whatever is wrong with it."""
    token = workers.token(plane)
    bad = ["", "x", certs.spoiled(workers.csr(name="worker:w")), certs.openssl_csr("-newkey", "rsa:1024")]
    bad += [workers.csr(name=f"worker:{id}") for id in ("", "a b", "../x", "-x", "x" * 56 + "/", "worker:w")]
    for request in bad:
        answer = workers.ask_enroll(plane, token, request)
        assert (answer.status, workers.flat(answer)) == (400, "csr_invalid"), request
    assert workers.ask_enroll(plane, token, workers.csr()).status == 200


def test_who_names_the_worker(plane):
    """Proves TASK-09 and D08: the CN with or without `worker:`, the server without one, the pin before all."""
    assert workers.enroll(plane, name="worker:named-1").id == "named-1"
    assert workers.enroll(plane, name="named-2").id == "named-2"
    drawn = workers.enroll(plane)
    assert len(drawn.id) == 26
    assert drawn.cert.subject.rfc4514_string() == f"CN=worker:{drawn.id}"
    assert workers.enroll(plane, name="worker:other", node="pinned-1").id == "pinned-1"
    assert workers.enroll(plane, name="not an id", node="pinned-2").id == "pinned-2"


def test_an_id_that_is_taken_is_403_and_the_token_stays_good(plane):
    """Proves TASK-12: neither a living worker's id nor that of a revoked one is given away again."""
    workers.enroll(plane, "taken-1")
    gone = workers.enroll(plane, "taken-2")
    assert plane.api("POST", f"/v1/workers/{gone.id}/revoke").status == 200
    ended = native.enroll(plane, plane.token(node="taken-3"))
    assert plane.api("POST", f"/v1/nodes/{ended.id}/decommission").status == 200
    token = workers.token(plane)
    for id in ("taken-1", "taken-2", "taken-3"):
        answer = workers.ask_enroll(plane, token, workers.csr(name=f"worker:{id}"))
        assert (answer.status, workers.flat(answer)) == (403, "worker_id_in_use")
    assert workers.ask_enroll(plane, token, workers.csr(name="worker:taken-4")).status == 200


def test_one_id_asked_for_by_many_goes_to_one(plane):
    """D08: ids are unique, also when several ask at the same moment."""
    tokens = [workers.token(plane) for _ in range(8)]
    answers = []

    def ask(token):
        answers.append(workers.ask_enroll(plane, token, workers.csr(name="worker:wanted")))

    threads = [threading.Thread(target=ask, args=(token,)) for token in tokens]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(answer.status for answer in answers) == [200] + [403] * 7
    assert {workers.flat(a) for a in answers if a.status == 403} == {"worker_id_in_use"}


def test_a_lost_answer_can_be_asked_for_again(plane):
    """D30: the same token, key and Idempotency-Key give the same certificate."""
    token, request = workers.token(plane), workers.csr(name="worker:again")
    headers = {"Idempotency-Key": "once"}
    first = workers.ask_enroll(plane, token, request, headers=headers)
    second = workers.ask_enroll(plane, token, request, headers=headers)
    assert (first.status, second.status) == (200, 200)
    assert first.json() == second.json()
    assert workers.ask_enroll(plane, token, request, headers={"Idempotency-Key": "twice"}).status == 409
    assert workers.ask_enroll(plane, token, request).status == 409
    bad = workers.ask_enroll(plane, token, request, headers={"Idempotency-Key": "x" * 129})
    assert (bad.status, workers.flat(bad)) == (400, "idempotency_key_invalid")


def test_every_failure_of_the_door_is_flat(plane):
    """The small print of 003: 404, 405, 413 and another media type look like the others and carry the request's id in a header."""
    json_type = {"Content-Type": "application/json", "X-Request-Id": "mine-1"}
    for method, path, body, headers, status, code in [
        ("POST", "/v1/enroll", b" " * 70_000, json_type, 413, "too_large"),
        ("POST", "/v1/enroll", b"<a/>", {"Content-Type": "text/xml"}, 400, "unsupported_media_type"),
        ("GET", "/v1/enroll", None, {}, 405, "method_not_allowed"),
        ("GET", "/v1/workers/x/y", None, {}, 404, "not_found"),
        ("GET", "/v1/workers", None, {}, 401, "unauthenticated"),
    ]:
        answer = plane.https(method, path, body, headers)
        assert (answer.status, workers.flat(answer)) == (status, code), (method, path)
        assert answer.headers["X-Request-Id"]


def test_too_many_failures_are_429(programs):
    """D22: the limit on failures speaks this door's shape too."""
    with ControlPlane(init=workers.TASKRUN) as own:
        own.policy("failures.per_minute", "3")
        answers = [workers.ask_enroll(own, "nothing", workers.csr()) for _ in range(6)]
        assert {(a.status, workers.flat(a)) for a in answers[:3]} == {(401, "token_invalid")}
        assert {(a.status, workers.flat(a)) for a in answers[4:]} == {(429, "rate_limited")}
        assert answers[-1].headers["Retry-After"]
        workers.enroll(own)


def test_refusals_are_on_record(plane):
    """Proves TASK-18: attempts are counted in the trail with their reasons."""
    workers.ask_enroll(plane, base64.b64encode(b"1" * 32).decode(), workers.csr())
    until(
        lambda: any(line["reason"] == "token_invalid" for line in plane.audit("enrollment.refused")),
        "the refusal is recorded",
    )


def test_a_worker_renews_with_its_certificate(plane):
    """Proves TASK-10, TASK-11: a new key, the same identity whatever the CSR says, and then both are good."""
    worker = workers.enroll(plane, "renewing")
    key = certs.ec_key()
    answer = worker.renew(key, "worker:somebody-else")
    assert answer.status == 200, answer
    body = answer.json()
    assert set(body) == {"worker_cert", "expires_at"}
    leaf = certs.certificates(body["worker_cert"])[0]
    assert leaf.subject.rfc4514_string() == "CN=worker:renewing"
    assert certs.serial(leaf) != worker.serial
    assert moment(body["expires_at"]) == leaf.not_valid_after_utc
    assert plane.node("renewing")["state"] == "active", "an authenticated request confirms"
    assert worker.renew(worker.key).status == 409, "a renewal needs a new key"
    renewed = workers.Worker(plane, key, body["worker_cert"], "renewing")
    assert renewed.renew().status == 200
    assert worker.serial in json.dumps(plane.node("renewing")["certificates"]), "the first stays on record"


def test_renewal_is_due_at_half_of_the_lifetime(plane):
    """Proves TASK-10: 7 days for development, 24 hours for production, renewed at half of it."""
    shown = {item["key"]: item["value"] for item in plane.api("GET", "/v1/policy").json()["items"]}
    assert (shown["profile.taskrun.lifetime"], shown["profile.taskrun.renew_at"]) == ("7d", "1/2")
    assert shown["profile.taskrun-prod.lifetime"] in ("1d", "24h")
    assert shown["profile.taskrun-prod.renew_at"] == "1/2"
    prod = workers.enroll(plane, profile="taskrun-prod")
    assert abs(certs.seconds(prod.cert) - DAY) <= 120
    assert prod.cert.subject.rfc4514_string() == f"CN=worker:{prod.id}"


def test_a_renewal_needs_a_workers_certificate(plane):
    """Proves TASK-11: 401 without one, 403 with an operator's, 400 for a bad CSR."""
    answer = plane.https("POST", "/v1/renew", {"csr": workers.csr()})
    assert (answer.status, workers.flat(answer)) == (401, "unauthenticated")
    key = make_key(plane, "platform-admin")["key"]
    status, _, body = curl(plane, "POST", "/v1/renew", "-d", "{}", "-H", "Content-Type: application/json", key=key)
    assert status == 401, body
    made = plane.base / "op"
    plane.cli("operator", "add", "olga", "--role", "platform-admin", "--out", made)
    answer = plane.https(
        "POST", "/v1/renew", {"csr": workers.csr()}, certificate=(made / "cert.pem", made / "key.pem")
    )
    assert (answer.status, workers.flat(answer)) == (403, "forbidden")
    worker = workers.enroll(plane)
    for request in ("", "x", certs.spoiled(workers.csr())):
        answer = plane.https("POST", "/v1/renew", {"csr": request}, certificate=worker.files)
        assert (answer.status, workers.flat(answer)) == (400, "csr_invalid")


def test_a_common_name_that_contradicts_the_identity_is_refused(plane):
    """D07: on this door the CN must be `worker:` and the id of the SAN. No other template will do, and no bare id."""
    plane.policy("profile.odd.cn", "worker:not-{node}")
    plane.policy("profile.none.cn", "{node}-{node}-{node}")  # too long: left out
    for profile in ("default", "probectl", "plfm", "odd", "none"):
        node = native.enroll(plane, plane.token(profile=profile))
        answer = plane.https("POST", "/v1/renew", {"csr": workers.csr()}, certificate=node.files)
        assert (profile, answer.status, workers.flat(answer)) == (profile, 403, "not_your_node"), answer
        assert f"worker:{node.id}" in answer.json()["error"], answer
    good = native.enroll(plane, plane.token(profile="taskrun"))
    assert plane.https("POST", "/v1/renew", {"csr": workers.csr()}, certificate=good.files).status == 200


def test_the_longest_id_has_no_room_in_the_common_name(plane):
    """D07, D08: an id of 63 characters leaves the CN out; the worker can renew all the same."""
    longest = "n" * 63
    worker = workers.enroll(plane, name=longest)
    assert (worker.id, worker.cert.subject.rfc4514_string()) == (longest, "")
    assert worker.renew().status == 200


def test_revocation_refuses_what_is_new_and_cuts_what_is_open(plane):
    """Proves TASK-12, TASK-13, TASK-21: no renewal, the open connection ends, the handshake is refused with alert 44."""
    worker = workers.enroll(plane, "to-revoke")
    connection = http.client.HTTPSConnection(
        "127.0.0.1", plane.port, timeout=PATIENCE, context=plane.context(worker.files)
    )
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    first = plane.api("POST", "/v1/workers/to-revoke/revoke", {"reason": "lost", "colour": 1})
    assert first.status == 200, first
    assert set(first.json()) == {"worker_id", "revoked_at"} and first.json()["worker_id"] == "to-revoke"
    # Either the connection is closed already, or it is told why.
    try:
        connection.request(
            "POST", "/v1/renew", json.dumps({"csr": workers.csr()}), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        assert answer.status == 403 and b"worker_revoked: " in answer.read()
        until(lambda: not open_still(connection), "the connection is cut")
    except (ConnectionError, ssl.SSLError, http.client.HTTPException):
        pass
    connection.close()
    assert native.alert(plane, worker.files) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    second = plane.api("POST", "/v1/workers/to-revoke/revoke")
    assert (second.status, second.json()) == (200, first.json()), "the second time changes nothing"
    assert plane.api("GET", "/v1/workers/to-revoke").json()["state"] == "revoked"
    lines = [line for line in plane.audit("host.revoked") if line["node_id"] == "to-revoke"]
    assert [line["reason"] for line in lines] == ["lost"]


def open_still(connection) -> bool:
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().read() is not None
    except (ConnectionError, ssl.SSLError, http.client.HTTPException):
        return False


def test_an_expired_certificate_is_refused_at_the_handshake(plane):
    """Proves TASK-13: alert 45 once the certificate has ended."""
    plane.policy("profile.brief.lifetime", "60s")
    plane.policy("profile.brief.cn", "worker:{node}")
    worker = workers.enroll(plane, profile="brief")
    assert native.alert(plane, worker.files) is None
    end = worker.cert.not_valid_after_utc
    until(lambda: datetime.datetime.now(datetime.UTC) > end + datetime.timedelta(seconds=1), "it ends", 120)
    assert native.alert(plane, worker.files) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


def test_revoking_needs_the_role(plane):
    """TASK-12: nobody 401, a viewer 403, a worker 403, an operator 200; unknown ids 404."""
    worker = workers.enroll(plane, "safe")
    path = f"/v1/workers/{worker.id}/revoke"
    answer = plane.https("POST", path)
    assert (answer.status, workers.flat(answer)) == (401, "unauthenticated")
    answer = plane.https("POST", path, certificate=workers.enroll(plane).files)
    assert (answer.status, workers.flat(answer)) == (403, "forbidden")
    viewer, operator = (make_key(plane, role)["key"] for role in ("viewer", "operator"))
    for victim in (worker.id, "nobody"):
        status, _, body = curl(plane, "POST", f"/v1/workers/{victim}/revoke", key=viewer)
        assert (status, json.loads(body)["error"][:10]) == (403, "forbidden:")
    for unknown in ("nobody", "worker:safe", "a%20b"):
        status, _, body = curl(plane, "POST", f"/v1/workers/{unknown}/revoke", key=operator)
        assert (status, json.loads(body)["error"].split(":")[0]) == (404, "worker_not_found")
    assert plane.node(worker.id)["state"] == "enrolled"
    assert curl(plane, "POST", path, key=operator)[0] == 200


def test_workers_are_listed_page_by_page(plane):
    """The fields of a worker, and a list whose pages hold all of them once."""
    worker = workers.enroll(plane, "listed")
    worker.renew()
    shown = plane.api("GET", "/v1/workers/listed").json()
    assert set(shown) == {"worker_id", "state", "cert_serial", "expires_at", "last_seen", "enrolled_at"}
    assert shown["state"] == "active" and shown["last_seen"]
    found = []
    for page in plane.pages("/v1/workers?limit=3"):
        assert set(page) == {"workers", "next_cursor"} and len(page["workers"]) <= 3
        found += [w["worker_id"] for w in page["workers"]]
    assert found == sorted(set(found)) and "listed" in found
    for bad in ("limit=0", "limit=x", "cursor=a%20b", "colour=1"):
        answer = plane.api("GET", f"/v1/workers?{bad}")
        assert (answer.status, workers.flat(answer)) == (400, "bad_request"), bad
    assert plane.api("GET", "/v1/workers/nobody").status == 404


def test_tenants_do_not_see_each_others_workers(plane, tenants):
    """What lies in another tenant is 404, for reading and for revoking."""
    red = workers.enroll(plane, "red-1", tenant="red")
    assert certs.uris(red.cert) == [f"spiffe://{plane.domain}/tenant/red/agent/red-1"]
    key = {name: make_key(plane, "operator", "--tenant", name)["key"] for name in ("red", "blue")}
    for path, method in (("/v1/workers/red-1", "GET"), ("/v1/workers/red-1/revoke", "POST")):
        assert curl(plane, method, path, key=key["blue"])[0] == 404
        assert curl(plane, method, path, "-H", "X-Tenant: red", key=key["blue"])[0] == 404
        assert plane.api(method, path).status == 404, "no header means the tenant `default`"
        assert plane.api(method, path, headers={"X-Tenant": "blue"}).status == 404
    for header in ((), ("-H", "X-Tenant: red")):
        known, unknown = (
            curl(plane, "POST", f"/v1/workers/{name}/revoke", *header, key=key["blue"]) for name in ("red-1", "nobody")
        )
        assert known[0] == unknown[0] and json.loads(known[2]).keys() == json.loads(unknown[2]).keys()
        assert known[2].replace("red-1", "nobody").split("request_id")[0] == unknown[2].split("request_id")[0]
    assert plane.api("GET", "/v1/workers", headers={"X-Tenant": "nowhere"}).status == 404
    assert plane.node("red-1")["state"] == "enrolled"
    listed = plane.api("GET", "/v1/workers", headers={"X-Tenant": "red"}).json()["workers"]
    assert "red-1" in [w["worker_id"] for w in listed]
    assert "red-1" not in [w["worker_id"] for w in json.loads(curl(plane, "GET", "/v1/workers", key=key["blue"])[2])["workers"]]
    assert curl(plane, "POST", "/v1/workers/red-1/revoke", key=key["red"])[0] == 200
    answer = workers.ask_enroll(plane, workers.token(plane, tenant="blue"), workers.csr(name="worker:red-1"))
    assert (answer.status, workers.flat(answer)) == (403, "worker_id_in_use"), "ids are unique in the domain"


def test_a_door_that_is_shut_is_404(programs):
    """D23: `--door plfm` alone leaves this one shut."""
    with ControlPlane(init=("--door", "plfm")) as other:
        for path in ("/v1/enroll", "/v1/renew", "/v1/workers/x/revoke"):
            assert other.api("POST", path, {}).status == 404
        assert other.api("GET", "/v1/workers").status == 404
