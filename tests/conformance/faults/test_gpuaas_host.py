"""A host of 004 with disks of its own: every variable and its effect, the whole read model, what is reserved, what gives way."""

import os

import pytest

import certs
from daemons import lasting_port
from faults import Disk, Patient, alerts, kinds
from impostors import Authority
from machine import until
from plane import ControlPlane
from relay import Relay

FULL = "disk_full"
BALLAST = 256 * 1024
RESERVE = ".enlist-ballast"


@pytest.fixture(scope="module")
def plane(programs):
    """A control plane with an endpoint profile, which takes a moment's silence for being lost."""
    made = ControlPlane().found()
    settings = made.dir / "enlist.toml"
    port = lasting_port()
    profile = f'\n[endpoint_profile]\nid = "rack-7"\napi_urls = ["https://127.0.0.1:{port}"]\n'
    settings.write_text(settings.read_text() + profile)
    made.fixed = ("--listen", f"127.0.0.1:{port}")
    made.start(*made.fixed)
    for key, value in (("failures.per_minute", "0"), ("liveness.interval", "1s"), ("liveness.grace", "3s")):
        made.policy(key, value)
    yield made
    made.close()


@pytest.fixture
def disks():
    """Four small file systems of different sizes."""
    made = {name: Disk(f"{size}m") for name, size in (("cert", 5), ("diagnostic", 6), ("task_retry", 7), ("runtime", 8))}
    yield made
    for disk in made.values():
        disk.close()


@pytest.fixture
def host(plane, disks):
    """An agent whose four places are on four disks."""
    made = Patient(
        plane,
        plane.token(),
        ENLIST_AGENT_CHECK_INTERVAL="1s",
        ENLIST_AGENT_BALLAST_BYTES=str(BALLAST),
        ENLIST_AGENT_DIAGNOSTIC_PATH=str(disks["diagnostic"].path / "d"),
        ENLIST_AGENT_PATHS_TASK_RETRY=str(disks["task_retry"].path / "retry"),
        ENLIST_AGENT_PATHS_RUNTIME=str(disks["runtime"].path / "runtime"),
        GPUAAS_TERMINAL_API_URL="wss://127.0.0.1/terminal",
    )
    made.dir = disks["cert"].path / "a"
    made.start().wait_connected()
    made.wait_token()
    yield made
    made.stop()
    made.note_secrets()


def spaces(told: dict) -> dict:
    return {space["name"]: space["available_bytes"] for space in told["free_space"]}


