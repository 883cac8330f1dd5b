"""The TaskRun document's development set-up, word for word: openssl makes everything, `server init --from-taskrun`
takes the TOML as it stands, `node import` admits the worker's certificate. TASK-02, TASK-03, TASK-15, TASK-16,
TASK-19, TASK-20, D35."""

import datetime
import http.client
import json
import shutil
import socket
import ssl
import stat
import subprocess
import time

import certs
import evidence
import native
import pytest
import workers
from daemons import Daemon
from machine import PATIENCE, need, scratch, tool, until
from operators import curl, make_key
from plane import ControlPlane

# As in the document, but for the directory.
SETUP = """
# Generate CA
openssl ecparam -genkey -name prime256v1 -out ca.key
openssl req -new -x509 -days 3650 -key ca.key -out ca.crt \
  -subj "/CN=TaskRun Development CA"

# Generate server cert
openssl ecparam -genkey -name prime256v1 -out server.key
openssl req -new -key server.key -out server.csr \
  -subj "/CN=taskrun-control-plane"
openssl x509 -req -days 365 -in server.csr -CA ca.crt -CAkey ca.key \
  -CAcreateserial -out server.crt \
  -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")

# Generate worker cert (for testing without enrollment)
openssl ecparam -genkey -name prime256v1 -out worker.key
openssl req -new -key worker.key -out worker.csr \
  -subj "/CN=worker:dev-worker-001"
openssl x509 -req -days 7 -in worker.csr -CA ca.crt -CAkey ca.key \
  -CAcreateserial -out worker.crt
"""

TOML = """
[tls]
# CA for signing worker certs
ca_cert = "certs/ca.crt"
ca_key = "certs/ca.key"

# Server certificate
server_cert = "certs/server.crt"
server_key = "certs/server.key"

# mTLS settings
require_client_cert = true
worker_cert_validity_days = 7

[enrollment]
bootstrap_token_validity_hours = 1
"""


