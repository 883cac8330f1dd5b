"""A node of 004, by that document's own names: its variables, files, metrics and words.

What a fault does to such a node is in test_faults*.py, test_bundles.py and test_stolen.py.
"""

import os
import re
import time

import pytest

import certs
import evidence
from faults import Patient, asked, kinds
from impostors import Authority, Crossing, behind, home
from machine import AGENT, need, run, scratch, until

PREFIX = "gpuaas_node_agent_"
METRICS = {
    "cert_expiry_seconds": "",
    "cert_renewal_attempts_total": "",
    "cert_renewal_failures_total": "reason",
    "recovery_enrollment_attempts_total": "reason",
    "recovery_enrollment_success_total": "",
    "recovery_enrollment_failures_total": "reason",
    "last_successful_mtls_task_poll_timestamp": "",
    "endpoint_profile_drift_total": "",
    "local_diagnostic_write_failures_total": "reason",
    "node_filesystem_available_bytes": "mount",
    "observability_dropped_records_total": "source,reason",
}


def documented(plane, place, **more) -> dict:
    """The document's host state, as it writes it."""
    bundle = str(plane.dir / "ca/bundle.pem")
    return {
        "GPUAAS_API_URL": plane.url,
        "GPUAAS_TERMINAL_API_URL": plane.url.replace("https", "wss"),
        "GPUAAS_CA_BUNDLE_PATH": bundle,
        "GPUAAS_NODE_CERT_CA_BUNDLE_PATH": str(place / "gpu/node-ca.pem"),
        "GPUAAS_CERT_PATH": str(place / "gpu/cert.pem"),
        "GPUAAS_KEY_PATH": str(place / "gpu/key.pem"),
        "GPUAAS_ENROLLMENT_TOKEN": plane.token(),
        "GPUAAS_RECOVERY_API_URL": plane.url,
        "GPUAAS_RECOVERY_CA_BUNDLE_PATH": bundle,
        "GPUAAS_DIAGNOSTIC_PATH": str(place / "diagnostics"),
        "ENLIST_AGENT_LAYOUT": "gpuaas",
        **more,
    }


class Node(Patient):
    """An agent that is told everything in the document's words."""

    def __init__(self, plane, **more):
        self.place = scratch("gpu")
        (self.place / "gpu").mkdir()
        super().__init__(plane)
        for name in ("ENLIST_AGENT_SERVER", "ENLIST_AGENT_CA_PIN"):
            del self.environment[name]
        self.environment |= documented(plane, self.place, **more)

    @property
    def diagnostics_path(self):
        return self.place / "diagnostics"

    def gpuaas(self, name: str) -> float:
        found = [line for line in self.metrics().splitlines() if re.match(rf"{PREFIX}{name}[ {{]", line)]
        assert found, f"{name} is missing: {self.metrics()}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


@pytest.fixture(scope="module", autouse=True)
def quick(plane):
    plane.policy("liveness.interval", "1s")


@pytest.fixture(scope="module")
def node(plane):
    made = Node(plane).start().wait_connected()
    made.wait_token()
    yield made
    made.stop()
    made.note_secrets()


def rotated(plane, node: Node) -> None:
    before = node.serial()
    plane.cli("node", "rotate", node.node_id())
    until(lambda: node.serial() != before, "it is renewed")
    until(lambda: plane.node(node.node_id())["cert_serial"] == node.serial(), "both agree on it")


def test_one_destination(plane, place):
    """Enrolling, living and renewing: every connection goes to the API's address, none to an issuer.

    Proves GPU-01, GPU-02.
    """
    need("strace")
    node = Node(plane)
    trace = place / "trace"
    node.prefix = ("strace", "-f", "-qq", "-e", "trace=connect", "-o", str(trace))
    node.start().wait_connected()
    pid = node.process.pid
    rotated(plane, node)
    # strace passes nothing on: its child is the agent.
    (agent,) = open(f"/proc/{pid}/task/{pid}/children").read().split()
    os.kill(int(agent), 15)
    assert node.process.wait(60) == 0
    node.note_secrets()
    found = set(re.findall(r"sin6?_port=htons\((\d+)\)", trace.read_text()))
    assert found == {str(plane.port)}, trace.read_text()