def test_each_variable_has_its_effect(plane, place):
    """Proves GPU-10: all ten, each seen by what it changes.

    API and recovery are reached through a relay each, so that it can be seen which address was used for what.
    """
    gpu, other = place / "gpu", place / "other.pem"
    gpu.mkdir()
    other.write_bytes(Authority().pem)
    bundle = str(plane.dir / "ca/bundle.pem")
    with Relay(plane.port) as api, Relay(plane.port) as recovery:
        node = Patient(plane)
        for name in ("ENLIST_AGENT_SERVER", "ENLIST_AGENT_CA_PIN"):
            del node.environment[name]
        minted = plane.mint()
        environment = {
            "GPUAAS_API_URL": f"https://127.0.0.1:{api.port}",
            "GPUAAS_TERMINAL_API_URL": "wss://127.0.0.1/terminal",
            "GPUAAS_CA_BUNDLE_PATH": bundle,
            "GPUAAS_NODE_CERT_CA_BUNDLE_PATH": str(gpu / "node-ca.pem"),
            "GPUAAS_CERT_PATH": str(gpu / "c.pem"),
            "GPUAAS_KEY_PATH": str(gpu / "k.pem"),
            "GPUAAS_ENROLLMENT_TOKEN": minted["token"],
            "GPUAAS_RECOVERY_API_URL": f"https://127.0.0.1:{recovery.port}",
            "GPUAAS_RECOVERY_CA_BUNDLE_PATH": bundle,
            "GPUAAS_DIAGNOSTIC_PATH": str(place / "diagnostics"),
        }
        node.environment |= environment | {"ENLIST_AGENT_LAYOUT": "gpuaas"}

        def enroll(timeout: str = "60s", **changed):
            return node.agent("enroll", "--timeout", timeout, env=changed)

        # Before there is an identity: address, trust and token.
        refused = enroll(GPUAAS_CA_BUNDLE_PATH=str(other))
        assert (refused.code, refused.error()["code"]) == (4, "server_tls_untrusted"), refused
        refused = enroll("3s", GPUAAS_API_URL="https://127.0.0.1:9")
        assert (refused.code, refused.error()["code"]) == (4, "endpoint_unreachable"), refused
        refused = enroll(GPUAAS_ENROLLMENT_TOKEN="recovery_" + "A" * 43)
        assert refused.code == 3 and plane.token_state(minted["token_id"]) == "unused", refused
        done = enroll()
        assert done.code == 0 and plane.token_state(minted["token_id"]) == "used", done
        name = done.json()["node_id"]
        # The files: certificate, key, what issued it, diagnostics.
        leaf = certs.certificates((gpu / "c.pem").read_bytes())[0]
        assert certs.serial(leaf) == plane.node(name)["cert_serial"]
        key = certs.serialization.load_pem_private_key((gpu / "k.pem").read_bytes(), None)
        assert certs.public_der(key) == certs.public_der(leaf) and (gpu / "k.pem").stat().st_mode & 0o7777 == 0o600
        assert certs.verifies(certs.pem(leaf), (gpu / "node-ca.pem").read_bytes())
        node.start().wait_connected()
        assert (place / "diagnostics").is_dir() and not (node.dir / "diagnostics").exists()
        # The terminal's address is part of what must resolve.
        found = node.agent("doctor", env={"GPUAAS_TERMINAL_API_URL": "wss://terminal.invalid/v1"}).json()
        (resolution,) = [check for check in found["checks"] if check["name"] == "resolution"]
        assert not resolution["ok"] and "terminal.invalid" in resolution["evidence"]
        node.wait_token()
        node.stop()
        # Recovery: its own address, its own trust.
        until(lambda: plane.node(name)["state"] == "inactive", "its silence is noticed")
        refused = node.agent("recover", env={"GPUAAS_RECOVERY_CA_BUNDLE_PATH": str(other)})
        assert refused.code == 4 and kinds(plane, name, "recovery.issued") == [], refused
        refused = node.agent("recover", env={"GPUAAS_RECOVERY_API_URL": "https://127.0.0.1:9"})
        assert refused.code == 4 and kinds(plane, name, "recovery.issued") == [], refused
        api.close()
        done = node.agent("recover")
        assert done.code == 0, "the API's address is gone, recovery has one of its own"
        assert kinds(plane, name, "recovery.issued") == ["recovery.issued"]
        node.note_secrets()


def test_the_read_model_of_a_real_host_is_complete(plane, host, disks):
    """Proves GPU-24: nine statements of the document about one host, each true of that host and of no default."""
    node = host.node_id()
    until(lambda: plane.node(node)["evidence"] and len(spaces(plane.node(node)["evidence"])) == 4, "all places are told")
    told = plane.node(node)["evidence"]
    assert told["cert_not_after"] == plane.node(node)["cert_not_after"]
    assert told["endpoint_profile_id"] == "rack-7", "the profile of API and terminal"
    assert told["diagnostic_writable"] is True and told["last_recovery"] is None

    def right() -> bool:
        found = spaces(plane.node(node)["evidence"])
        return all(abs(found[name] - disk.available()) < 512 * 1024 for name, disk in disks.items())

    until(right, "each place has the room of its own disk")
    megabytes = {name: round(size / 2**20) for name, size in spaces(plane.node(node)["evidence"]).items()}
    assert len(set(megabytes.values())) == 4, megabytes
    (disks["task_retry"].path / "retry" / "result").write_bytes(b"x" * 4 * 2**20)
    until(right, "what the workload takes is seen")
    for name, disk in disks.items():
        place = {space["name"]: space["path"] for space in plane.node(node)["evidence"]["free_space"]}[name]
        assert place.startswith(str(disk.path)), name
    # Renewal: the last one, and why it failed.
    serial = host.serial()
    plane.cli("node", "rotate", node)
    until(lambda: host.serial() != serial, "it is renewed")
    until(lambda: (plane.node(node)["evidence"]["last_renewal"] or {}).get("ok"), "the renewal is shown")
    plane.policy("profile.default.keys", "rsa")
    try:
        plane.cli("node", "rotate", node)
        failed = lambda: plane.node(node)["evidence"]["last_renewal"]  # noqa: E731
        until(lambda: failed() and failed()["ok"] is False, "the failure is shown")
        assert failed()["code"] and failed()["correlation_id"]
    finally:
        plane.policy("profile.default.keys", "p256,p384,ed25519,rsa")
    # Excluded, and why.
    assert plane.cli("node", "drain", node) and "draining" in plane.node(node)["excluded"]
    assert plane.node(node)["schedulable"] is False