def bash(script: str, place) -> None:
    need("openssl")
    done = subprocess.run(
        [need("bash"), "-e", "-o", "pipefail"], input=script.encode(), cwd=place, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def set_up(toml: str = TOML):
    """The folder of the document's operator: control-plane.toml and certs/."""
    place = scratch("dev")
    (place / "certs").mkdir()
    bash(SETUP, place / "certs")
    (place / "control-plane.toml").write_text(toml)
    for name in ("ca", "server", "worker"):
        text = (place / "certs" / f"{name}.key").read_bytes()
        assert b"BEGIN EC PARAMETERS" in text
        evidence.private_key(name, text[text.index(b"-----BEGIN EC PRIVATE KEY") :])
    return place


def founded_from(place) -> ControlPlane:
    return ControlPlane(init=("--from-taskrun", place / "control-plane.toml"))


def make_worker(certs_dir, name: str, *options, subject: str | None = None, key=True) -> tuple:
    """Another worker's certificate by the same commands."""
    if key:
        tool("openssl", "ecparam", "-genkey", "-name", "prime256v1", "-out", certs_dir / f"{name}.key")
    request = certs_dir / f"{name}.csr"
    subject = subject if subject is not None else f"/CN=worker:{name}"
    tool("openssl", "req", "-new", "-key", certs_dir / f"{name}.key", "-out", request, "-subj", subject)
    made = certs_dir / f"{name}.crt"
    ca = ("-CA", certs_dir / "ca.crt", "-CAkey", certs_dir / "ca.key")
    days = () if "-days" in options or "-not_after" in options else ("-days", "7")
    serial = () if "-set_serial" in options else ("-CAcreateserial",)
    tool("openssl", "x509", "-req", *days, "-in", request, *ca, *serial, "-out", made, *options)
    return made, certs_dir / f"{name}.key"


@pytest.fixture(scope="module")
def place(programs):
    return set_up()


@pytest.fixture(scope="module")
def plane(place):
    """A control plane founded from the document's own files."""
    with founded_from(place) as running:
        running.policy("failures.per_minute", "0")
        yield running


def imported(plane, certificate):
    return plane.api("POST", "/v1/nodes/import", {"certificate": certificate.read_text()})


def test_the_ca_is_the_one_that_openssl_made(place, plane):
    """Proves TASK-19: the domain's root is `TaskRun Development CA`, whose key is not stored in the clear."""
    anchor = certs.certificate((place / "certs" / "ca.crt").read_bytes())
    assert anchor.subject.rfc4514_string() == "CN=TaskRun Development CA"
    assert plane.pin == "sha256:" + certs.fingerprint(anchor)
    assert plane.bundle == certs.pem(anchor)
    assert not plane.founded.get("root_key_pem")
    kinds = [issuer["kind"] for issuer in plane.api("GET", "/v1/ca").json()["issuers"]]
    assert kinds == ["imported"]


def test_the_server_shows_the_certificate_that_openssl_made(place, plane):
    """Proves TASK-16, TASK-19, D35: server_cert and server_key are used as given, and ca.crt alone verifies them."""
    given = certs.certificate((place / "certs" / "server.crt").read_bytes())
    for name in ("localhost", "127.0.0.1", "::1"):
        context = ssl.create_default_context(cafile=place / "certs" / "ca.crt")
        with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as raw:
            with context.wrap_socket(raw, server_hostname=name) as tls:
                assert tls.getpeercert(True) == certs.der(given)
    assert certs.certificates((plane.dir / "ca" / "server.pem").read_bytes())[0] == given
    plane.restart()
    with socket.create_connection(("127.0.0.1", plane.port), PATIENCE) as raw:
        with context.wrap_socket(raw, server_hostname="localhost") as tls:
            assert tls.getpeercert(True) == certs.der(given), "also after a restart"


def test_the_toml_sets_lifetimes_and_profile(plane):
    """Proves TASK-16: validity of workers and tokens, and the profile, come from the file."""
    shown = {item["key"]: item["value"] for item in plane.api("GET", "/v1/policy").json()["items"]}
    assert (shown["profile.taskrun.lifetime"], shown["token.default_ttl"]) == ("7d", "1h")
    node = native.enroll(plane)
    leaf = certs.certificate(node.answer.certificate)
    assert node.answer.profile == "taskrun", "the domain's default"
    assert leaf.issuer.rfc4514_string() == "CN=TaskRun Development CA"


def test_a_worker_enrolls_under_the_imported_ca(place, plane):
    """Proves TASK-07, TASK-19: `worker_cert` is the leaf alone, `ca_cert` is ca.crt."""
    key = certs.ec_key()
    answer = workers.ask_enroll(plane, workers.token(plane), workers.csr(key, "worker:enrolled-1"))
    assert answer.status == 200, answer
    assert len(certs.certificates(answer.json()["worker_cert"])) == 1
    assert answer.json()["ca_cert"].encode() == certs.pem(certs.certificate((place / "certs" / "ca.crt").read_bytes()))
    assert certs.verifies(answer.json()["worker_cert"].encode(), (place / "certs" / "ca.crt").read_bytes())
    worker = workers.Worker(plane, key, answer.json()["worker_cert"], "enrolled-1")
    assert worker.renew().status == 200


def test_the_openssl_worker_is_unknown_until_it_is_imported(place, plane):
    """Proves TASK-19, D35: the document's worker certificate, version 1 where openssl makes it so, before and after."""
    files = (place / "certs" / "worker.crt", place / "certs" / "worker.key")
    leaf = certs.certificate(files[0].read_bytes())
    assert native.alert(plane, files) is not None, "nobody vouches for it yet"
    done = plane.cli("node", "import", "--cert", files[0])
    node = done.json()
    assert (node["node_id"], node["state"]) == ("dev-worker-001", "enrolled")
    assert (node["tenant"], node["profile"]) == ("default", "taskrun")
    assert node["cert_serial"] == certs.serial(leaf)
    end = datetime.datetime.fromisoformat(node["cert_not_after"])
    assert end == leaf.not_valid_after_utc
    assert plane.cli("node", "import", "--cert", files[0]).json()["node_id"] == "dev-worker-001", "also twice"
    line = plane.audit("host.imported")
    assert len(line) == 1 and line[0]["host_id"] == line[0]["node_id"] == "dev-worker-001"
    assert line[0]["mtls_cert_fingerprint"] == "SHA256:" + certs.fingerprint(leaf)
    assert native.alert(plane, files) is None
    with workers.Run(plane, files, (place / "certs" / "ca.crt").read_bytes()) as run:
        run.hello("dev-worker-001")
        assert run.ack() == ("hello", "dev-worker-001")
        assert plane.node("dev-worker-001")["state"] == "active"
    key = certs.ec_key()
    answer = plane.https("POST", "/v1/renew", {"csr": certs.csr(key, "x")}, certificate=files)
    assert answer.status == 200, answer
    renewed = workers.Worker(plane, key, answer.json()["worker_cert"], "dev-worker-001")
    assert renewed.cert.subject.rfc4514_string() == "CN=worker:dev-worker-001"
    assert certs.uris(renewed.cert), "an ordinary leaf"
    plane.policy("renew.drain", "1s")
    assert renewed.renew().status == 200
    until(lambda: refused_now(plane, files), "the old one is superseded")


def refused_now(plane, files) -> bool:
    """Whether a new connection with the certificate is refused."""
    try:
        return native.alert(plane, files) is not None
    except AssertionError:
        return True  # cut between handshake and answer


def test_the_documents_worker_certificate_is_version_1(place):
    """What D35 is about: without -extfile, openssl 3.0 writes version 1. (Later ones write version 3.)"""
    text = tool("openssl", "x509", "-in", place / "certs" / "worker.crt", "-noout", "-text").out
    version = tool("openssl", "version").out
    assert "Version: 1 (0x0)" in text or not version.startswith("OpenSSL 3.0"), text


def test_only_the_imported_certificate_is_accepted(place, plane):
    """D35: another certificate of the same CA, with the same name and key or with the same serial, is not."""
    made, key = make_worker(place / "certs", "exact-1")
    assert imported(plane, made).status == 200
    assert native.alert(plane, (made, key)) is None
    again = scratch("again") / "exact-1.crt"
    again.write_bytes(made.read_bytes())
    (again.parent / "exact-1.key").write_bytes(key.read_bytes())
    twin, _ = make_worker(place / "certs", "exact-1", key=False)
    assert native.alert(plane, (twin, key)) is not None, "the same name and key"
    serial = "0x" + certs.serial(certs.certificate(again.read_bytes()))
    forged, forged_key = make_worker(place / "certs", "exact-2", "-set_serial", serial, subject="/CN=worker:exact-1")
    assert native.alert(plane, (forged, forged_key)) is not None, "the same name and serial"
    assert native.alert(plane, (again, key)) is None
    # Somebody else's key cannot speak for it either.
    with pytest.raises(ssl.SSLError):
        native.alert(plane, (again, forged_key))


def test_a_version_3_certificate_without_uses_is_imported_too(place, plane):
    """D35: extensions change nothing; SAN and CN are not read, the record says whose it is."""
    extensions = scratch("ext") / "ext"
    extensions.write_text(f"subjectAltName=URI:spiffe://{plane.domain}/tenant/default/agent/somebody-else\n")
    made, key = make_worker(place / "certs", "v3-1", "-extfile", extensions)
    answer = imported(plane, made)
    assert (answer.status, answer.json()["node_id"]) == (200, "v3-1")
    with workers.Run(plane, (made, key)) as run:
        assert run.hello("v3-1").ack() == ("hello", "v3-1")
    bare, bare_key = make_worker(place / "certs", "bare-1", subject="/O=Lab/CN=bare-1")
    assert imported(plane, bare).json()["node_id"] == "bare-1"
    assert native.alert(plane, (bare, bare_key)) is None
    rsa = place / "certs" / "rsa-1.key"
    tool("openssl", "genrsa", "-out", rsa, "2048")
    made, key = make_worker(place / "certs", "rsa-1", key=False)
    assert imported(plane, made).status == 200
    assert native.alert(plane, (made, key)) is None


def test_the_agent_goes_on_with_the_certificate_that_openssl_made(place, plane):
    """Proves TASK-17, TASK-19: the worker's file as it stands, beside the document's development certificate. Once that
    is taken in, the agent renews it without a token; what was there is kept aside."""
    home = scratch("worker")
    (home / "certs").mkdir()
    made, key = make_worker(place / "certs", "dev-worker-agent")
    shutil.copy(made, home / "certs/worker.crt")
    shutil.copy(key, home / "certs/worker.key")
    shutil.copy(place / "certs/ca.crt", home / "certs/ca.crt")
    (home / "worker.toml").write_text(
        '[tls]\nca_cert = "certs/ca.crt"\nworker_cert = "certs/worker.crt"\nworker_key = "certs/worker.key"\n'
        'bootstrap_token = "${TASKRUN_BOOTSTRAP_TOKEN}"\n'
    )
    daemon = Daemon(plane, arguments=("--from-taskrun", home / "worker.toml"))
    del daemon.environment["ENLIST_AGENT_CA_PIN"]
    daemon.start()
    try:
        until(lambda: "enlist node import" in daemon.log(), "the agent says who can help")
        assert imported(plane, made).status == 200
        daemon.wait_connected()
        assert daemon.node_id() == "dev-worker-agent"
        there = home / "certs"
        leaf = certs.certificates((there / "worker.crt").read_bytes())[0]
        assert certs.serial(leaf) == daemon.serial() == plane.node("dev-worker-agent")["cert_serial"]
        assert certs.uris(leaf) == [f"spiffe://{plane.domain}/tenant/default/agent/dev-worker-agent"]
        assert (there / "worker.crt").is_symlink() and (there / "worker.key").is_symlink()
        assert (there / "worker.crt.before").read_bytes() == made.read_bytes()
        assert (there / "worker.key.before").read_bytes() == key.read_bytes()
        assert daemon.stop() == 0
        daemon.start().wait_connected()
    finally:
        daemon.stop()
        daemon.note_secrets()


def test_an_imported_worker_is_revoked_like_any_other(place, plane):
    """Proves TASK-12, TASK-13: alert 44, the open stream ends, the list of revocations names it, the id stays taken."""
    made, key = make_worker(place / "certs", "gone-1")
    assert imported(plane, made).status == 200
    with workers.Run(plane, (made, key)) as run:
        run.hello("gone-1").ack()
        assert plane.api("POST", "/v1/workers/gone-1/revoke").status == 200
        assert run.wait_end() is not None
    assert native.alert(plane, (made, key)) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    plane.restart()
    assert native.alert(plane, (made, key)) == "SSLV3_ALERT_CERTIFICATE_REVOKED", "also after a restart"
    answer = imported(plane, made)
    assert (answer.status, answer.code) == (403, "node_revoked")
    other, _ = make_worker(place / "certs", "gone-2", subject="/CN=worker:gone-1")
    answer = imported(plane, other)
    assert (answer.status, answer.code) == (403, "node_id_in_use")


def test_an_imported_certificate_ends_when_it_says(place, plane):
    """D35: its dates count."""
    end = time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() + 20))
    begin = time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() - 60))
    database = scratch("db")
    (database / "index.txt").write_text("")
    (database / "serial").write_text("7a01\n")
    config = database / "ca.cnf"
    config.write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=%s/index.txt\nserial=%s/serial\nnew_certs_dir=%s\ndefault_md=sha256\n"
        "policy=p\n[p]\ncommonName=supplied\n" % (database, database, database)
    )
    make_worker(place / "certs", "brief-1")
    made = place / "certs" / "brief-1.crt"
    signing = ("-cert", place / "certs" / "ca.crt", "-keyfile", place / "certs" / "ca.key", "-notext", "-batch")
    dates = ("-startdate", begin, "-enddate", end)
    tool("openssl", "ca", "-config", config, *signing, *dates, "-in", place / "certs" / "brief-1.csr", "-out", made)
    assert imported(plane, made).status == 200
    files = (made, place / "certs" / "brief-1.key")
    assert native.alert(plane, files) is None
    last = certs.certificate(made.read_bytes()).not_valid_after_utc
    until(lambda: datetime.datetime.now(datetime.UTC) > last + datetime.timedelta(seconds=1), "it ends")
    assert native.alert(plane, files) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