def test_the_current_certificate_renews(plane, node):
    """No token is used while the certificate does. Proves GPU-03, GPU-13."""
    token = node.wait_token()
    key = (node.place / "gpu/key.pem").read_bytes()
    before = len(kinds(plane, node.node_id(), "certificate.renewed"))
    rotated(plane, node)
    assert len(kinds(plane, node.node_id(), "certificate.renewed")) == before + 1
    assert kinds(plane, node.node_id(), "recovery.requested", "recovery.issued") == []
    assert (node.place / "gpu/key.pem").read_bytes() != key, "a new key pair each time"
    until(lambda: node.wait_token() != token, "the recovery token is another, too")
    line = [line for line in plane.audit("certificate.renewed") if line["node_id"] == node.node_id()][-1]
    assert line["actor"] == f"node:{node.node_id()}"


def test_the_documents_variables(plane, node):
    """All ten of them. Proves GPU-10, GPU-31."""
    place = node.place
    leaf = certs.certificates((place / "gpu/cert.pem").read_bytes())[0]
    assert certs.serial(leaf) == node.serial()
    assert os.path.realpath(place / "gpu/key.pem") == os.path.realpath(node.current / "key.pem")
    assert (place / "gpu/key.pem").stat().st_mode & 0o7777 == 0o600
    assert certs.verifies(certs.pem(leaf), (place / "gpu/node-ca.pem").read_bytes()), "what issued the node"
    assert node.diagnostics_path.is_dir() and not (node.dir / "diagnostics").exists()
    assert node.doctor()["ok"], node.doctor()
    # The terminal's address is looked after as the API's is: a name that is gone would be found.
    elsewhere = node.agent("doctor", env={"GPUAAS_TERMINAL_API_URL": "wss://terminal.invalid/v1"}).json()
    resolution = next(check for check in elsewhere["checks"] if check["name"] == "resolution")
    assert not resolution["ok"] and "terminal.invalid" in resolution["evidence"], resolution


def test_the_documents_own_places(plane):
    """Without variables the files are /etc/gpuaas/cert.pem and key.pem; nothing but the agent writes them.

    Proves GPU-31, GPU-35.
    """
    need("unshare")
    etc = scratch("etc") / "etc"
    etc.mkdir()
    for name in ("hosts", "nsswitch.conf", "passwd", "group", "ld.so.cache"):
        if os.path.exists(f"/etc/{name}"):
            (etc / name).write_bytes(open(f"/etc/{name}", "rb").read())
    node = Node(plane)
    for name in ("CERT_PATH", "KEY_PATH", "NODE_CERT_CA_BUNDLE_PATH"):
        del node.environment[f"GPUAAS_{name}"]
    node.prefix = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc))
    node.start().wait_connected()
    try:
        assert sorted(os.listdir(etc / "gpuaas")) >= ["cert.pem", "key.pem"]
        assert os.readlink(etc / "gpuaas/key.pem") == str(node.current / "key.pem")
        leaf = certs.certificates((etc / "gpuaas/cert.pem").read_bytes())[0]
        assert certs.serial(leaf) == node.serial()
    finally:
        node.stop()
        node.note_secrets()


def test_recovery_goes_to_the_runtime_only_when_marked_safe(programs):
    """A host whose certificate has ended, where neither the variables nor the control plane name a recovery endpoint: the runtime's is
    asked only if an operator has set `recovery_same_as_runtime`. Without that the host keeps its token and sends it to nobody.

    Proves GPU-10.
    """
    minute = {"profile.default.lifetime": "60s", "liveness.grace": "2s"}
    with Crossing() as crossing, behind(crossing, **minute) as plane:
        home(plane, crossing)
        node = Node(plane).start().wait_connected()
        token, name = node.wait_token(), node.node_id()
        node.stop()
        node.note_secrets()
        token, end = node.wait_token(), certs.certificate((node.current / "cert.pem").read_bytes()).not_valid_after_utc
        for variable in ("RECOVERY_API_URL", "RECOVERY_CA_BUNDLE_PATH", "ENROLLMENT_TOKEN"):
            del node.environment[f"GPUAAS_{variable}"]
        (node.dir / "recovery" / "profile.json").unlink()
        until(lambda: time.time() > end.timestamp() + 1, "its certificate has ended", 120)
        before = asked(plane, name)
        node.start()
        node.told("recovery_enrollment_blocked")
        assert asked(plane, name) == before and node.wait_token() == token
        node.stop()
        node.environment["ENLIST_AGENT_RECOVERY_SAME_AS_RUNTIME"] = "true"
        node.start().wait_connected()
        assert kinds(plane, name, "recovery.issued") == ["recovery.issued"]
        node.stop()
        node.note_secrets()