@pytest.mark.parametrize("name", ["task_retry", "runtime"])
def test_room_is_reserved_for_the_workload(plane, host, disks, name):
    """Proves GPU-32, GPU-34: task results, evidence and terminal state can be written on a disk that was filled; both sides say
    which disk is full, and it ends by itself."""
    node, disk = host.node_id(), disks[name]
    reserve = next(disk.path.iterdir()) / RESERVE
    until(reserve.exists, "room is kept")
    assert reserve.stat().st_blocks * 512 >= BALLAST and reserve.stat().st_mode & 0o7777 == 0o600
    disk.fill()
    until(lambda: not reserve.exists(), "it is given up")
    evidence = reserve.with_name("evidence.json")
    evidence.write_bytes(b"x" * (BALLAST // 2))
    assert evidence.stat().st_size == BALLAST // 2, "the workload writes on a full disk"
    host.told(FULL)
    record = next(record for record in reversed(host.diagnostics()) if record["class"] == FULL)
    assert str(disk.path) in record["evidence"], record
    until(lambda: FULL in alerts(plane, node), "the control plane raises an alert")
    shown = plane.node(node)
    assert shown["connected"] and shown["health"]["reason"] == FULL and FULL in shown["excluded"], shown
    disk.free()
    until(reserve.exists, "room is kept again")
    until(lambda: FULL not in host.reasons() and FULL not in plane.node(node)["excluded"], "it is over")


def test_room_is_reserved_for_identity_and_diagnostics(plane, host, disks):
    """Proves GPU-32: a key, a certificate and the record of it are written on full disks."""
    node = host.node_id()
    until((host.dir / "ballast").exists, "room is kept")
    serial = host.serial()

    def full() -> bool:
        """The daemon may give something up meanwhile."""
        for name in ("cert", "diagnostic"):
            disks[name].fill()
        return disks["cert"].available() == disks["diagnostic"].available() == 0

    until(full, "both disks are full")
    plane.cli("node", "rotate", node)
    until(lambda: host.serial() != serial, f"it is renewed: {host.log()}")
    assert host.keys_match()
    until(lambda: any(record["class"] == FULL for record in host.diagnostics()), "it is written down")
    for disk in disks.values():
        disk.free()


def test_the_log_gives_way_to_everything_else(plane, host, disks):
    """Proves GPU-33, GPU-09: retries are one line with a count; while room is short, what was said once is not said again but
    counted in `observability_dropped_records_total`, and the host comes back all the same."""
    until(lambda: "observability_dropped_records_total{" in host.metrics(), "figures are served")
    dropped = 'observability_dropped_records_total{source="log",reason="disk_pressure"}'
    assert host.figure(dropped) == 0
    disks["diagnostic"].fill()
    until(lambda: "node_observability_disk_pressure" in host.reasons(), "room is short")
    plane.stop()
    try:
        until(lambda: host.figure(dropped) >= 3, "retries are counted and not logged", 120)
        said = [line for line in host.whole_log().splitlines() if " WARN " in line and "not connected" in line]
        assert len(said) == 1, said
        failures = [line.partition(" WARN ")[2] for line in host.whole_log().splitlines()]
        failures = [failure.partition(";")[0] for failure in failures if failure]
        assert len(failures) == len(set(failures)), "each is said once: lost, not connected, not recovered"
    finally:
        plane.start(*plane.fixed)
    disks["diagnostic"].free()
    host.well(150)
    assert host.keys_match() and os.path.exists(host.token_file())