def test_what_cannot_be_imported(place, plane):
    """D35: garbage, a CA's certificate, another CA's, an expired one, an id or a serial that is taken."""
    folder = place / "certs"

    def code(file, text: str | None = None):
        answer = plane.api("POST", "/v1/nodes/import", {"certificate": text if text is not None else file.read_text()})
        return answer.status, answer.code

    assert code(None, "") == (400, "certificate_invalid")
    assert code(None, "x" * 60_000) == (400, "certificate_invalid")
    assert code(folder / "ca.crt") == (400, "certificate_invalid")
    own = plane.api("POST", "/v1/nodes/import", {"certificate": (folder / "server.crt").read_text()})
    assert (own.status, own.code) == (400, "certificate_invalid") and "server certificate" in own.json()["error"]["message"]
    assert code(make_worker(folder, "anon-1", subject="/O=Nobody")[0]) == (400, "certificate_invalid")
    assert code(make_worker(folder, "odd-1", subject="/CN=worker:not an id")[0]) == (400, "certificate_invalid")
    other = set_up()
    assert code(other / "certs" / "worker.crt") == (400, "certificate_not_ours"), "a CA of the same name"
    expired, _ = make_worker(folder, "expired-1", "-days", "-1")
    assert code(expired) == (400, "certificate_expired")
    workers.enroll(plane, "taken-1")
    assert code(make_worker(folder, "taken-1")[0]) == (403, "node_id_in_use")
    first, _ = make_worker(folder, "serial-1", "-set_serial", "4711")
    assert code(first) == (200, None)
    second, _ = make_worker(folder, "serial-2", "-set_serial", "4711")
    assert code(second) == (409, "serial_in_use")
    for serial in ("0", "-4711", "-1"):
        odd, _ = make_worker(folder, "serial-4", "-set_serial", serial)
        assert code(odd) == (400, "certificate_invalid"), serial
    same, _ = make_worker(folder, "serial-1", key=False, subject="/CN=worker:serial-3")
    assert code(same) == (409, "key_in_use")
    assert plane.api("POST", "/v1/nodes/import", {"certificate": "x", "colour": 1}).status == 400
    assert plane.api("POST", "/v1/nodes/import", {}).status == 400
    refused = plane.cli("node", "import", "--cert", other / "certs" / "worker.crt", ok=False)
    assert (refused.code, refused.error()["code"]) == (3, "certificate_not_ours")
    absent = plane.cli("node", "import", "--cert", folder / "absent.crt", ok=False)
    assert absent.code == 2, absent