def test_a_recovery_endpoint_is_trusted_by_its_own_bundle_alone(plane, place):
    """A recovery URL of its own is used with its own bundle alone, and never in clear. Proves GPU-05, GPU-10."""
    node = Node(plane)
    node.start().wait_connected()
    node.wait_token()
    node.stop()
    other = place / "other.pem"
    other.write_bytes(Authority().pem)
    done = node.agent("recover", env={"GPUAAS_RECOVERY_CA_BUNDLE_PATH": str(other)})
    assert done.code == 4, done
    assert kinds(plane, plane_node(plane, node), "recovery.requested", "recovery.refused") == []
    done = node.agent("recover", env={"GPUAAS_RECOVERY_API_URL": plane.url.replace("https", "http")})
    assert done.code == 2, done
    node.note_secrets()


def plane_node(plane, node: Node) -> str:
    """The name under which a stopped agent is known."""
    (found,) = [n["node_id"] for n in plane.nodes() if n["cert_serial"] == node.serial()]
    return found


def test_every_metric_of_the_document(plane, node):
    """Eleven names, with their labels, read by a scraper. Proves GPU-23."""
    text = node.metrics()
    evidence.log("metrics").write_text(text)
    for name, labels in METRICS.items():
        assert f"# TYPE {PREFIX}{name} {'counter' if name.endswith('_total') else 'gauge'}" in text, name
        for line in text.splitlines():
            if line.startswith(f"{PREFIX}{name}{{"):
                assert ",".join(re.findall(r'(\w+)="', line)) == labels, line
    left = node.gpuaas("cert_expiry_seconds")
    ends = certs.certificate((node.current / "cert.pem").read_bytes()).not_valid_after_utc.timestamp()
    assert abs(time.time() + left - ends) < 120
    until(lambda: abs(time.time() - node.gpuaas("last_successful_mtls_task_poll_timestamp")) < 60, "it polls")
    assert node.gpuaas("node_filesystem_available_bytes") > 0


def test_before_the_window_there_are_only_metrics(plane):
    """A fixed interval, an expiry that is counted down, and no request; inside the window, a new key.

    Proves GPU-12.
    """
    node = Node(plane, ENLIST_AGENT_CHECK_INTERVAL="1s").start().wait_connected()
    try:
        first = node.gpuaas("cert_expiry_seconds")
        until(lambda: node.gpuaas("cert_expiry_seconds") < first, "the expiry is looked at again and again")
        assert node.gpuaas("cert_renewal_attempts_total") == 0
        assert kinds(plane, node.node_id(), "certificate.renewed") == []
        key = (node.current / "key.pem").read_bytes()
        plane.policy("profile.default.lifetime", "60s")
        plane.policy("profile.default.renew_before", "58s")
        rotated(plane, node)
        serial = node.serial()
        until(lambda: node.serial() != serial, "inside the window it renews by itself")
        assert node.gpuaas("cert_renewal_attempts_total") >= 2
        assert (node.current / "key.pem").read_bytes() != key
    finally:
        plane.policy("profile.default.lifetime", "24h")
        plane.policy("profile.default.renew_before", "off")
        node.stop()
        node.note_secrets()