def test_only_platform_admins_of_all_tenants_import(place, plane):
    """D35: an operator is 403, a platform-admin of one tenant too, nobody is 401; and nothing was taken in."""
    made, _ = make_worker(place / "certs", "roles-1")
    body = scratch("body") / "body.json"
    body.write_text(json.dumps({"certificate": made.read_text()}))
    ask = ("-H", "Content-Type: application/json", "-d", f"@{body}")
    for role, options, status in (
        ("viewer", (), 403),
        ("operator", (), 403),
        ("platform-admin", ("--tenant", "default"), 403),
        ("platform-admin", (), 200),
    ):
        key = make_key(plane, role, *options)["key"]
        # Whether it may is looked at before what it says.
        garbage = ("-H", "Content-Type: application/json", "-d", "{")
        assert curl(plane, "POST", "/v1/nodes/import", *garbage, key=key)[0] == (400 if status == 200 else 403), role
        assert curl(plane, "POST", "/v1/nodes/import", *ask, key=key)[0] == status, role
    assert plane.https("POST", "/v1/nodes/import", {"certificate": made.read_text()}).status == 401


def test_imports_go_into_the_tenant_default_alone(place, plane):
    """D35: another tenant in X-Tenant or in the body is refused, and nothing was taken in."""
    assert plane.api("POST", "/v1/tenants", {"name": "elsewhere"}).status == 201
    made, _ = make_worker(place / "certs", "tenant-1")
    body = {"certificate": made.read_text()}
    for tenant, status, code in (
        ("elsewhere", 400, "bad_request"),
        ("nowhere", 404, "tenant_not_found"),
        ("no tenant", 400, "bad_request"),
    ):
        answer = plane.api("POST", "/v1/nodes/import", body, {"X-Tenant": tenant})
        assert (answer.status, answer.code) == (status, code), tenant
    assert plane.api("POST", "/v1/nodes/import", {**body, "tenant": "elsewhere"}).status == 400
    assert plane.api("GET", "/v1/nodes/tenant-1").status == 404
    answer = plane.api("POST", "/v1/nodes/import", body, {"X-Tenant": "default"})
    assert (answer.status, answer.json()["tenant"]) == (200, "default")


def test_a_domain_with_a_ca_of_its_own_imports_nothing(place, programs):
    """D35: only an imported CA vouches for what was made elsewhere."""
    with ControlPlane() as sealed:
        answer = sealed.api("POST", "/v1/nodes/import", {"certificate": (place / "certs" / "worker.crt").read_text()})
        assert (answer.status, answer.code) == (400, "certificate_not_ours")


def test_the_ca_is_made_on_first_run(programs):
    """Proves TASK-02, TASK-15, TASK-20: without files there is a new CA, ca.key 0600 and ca.crt 0644, and our own
    server certificate."""
    folder = scratch("first")
    (folder / "control-plane.toml").write_text(TOML)
    with founded_from(folder) as own:
        cert, key = folder / "certs" / "ca.crt", folder / "certs" / "ca.key"
        assert stat.S_IMODE(cert.stat().st_mode) == 0o644
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        evidence.private_key("root", key.read_bytes())
        root = certs.certificate(cert.read_bytes())
        assert root.public_key().curve.name == "secp256r1"
        assert abs(certs.seconds(root) - 3652 * 86_400) < 5 * 86_400
        assert own.pin == "sha256:" + certs.fingerprint(root)
        assert not own.founded.get("root_key_pem"), "it went to its file"
        assert not (folder / "certs" / "server.crt").exists()
        context = ssl.create_default_context(cafile=cert)
        connection = http.client.HTTPSConnection("localhost", own.port, context=context, timeout=PATIENCE)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        leaf = certs.certificate((own.dir / "ca" / "server.pem").read_bytes())
        assert leaf.subject.rfc4514_string() == "CN=taskrun-control-plane"
        assert workers.enroll(own, "first-1").renew().status == 200
        connection.close()
    # Found again elsewhere, the same files are a CA that exists.
    with founded_from(folder) as again:
        assert again.pin == own.pin
        assert workers.enroll(again, "second-1").renew().status == 200