def test_the_operators_read_model(plane, node):
    """Everything that the document wants shown, while all is well. Proves GPU-24."""
    rotated(plane, node)
    name = node.node_id()
    until(lambda: plane.node(name)["evidence"]["recovery_ready"], "it is ready to recover")
    shown = plane.node(name)
    told = shown["evidence"]
    assert told["cert_not_after"] == shown["cert_not_after"] and told["cert_serial"] == node.serial()
    until(lambda: plane.node(name)["evidence"]["last_renewal"], "the last renewal is shown")
    assert plane.node(name)["evidence"]["last_renewal"]["ok"]
    assert told["last_recovery"] is None and told["class"] is None
    assert told["diagnostic_writable"] is True
    spaces = {space["name"]: space["available_bytes"] for space in told["free_space"]}
    assert spaces["cert"] > 0 and spaces["diagnostic"] > 0
    assert shown["schedulable"] and shown["excluded"] == [] and shown["health"]["reason"] is None
    assert "endpoint_profile_id" in told


def test_a_node_that_is_excluded_says_why(plane, node):
    """Proves GPU-24."""
    name = node.node_id()
    plane.cli("node", "drain", name)
    assert plane.node(name)["excluded"] == ["draining"]
    plane.cli("node", "undrain", name)
    plane.cli("node", "quarantine", name)
    assert plane.node(name)["excluded"] == ["quarantined"]
    plane.cli("node", "release", name)
    assert plane.node(name)["schedulable"]
    until(lambda: node.wait_token(), "it is given a recovery token again")


def test_a_recovery_token_opens_nothing_else(plane, node):
    """Not an enrollment, not the API, not a stream. Proves GPU-17."""
    import native

    token = node.wait_token()
    with native.door(plane) as door:
        assert door.refused(token, certs.good_csr()).code in ("token_invalid", "token_malformed")
    for path in ("/v1/nodes", f"/v1/nodes/{node.node_id()}", "/v1/tokens"):
        answer = plane.https("GET", path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status == 401, answer


def test_what_is_kept_for_recovery_is_kept_close(node):
    """Token 0600 in a directory 0700, and only its hash at the control plane. Proves GPU-07, GPU-20."""
    assert node.token_file().stat().st_mode & 0o7777 == 0o600
    assert node.token_file().parent.stat().st_mode & 0o7777 == 0o700
    token = node.wait_token()
    assert re.fullmatch(r"recovery_[A-Za-z0-9_-]{43}", token)
    for path in node.plane.dir.rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path


def test_trust_on_first_use_does_not_exist(plane, place):
    """Without a bundle nothing is sent, whatever else is given. Proves GPU-05."""
    env = documented(plane, place)
    del env["GPUAAS_CA_BUNDLE_PATH"]
    done = run(AGENT, "enroll", "--dir", place / "a", "--json", env=env)
    assert done.code == 2 and done.error()["code"] == "trust_missing", done


def test_room_is_kept_and_nothing_grows(plane, node):
    """Ballast for the writes that must not fail; a ring of a fixed size for the rest. Proves GPU-32, GPU-33."""
    assert (node.dir / "ballast").stat().st_size >= 1024 * 1024
    size = sum(path.stat().st_size for path in node.diagnostics_path.rglob("*") if path.is_file())
    assert size <= 256 * 1024


def test_old_connections_end_by_themselves(plane, node):
    """The switch to a new certificate interrupts nothing: at no moment is the node unknown. Proves GPU-13."""
    name = node.node_id()
    lost = len([line for line in plane.audit("host.inactive") if line["node_id"] == name])
    for _ in range(3):
        rotated(plane, node)
        assert plane.node(name)["connected"]
    assert len([line for line in plane.audit("host.inactive") if line["node_id"] == name]) == lost
    assert node.status()["channel"] in ("up", "switching")


def test_the_bootstrap_leaves_a_recovery_token(plane, place):
    """The enrollment token is the trusted bootstrap: with the first confirmed contact the recovery token is there.

    Proves GPU-18.
    """
    env = documented(plane, place)
    done = run(AGENT, "enroll", "--dir", place / "a", "--json", env=env)
    assert done.code == 0, done
    file = place / "a/recovery/token"
    evidence.token(file.read_text().strip())
    evidence.private_key("agent", (place / "a/identity/current/key.pem").read_bytes())
    rotations = [line for line in plane.audit("recovery_token.rotated") if line["node_id"] == done.json()["node_id"]]
    assert len(rotations) == 1