def test_the_root_key_of_a_new_ca_can_go_elsewhere(programs):
    """TASK-02: `--root-key-out` keeps it off the control plane from the start."""
    folder = scratch("else")
    (folder / "control-plane.toml").write_text(TOML)
    plane = ControlPlane(init=("--from-taskrun", folder / "control-plane.toml", "--root-key-out", folder / "safe.pem"))
    done = plane.init_command()
    assert done.code == 0, done
    assert (folder / "safe.pem").exists() and not (folder / "certs" / "ca.key").exists()
    evidence.private_key("root", (folder / "safe.pem").read_bytes())


@pytest.mark.parametrize(
    "change, keys",
    [
        (("ca_cert =", "ca_certificate ="), {"tls.ca_certificate", "tls.ca_cert"}),
        (("require_client_cert = true", "require_client_cert = false"), {"tls.require_client_cert"}),
        (("worker_cert_validity_days = 7", "worker_cert_validity_days = 91"), {"tls.worker_cert_validity_days"}),
        (("token_validity_hours = 1", "token_validity_hours = 25"), {"enrollment.bootstrap_token_validity_hours"}),
        (("[enrollment]", "[enrolment]"), {"enrolment"}),
        (
            ("server_key = ", "server_kye = "),
            {"tls.server_kye", "tls.server_key"},
        ),
        (("[tls]", 'colour = "red"\n[tls]\nca = 1'), {"colour", "tls.ca"}),
    ],
)
def test_every_mistake_in_the_toml_is_told_at_once(place, change, keys):
    """Proves TASK-16: misspelt keys, refused values and numbers out of bounds; exit 2 and nothing made."""
    text = TOML.replace(*change)
    assert text != TOML
    wrong = place / "wrong.toml"
    wrong.write_text(text)
    plane = ControlPlane(init=("--from-taskrun", wrong))
    done = plane.init_command()
    assert done.code == 2, done
    assert keys <= {mistake["key"] for mistake in done.error()["mistakes"]}, done
    assert not plane.dir.exists()


def test_half_a_pair_is_a_mistake(programs):
    """Proves TASK-16, TASK-20: a CA or server certificate without its key, or a key that is another's, is refused."""
    for absent in ("ca.key", "ca.crt", "server.key", "server.crt"):
        folder = set_up()
        (folder / "certs" / absent).unlink()
        done = founded_from(folder).init_command()
        assert done.code == 2, done
        assert absent in done.err
    folder = set_up()
    (folder / "certs" / "server.key").write_bytes((folder / "certs" / "worker.key").read_bytes())
    plane = founded_from(folder)
    done = plane.init_command()
    assert (done.code, done.error()["code"]) == (2, "server_certificate"), done
    assert not plane.dir.exists()
    for text in ("", "[tls", "tls = 3"):
        (folder / "control-plane.toml").write_text(text)
        assert founded_from(folder).init_command().code == 2
    (folder / "control-plane.toml").unlink()
    assert founded_from(folder).init_command().code == 2


def test_a_server_certificate_of_another_ca_is_warned_about(programs):
    """D35: it is used as given, and the operator is told that hosts will refuse it."""
    folder, other = set_up(), set_up()
    for name in ("server.crt", "server.key"):
        (folder / "certs" / name).write_bytes((other / "certs" / name).read_bytes())
    (folder / "certs" / "server.key").chmod(0o644)
    done = founded_from(folder).init_command()
    assert done.code == 0, done
    warnings = " ".join(done.json()["warnings"])
    assert "not issued under this CA" in warnings and "server.key" in warnings


def test_a_ca_key_that_others_may_read_is_refused(programs):
    """Before anything is made of it. Proves TASK-15."""
    folder = set_up()
    (folder / "certs" / "ca.key").chmod(0o644)
    plane = founded_from(folder)
    done = plane.init_command()
    assert (done.code, done.error()["code"]) == (1, "key_exposed"), done
    assert "chmod 600" in done.error()["hint"] and not plane.dir.exists()
    (folder / "certs" / "ca.key").chmod(0o600)
    assert plane.init_command().code == 0


def test_the_flags_that_contradict_the_file_are_refused(place):
    """`--issuer`, `--ca-cert`, `--ca-key` and `--profile` are what the file says."""
    for flag in (("--issuer", "sealed"), ("--ca-cert", "x"), ("--profile", "plfm")):
        plane = ControlPlane(init=("--from-taskrun", place / "control-plane.toml", *flag))
        assert plane.init_command().code == 2


def test_other_numbers_in_the_toml_take_effect(programs):
    """Proves TASK-06, TASK-10, TASK-16: 1 day and 2 hours."""
    text = TOML.replace("days = 7", "days = 1").replace("hours = 1", "hours = 2")
    with founded_from(set_up(text)) as own:
        worker = workers.enroll(own)
        assert abs(certs.seconds(worker.cert) - 86_400) <= 120
        minted = own.mint(door="taskrun")
        left = datetime.datetime.fromisoformat(minted["expires_at"]) - datetime.datetime.now(datetime.UTC)
        assert datetime.timedelta(minutes=115) < left < datetime.timedelta(minutes=125)
